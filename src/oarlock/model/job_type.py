"""Job types (`oarsub -t`): every word that we know, how its value is written, and a job's types parsed."""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class JobType(StrEnum):
    """The words. A site may use others as well: for its admission rules, quotas and programs."""

    BESTEFFORT = "besteffort"  # gives its resources back as soon as another job needs them
    IDEMPOTENT = "idempotent"  # may be run again after it was killed
    NOOP = "noop"  # runs nothing: it only occupies its resources
    DEPLOY = "deploy"  # its command runs on the frontend of deployments, its nodes may reboot
    COSYSTEM = "cosystem"  # its command runs on a frontend, its nodes belong to another system
    CONTAINER = "container"  # other jobs run inside of its resources
    INNER = "inner"  # runs inside of a container
    GUESTS = "guests"  # users who may enter a container besides its owner
    PLACEHOLDER = "placeholder"  # keeps its resources for jobs that name it
    ALLOW = "allow"  # names the placeholder that does not block it
    ALLOWED = "allowed"  # OAR's word for the same
    TIMESHARING = "timesharing"  # shares its resources with jobs of the same class
    NO_QUOTAS = "no_quotas"  # is not counted
    POSTPONE = "postpone"  # does not start before a date
    DEADLINE = "deadline"  # is over by a date
    EXPIRE = "expire"  # has begun by a date, or never begins
    ORIGIN = "origin"  # which program submitted it: a label that client libraries of OAR add, without effect
    STATE = "state"  # `state=permissive`: it also gets resources that are Absent or Suspected
    QOS = "qos"  # names a weight of the priority policy
    AT_ONCE = "at_once"  # of its array, so many run at the same time
    DEPENDENCY = "dependency"  # how the jobs that it waits for have to end


T = JobType

ON_FRONTEND = (T.COSYSTEM, T.DEPLOY)
"""Types whose command does not run on the job's own nodes; of a job that has both, the first counts."""

EVERYBODY = "*"
"""In `guests=*` and `timesharing=*,*`: all users, or all names."""

SHARING_SCOPE = re.compile(r"(\*|user),(\*|name|job_name)")
"""With whom a job shares: jobs of all users or of its own, of all names or of its own."""

_WORD = r"[A-Za-z_][A-Za-z0-9_.-]{0,99}"
_DATE = '"2027-01-31 08:00:00"'


class TypeValue(NamedTuple):
    """How what follows a word is written, `=` included, and the same for people."""

    form: re.Pattern[str]
    expected: str


VALUES: Mapping[str, TypeValue] = {
    T.TIMESHARING: TypeValue(re.compile(f"={SHARING_SCOPE.pattern}|"), "*,*   user,*   *,name   user,name"),
    T.CONTAINER: TypeValue(re.compile(f"(={_WORD})?"), "nothing, or a name that is not a number, as in container=lab"),
    T.INNER: TypeValue(
        re.compile(rf"=([0-9]{{1,18}}|{_WORD})"), "the number or the name of a container, as in inner=42"
    ),
    T.GUESTS: TypeValue(
        re.compile(r"=(\*|[^\s,=*]{1,100}(,[^\s,=*]{1,100}){0,99})"), "names of users, as in guests=ada,bob, or *"
    ),
    T.PLACEHOLDER: TypeValue(re.compile(f"={_WORD}"), "a name, as in placeholder=lab"),
    T.ALLOW: TypeValue(re.compile(f"={_WORD}"), "the name of a placeholder, as in allow=lab"),
    T.ALLOWED: TypeValue(re.compile(f"={_WORD}"), "the name of a placeholder, as in allowed=lab"),
    T.NO_QUOTAS: TypeValue(re.compile(""), "nothing"),
    T.POSTPONE: TypeValue(re.compile("=.+"), f"a date, as in postpone={_DATE}"),
    T.DEADLINE: TypeValue(re.compile("=.+"), f"a date, as in deadline={_DATE}"),
    T.EXPIRE: TypeValue(re.compile("=.+"), f"a date, as in expire={_DATE}"),
    T.STATE: TypeValue(re.compile("=permissive"), "state=permissive"),
    T.AT_ONCE: TypeValue(
        re.compile("=[1-9][0-9]{0,5}"), "how many jobs of the array may run at the same time, as in at_once=4"
    ),
    T.DEPENDENCY: TypeValue(re.compile("=(ok|any|notok)"), "dependency=ok, dependency=any or dependency=notok"),
    T.ORIGIN: TypeValue(re.compile("=.+"), "the name of a program, as in origin=snakemake"),
}
"""The types whose values we read."""


class JobTypes(NamedTuple):
    """The types of a job, parsed. A value that was not given is None; a word may be given without a value ("")."""

    words: frozenset[str] = frozenset()  # without their values
    besteffort: bool = False
    idempotent: bool = False
    noop: bool = False
    no_quotas: bool = False
    permissive: bool = False
    frontend: JobType | None = None  # which of `ON_FRONTEND` it has
    container: str | None = None
    inner: str | None = None
    guests: frozenset[str] = frozenset()
    placeholder: str | None = None
    allowed: str | None = None
    timesharing: str | None = None
    postpone: str | None = None
    deadline: str | None = None
    expire: str | None = None
    qos: str | None = None
    dependency: str | None = None
    at_once: str | None = None

    @property
    def is_container(self) -> bool:
        """Whether other jobs may run inside of it."""
        return self.container is not None

    @property
    def nested(self) -> bool:
        """Whether it is a container, or runs inside of one."""
        return self.container is not None or self.inner is not None


def container_type(name: str) -> str:
    """Return the type of the jobs that open the container of a name."""
    return f"{T.CONTAINER}={name}"


@lru_cache(maxsize=4096)
def parse_types(types: tuple[str, ...]) -> JobTypes:
    """Parse the types of a job. Of a word that was given twice with values, the first counts; of a date, the last.

    Nothing is refused here: `lang.options` checks types when they are submitted.
    """
    if not types:
        return JobTypes()
    pairs = [job_type.partition("=")[::2] for job_type in types]
    valued = [(word, value) for (word, value), written in zip(pairs, types, strict=True) if "=" in written]
    first = dict(reversed(valued))
    last = dict(valued)
    alone = {word: value for word, value in reversed(pairs) if word in {T.CONTAINER, T.TIMESHARING}}
    return JobTypes(
        words=frozenset(word for word, _ in pairs),
        besteffort=T.BESTEFFORT in types,
        idempotent=T.IDEMPOTENT in types,
        noop=T.NOOP in types,
        no_quotas=T.NO_QUOTAS in types,
        permissive=f"{T.STATE}=permissive" in types,
        frontend=next((word for word in ON_FRONTEND if word in types), None),
        container=alone.get(T.CONTAINER),
        inner=first.get(T.INNER),
        guests=frozenset(name for word, names in valued if word == T.GUESTS for name in names.split(",")),
        placeholder=first.get(T.PLACEHOLDER),
        allowed=next((value for word, value in valued if word in {T.ALLOW, T.ALLOWED}), None),
        timesharing=alone.get(T.TIMESHARING),
        postpone=last.get(T.POSTPONE),
        deadline=last.get(T.DEADLINE),
        expire=last.get(T.EXPIRE),
        qos=first.get(T.QOS),
        dependency=first.get(T.DEPENDENCY),
        at_once=first.get(T.AT_ONCE),
    )
