"""What an admission rule can ask about a submission: the fields of its `when`, and what it knows besides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from oarlock.lang.where import Types
from oarlock.model.job import JobKind
from oarlock.model.request import Alternative, Group, Request
from oarlock.model.submission import Submission

Answer = int | str | tuple[str, ...] | None
"""The value of a field: a field that holds many is a tuple."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: `int` or `str`, and one sentence. `many`: any number of texts. `duration`: also compared with h:m:s."""

    kind: type
    says: str
    many: bool = False
    duration: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What rules know besides the submission: the site, and a little of what the database holds.

    `properties` are the columns of resources; `lists` the names in each file that a rule asks about. `container` says
    whether the job named by the type `inner=…` is a container that can still take jobs; nothing for other jobs.
    """

    properties: Types
    default_walltime: int = 7200
    waiting_jobs: int = 0
    waiting_reservations: int = 0
    container: bool | None = None
    container_reserved: bool | None = None
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)


FIELDS: Mapping[str, Field] = {
    "user": Field(str, "who submits"),
    "group": Field(str, "the groups of that user", many=True),
    "queue": Field(str, "the queue asked for; NULL if none was"),
    "project": Field(str, "the project; NULL if none was given"),
    "name": Field(str, "the job's name; NULL if it has none"),
    "type": Field(str, "the job types as written, such as besteffort or inner=42", many=True),
    "interactive": Field(str, "YES or NO"),
    "reservation": Field(str, "YES if a date was asked for, else NO"),
    "reservation_start": Field(int, "that date, in epoch seconds; NULL without one"),
    "hold": Field(str, "YES if the job is to be held at first, else NO"),
    "command": Field(str, "what is to be run; NULL if nothing is"),
    "directory": Field(str, "the launching directory"),
    "notify": Field(str, "how the user wants to be told; NULL if not at all"),
    "checkpoint": Field(int, "seconds between the checkpoint signal and the end; 0 for none"),
    "use_key": Field(str, "YES if the job has an ssh key of its own, else NO"),
    "walltime": Field(int, "the longest walltime of all alternatives; NULL if none gives one", duration=True),
    "shortest_walltime": Field(int, "the shortest one", duration=True),
    "alternatives": Field(int, "how many `-l` there are"),
    "nodes": Field(int, "how many nodes the largest alternative counts; NULL if it counts none"),
    "resources": Field(
        int, "the counts of the largest alternative, multiplied along `/` and added along `+`; NULL with ALL or BEST"
    ),
    "level": Field(str, "the properties that are counted, such as core", many=True),
    "array_size": Field(int, "how many jobs are submitted at once"),
    "dependencies": Field(int, "how many jobs it waits for"),
    "container": Field(str, "for inner jobs: YES if the container exists and can take jobs, else NO; NULL for others"),
    "container_reserved": Field(str, "for inner jobs: YES if the container is a reservation, else NO"),
    "waiting_jobs": Field(int, "how many jobs of that user wait"),
    "waiting_reservations": Field(int, "how many reservations of that user have not started"),
    "property": Field(str, "the properties that resources have here", many=True),
}

TYPES: Types = {name: one.kind for name, one in FIELDS.items()}
_NODES = "network_address"


def row(submission: Submission, context: Context) -> dict[str, Answer]:
    """Give the value of every field."""
    request, reservation = submission.request, submission.reservation
    walltimes = [one.walltime for one in request.alternatives if one.walltime is not None]
    return {
        "user": submission.user,
        "group": submission.groups,
        "queue": submission.queue,
        "project": submission.project,
        "name": submission.name,
        "type": submission.types,
        "interactive": _yes(submission.kind is JobKind.INTERACTIVE),
        "reservation": _yes(reservation is not None),
        "reservation_start": None if reservation is None else reservation[0],
        "hold": _yes(submission.hold),
        "command": submission.command,
        "directory": submission.directory,
        "notify": submission.notify,
        "checkpoint": submission.checkpoint,
        "use_key": _yes(submission.use_key),
        "walltime": max(walltimes, default=None),
        "shortest_walltime": min(walltimes, default=None),
        "alternatives": len(request.alternatives),
        "nodes": _nodes(request),
        "resources": _resources(request),
        "level": levels(request),
        "array_size": len(submission.array),
        "dependencies": len(submission.after),
        "container": _perhaps(context.container),
        "container_reserved": _perhaps(context.container_reserved),
        "waiting_jobs": context.waiting_jobs,
        "waiting_reservations": context.waiting_reservations,
        "property": tuple(context.properties),
    }


def levels(request: Request) -> tuple[str, ...]:
    """Give every property that is counted, in order of first appearance."""
    return tuple(
        dict.fromkeys(
            level.name for alternative in request.alternatives for group in alternative.groups for level in group.levels
        )
    )


def _yes(value: bool) -> str:
    return "YES" if value else "NO"


def _perhaps(value: bool | None) -> str | None:
    return None if value is None else _yes(value)


def _nodes(request: Request) -> int | None:
    """Count nodes: the counts down to the level of nodes, in the alternative that has most."""
    counted = [
        sum(count for group in alternative.groups if (count := _down_to_nodes(group)))
        for alternative in request.alternatives
    ]
    return max(counted, default=0) or None


def _down_to_nodes(group: Group) -> int:
    counts: list[int] = []
    for level in group.levels:
        counts.append(level.count)
        if level.name == _NODES:
            return prod(counts) if min(counts) > 0 else 0
    return 0


def _resources(request: Request) -> int | None:
    counted = [_count(alternative) for alternative in request.alternatives]
    return None if None in counted else max(one for one in counted if one is not None)


def _count(alternative: Alternative) -> int | None:
    counts = [[level.count for level in group.levels] for group in alternative.groups]
    return None if min(map(min, counts)) < 0 else sum(map(prod, counts))
