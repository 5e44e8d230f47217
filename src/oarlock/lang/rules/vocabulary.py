"""What an admission rule can ask about a submission, and its texts with `{field}` in them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oarlock.lang import duration
from oarlock.lang.where import Types
from oarlock.model.condition import And, Between, Column, Compare, Condition, In, Like, Literal, Not, Operand, Or
from oarlock.model.job import JobKind
from oarlock.model.submission import Alternative, ResourceGroup, ResourceRequest, Submission

FieldValue = int | str | tuple[str, ...] | None
"""The value of a field: a field that holds many is a tuple."""


class RuleContext(Struct, frozen=True, kw_only=True):
    """What rules know besides the submission: the site, and a little of what the database holds.

    `properties` are the columns of resources; `lists` the names in each file that a rule asks about. `container` says
    whether the job named by the type `inner=…` is a container that can still take jobs; nothing for other jobs.
    Likewise `waiting_reservations` is known of reservations only.
    """

    properties: Types
    default_walltime: int = 7200
    waiting_jobs: int = 0
    waiting_reservations: int | None = None
    container: bool | None = None
    container_reserved: bool | None = None
    lists: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleField:
    """A field: where it is found, one sentence, `int` or `str`.

    `many`: any number of texts. `duration`: also compared with h:m:s.
    """

    of: Callable[[Submission, RuleContext], FieldValue]
    says: str
    kind: type = str
    many: bool = False
    duration: bool = False


FIELDS: Mapping[str, RuleField] = {
    "user": RuleField(lambda job, _: job.user, "who submits"),
    "group": RuleField(lambda job, _: job.groups, "the groups of that user", many=True),
    "queue": RuleField(lambda job, _: job.queue, "the queue asked for; NULL if none was"),
    "project": RuleField(lambda job, _: job.project, "the project; NULL if none was given"),
    "name": RuleField(lambda job, _: job.name, "the job's name; NULL if it has none"),
    "type": RuleField(lambda job, _: job.types, "the job types as written, such as besteffort or inner=42", many=True),
    "interactive": RuleField(lambda job, _: _yes(job.kind is JobKind.INTERACTIVE), "YES or NO"),
    "reservation": RuleField(lambda job, _: _yes(job.reservation is not None), "YES if a date was asked for, else NO"),
    "reservation_start": RuleField(
        lambda job, _: job.reservation[0] if job.reservation else None,
        "that date, in epoch seconds; NULL without one",
        int,
    ),
    "hold": RuleField(lambda job, _: _yes(job.hold), "YES if the job is to be held at first, else NO"),
    "command": RuleField(lambda job, _: job.command, "what is to be run; NULL if nothing is"),
    "directory": RuleField(lambda job, _: job.directory, "the launching directory"),
    "notify": RuleField(lambda job, _: job.notify, "how the user wants to be told; NULL if not at all"),
    "checkpoint": RuleField(
        lambda job, _: job.checkpoint, "seconds between the checkpoint signal and the end; 0 for none", int
    ),
    "use_key": RuleField(lambda job, _: _yes(job.use_key), "YES if the job has an ssh key of its own, else NO"),
    "walltime": RuleField(
        lambda job, _: max(_walltimes(job.request), default=None),
        "the longest walltime of all alternatives; NULL if none gives one",
        int,
        duration=True,
    ),
    "shortest_walltime": RuleField(
        lambda job, _: min(_walltimes(job.request), default=None), "the shortest one", int, duration=True
    ),
    "alternatives": RuleField(lambda job, _: len(job.request.alternatives), "how many `-l` there are", int),
    "nodes": RuleField(
        lambda job, _: _nodes(job.request),
        "how many nodes the largest alternative counts; NULL if it counts none",
        int,
    ),
    "resources": RuleField(
        lambda job, _: _resources(job.request),
        "the counts of the largest alternative, multiplied along `/` and added along `+`; NULL with ALL or BEST",
        int,
    ),
    "level": RuleField(lambda job, _: levels(job.request), "the properties that are counted, such as core", many=True),
    "array_size": RuleField(lambda job, _: len(job.array), "how many jobs are submitted at once", int),
    "dependencies": RuleField(lambda job, _: len(job.after), "how many jobs it waits for", int),
    "container": RuleField(
        lambda _, context: _perhaps(context.container),
        "for inner jobs: YES if the container exists and can take jobs, else NO; NULL for others",
    ),
    "container_reserved": RuleField(
        lambda _, context: _perhaps(context.container_reserved),
        "for inner jobs: YES if the container is a reservation, else NO",
    ),
    "waiting_jobs": RuleField(lambda _, context: context.waiting_jobs, "how many jobs of that user wait", int),
    "waiting_jobs_after": RuleField(
        lambda job, context: context.waiting_jobs + len(job.array),
        "how many would wait with the ones submitted now",
        int,
    ),
    "waiting_reservations": RuleField(
        lambda _, context: context.waiting_reservations, "for reservations: how many of that user have not started", int
    ),
    "property": RuleField(
        lambda _, context: tuple(context.properties), "the properties that resources have here", many=True
    ),
}

COUNTS = frozenset({"waiting_jobs", "waiting_jobs_after", "waiting_reservations"})
"""The fields that count the user's jobs: they change between the rules and the store."""

