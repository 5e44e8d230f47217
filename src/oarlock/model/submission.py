"""What somebody asks for with `oarsub`, before any rule has looked at it; a request, and a whole submission."""

from msgspec import Struct

from oarlock.model.condition import Condition
from oarlock.model.job import JobKind

ALL = -1  # every resource that matches, all of them free
BEST = -2  # as many as are free, at least one
BESTHALF = -3  # half of what is free, rounded down, at least one

WORDS = {"ALL": ALL, "BEST": BEST, "BESTHALF": BESTHALF}
"""Counts that are words; stored as these integers, as OAR stores them."""


class Level(Struct, frozen=True):
    """`name=count`: so many different values of a property, below each value of the level above."""

    name: str
    count: int


class ResourceGroup(Struct, frozen=True):
    """One hierarchy of levels, outermost first, on the resources that a condition leaves."""

    levels: tuple[Level, ...]
    where: Condition | None = None


class Alternative(Struct, frozen=True):
    """One `-l`: groups with disjoint resources, for a walltime (`None`: the site's rules give one)."""

    groups: tuple[ResourceGroup, ...]
    walltime: int | None = None


class ResourceRequest(Struct, frozen=True):
    """Everything asked for: any one of the alternatives will do; `where` (`-p`) holds for all of them."""

    alternatives: tuple[Alternative, ...]
    where: Condition | None = None


class Submission(Struct, frozen=True, kw_only=True):
    """One call of `oarsub`: one job, or an array of jobs that differ in their parameters only.

    `user` is whom the kernel (or a token) says it is, never what the request says. `None` is "not given": rules fill
    it in. `rule_where` is what rules add to the condition after the check against the resources there are.
    """

    user: str
    request: ResourceRequest
    queue: str | None = None
    kind: JobKind = JobKind.PASSIVE
    command: str | None = None
    script: str | None = None  # the text of a script that was scanned for directives
    name: str | None = None
    project: str | None = None
    types: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    reservation: tuple[int, int | None] | None = None  # asked start, and end if one was given
    hold: bool = False
    checkpoint: int = 0
    checkpoint_signal: int = 12
    notify: str | None = None
    directory: str = "/"
    environment: str = ""
    stdout: str | None = None
    stderr: str | None = None
    array: tuple[str, ...] = ("",)  # one member a job: the parameters put behind its command
    resubmit_of: int = 0
    use_key: bool = False  # a key that was brought is none of the rules' business
    initial_request: str = ""
    submitted_from: str = ""  # host and process of the command, as it says
    login_host: str = ""  # where it was submitted, if that is proven
    groups: tuple[str, ...] = ()  # the user's groups, for rules
    uid: int | None = None  # the number of the user's account; None where nobody knows it
    file_id: int | None = None  # an archive of the user's own, which is unpacked where the job runs
    rule_where: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # about lines of its script, for its user