TYPES: Types = {name: field.kind for name, field in FIELDS.items()}
_NODES = "network_address"


class FieldValues(dict[str, FieldValue]):
    """The values of the fields of a submission, each found out when it is first asked for."""

    def __init__(self, submission: Submission, context: RuleContext) -> None:
        super().__init__()
        self.submission, self.context = submission, context

    def __missing__(self, name: str) -> FieldValue:
        answer = self[name] = FIELDS[name].of(self.submission, self.context)
        return answer


def levels(request: ResourceRequest) -> tuple[str, ...]:
    """Return every property that is counted, in order of first appearance."""
    return tuple(
        dict.fromkeys(
            level.name for alternative in request.alternatives for group in alternative.groups for level in group.levels
        )
    )


def _walltimes(request: ResourceRequest) -> list[int]:
    return [alternative.walltime for alternative in request.alternatives if alternative.walltime is not None]


def _yes(value: bool) -> str:
    return "YES" if value else "NO"


def _perhaps(value: bool | None) -> str | None:
    return None if value is None else _yes(value)


def _nodes(request: ResourceRequest) -> int | None:
    """Count nodes: the counts down to the level of nodes, in the alternative that has most."""
    counted = [
        sum(count for group in alternative.groups if (count := _down_to_nodes(group)))
        for alternative in request.alternatives
    ]
    return max(counted, default=0) or None


def _down_to_nodes(group: ResourceGroup) -> int:
    counts: list[int] = []
    for level in group.levels:
        counts.append(level.count)
        if level.name == _NODES:
            return prod(counts) if min(counts) > 0 else 0
    return 0


def _resources(request: ResourceRequest) -> int | None:
    counted = [_count(alternative) for alternative in request.alternatives]
    return None if None in counted else max(count for count in counted if count is not None)


def _count(alternative: Alternative) -> int | None:
    counts = [[level.count for level in group.levels] for group in alternative.groups]
    return None if min(map(min, counts)) < 0 else sum(map(prod, counts))


_PLACE = re.compile(r"\{([A-Za-z_]*)\}")
_SITE = ("default_walltime", "default_walltime_seconds", "walltime_seconds")
PLACES = frozenset({name for name, field in FIELDS.items() if not field.many} | set(_SITE))


class TemplateValues:
    """The texts of placeholders for a submission: walltimes as h:mm:ss, missing values as empty texts."""

    __slots__ = ("_answers", "_more")

    def __init__(self, answers: FieldValues, more: Mapping[str, str] | None = None) -> None:
        self._answers, self._more = answers, more or {}

    def __call__(self, name: str) -> str:
        """Return the text for a placeholder."""
        context = self._answers.context
        match name:
            case "default_walltime":
                return duration.show(context.default_walltime)
            case "default_walltime_seconds":
                return str(context.default_walltime)
            case "walltime_seconds":
                return _text(self._answers["walltime"])
            case _:
                return self._more[name] if name in self._more else self._field(name)

    def _field(self, name: str) -> str:
        answer = self._answers[name]
        return duration.show(answer) if FIELDS[name].duration and isinstance(answer, int) else _text(answer)


def _text(answer: FieldValue) -> str:
    return "" if answer is None else str(answer)


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders."""

    text: str

    def filled(self, values: TemplateValues) -> str:
        """Return the text with every placeholder filled; placeholders inside values are left alone."""
        return _PLACE.sub(lambda match: values(match[1]), self.text) if "{" in self.text else self.text

    def unknown(self, more: frozenset[str] = frozenset()) -> str | None:
        """Return the first unknown placeholder; None if there is none."""
        return next((name for name in _PLACE.findall(self.text) if name not in PLACES | more), None)


def fill(condition: Condition, values: TemplateValues) -> Condition:
    """Fill the places in the texts of a condition: values stay values, whatever they say."""
    fill_part = partial(fill, values=values)
    match condition:
        case And(parts) | Or(parts):
            return replace(condition, parts=tuple(map(fill_part, parts)))
        case Not(inner):
            return Not(fill_part(inner))
        case Compare(op, left, right):
            return Compare(op, _operand(left, values), _operand(right, values))
        case In(items=items):
            return replace(condition, items=tuple(_literal(item, values) for item in items))
        case Like(pattern=pattern):
            return replace(condition, pattern=Template(pattern).filled(values))
        case Between(low=low, high=high):
            return replace(condition, low=_literal(low, values), high=_literal(high, values))
        case _:
            return condition


def _operand(operand: Operand, values: TemplateValues) -> Operand:
    return operand if isinstance(operand, Column) else _literal(operand, values)


def _literal(literal: Literal, values: TemplateValues) -> Literal:
    return Literal(Template(literal.value).filled(values)) if isinstance(literal.value, str) else literal
