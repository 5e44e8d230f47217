"""A plan: when and where each job will start, and what has to happen now for it."""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from operator import or_

from msgspec import Struct

from oarlock.model.event import Event

_NOT_EMPTY = re.compile(rb"[^\x00]+")
_MEMBERS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]
_FEW, _ONE_BY_ONE = 5, 16_000  # up to so many members, or members times width, clearing bits one by one is faster


def without(bits: int, taken: int) -> int:
    """Return the members of `bits` that are not in `taken`."""
    return bits ^ (bits & taken)


def union(sets: Iterable[int]) -> int:
    """Return the members of any of the sets."""
    return reduce(or_, sets, 0)


def lowest(bits: int, count: int) -> int:
    """Return the `count` lowest members; `bits` must have that many.

    A few are taken one by one. For many, a binary search finds the cut between wanted and unwanted members: each step
    counts half of the remaining width, which is about two population counts of the full width in all.
    """
    if count <= _FEW or count * bits.bit_length() < _ONE_BY_ONE:
        left = bits
        for _ in range(count):
            left &= left - 1  # clears the lowest set bit
        return bits ^ left
    rest, wanted, cut, width = bits, count, 0, bits.bit_length()
    while width > 1:
        half = width >> 1
        low = rest & ((1 << half) - 1)
        here = low.bit_count()
        if here >= wanted:
            rest, width = low, half
        else:
            rest, wanted, cut, width = rest >> half, wanted - here, cut + half, width - half
    return bits & ((1 << (cut + 1)) - 1)


def positions(bits: int) -> list[int]:
    """Return the members of a set, lowest first.

    Runs of nonzero bytes are found by a regular expression, at the speed of C: long gaps cost next to nothing.
    """
    members: list[int] = []
    for run in _NOT_EMPTY.finditer(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        at = run.start() * 8
        for byte in run.group():
            members += [at + bit for bit in _MEMBERS[byte]]
            at += 8
    return members


class Placement(Struct, frozen=True):
    """A job's place in a plan: [start, stop) on `resources`, a set of positions in `Plan.ids`."""

    job_id: int
    moldable_id: int
    start: int
    stop: int
    resources: int


class Obstacle(StrEnum):
    """Why a job has no place, or not now; `plan.explain` writes the sentence."""

    BUSY = "busy"  # other jobs hold what it needs until its start
    TOO_BIG = "too big"  # the cluster never has that much, even empty
    UNAVAILABLE = "unavailable"  # enough exists, but not enough of it is Alive
    DEPENDENCY = "dependency"  # a job it depends on is not over
    BROKEN_DEPENDENCY = "broken dependency"  # a job it depends on failed: it will never start
    QUEUE_STOPPED = "queue stopped"
    OUT_OF_TIME = "out of time"  # the pass ran out of time; the next one continues
    FAR_BACK = "far back"  # behind the jobs of its queue that one pass plans
    MISSED = "missed"  # a reservation whose end has passed
    CONFLICT = "conflict"  # a reservation whose date is taken
    ALWAYS_ASSIGNED = "always assigned"  # a resource that every job needs is not Alive
    QUOTA = "quota"  # a quota never allows that much, or not at that date
    ARRAY_LIMIT = "array limit"  # as many jobs of its array as may run at once run, or come before it
    POSTPONED = "postponed"  # it has an own earliest start, and its queue promises no date
    CONTAINER = "container"  # its container does not exist, or never has that much for so long
    MAINTENANCE = "maintenance"  # a window it would run into
    DEADLINE = "deadline"  # it could not be over by its deadline
    SITE_SCHEDULER = "site scheduler"  # the site's own scheduler of its queue gave it no place
    SET_ASIDE = "set aside"  # planning it failed


class Unplaced(Struct, frozen=True):
    """A job without a place. `earliest` is when a refused reservation could run."""

    job_id: int
    obstacle: Obstacle
    detail: str = ""
    earliest: int | None = None


class PriorityTerm(Struct, frozen=True):
    """One term of a priority: its factor from 0 to 1, a description, and its weight."""

    name: str
    factor: float
    says: str = ""
    weight: float = 1.0

    @property
    def value(self) -> float:
        """What it adds to the priority."""
        return self.factor * self.weight


class Priority(Struct, frozen=True):
    """The priority of a job in its queue, with its terms; the highest is planned first."""

    job_id: int
    total: float
    terms: tuple[PriorityTerm, ...]


class WaitReason(Struct, frozen=True):
    """Why a job does not run: a sentence, the predicted start, and a request that would start at once if there is one.

    `smaller` is a request text (`-l …`) for fewer resources, or for less time. `priority`: in queues ordered by it.
    """

    job_id: int
    obstacle: Obstacle
    says: str
    start: int | None = None
    smaller: str | None = None
    priority: Priority | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """What one pass decided; the same snapshot and instant always give the same plan.

    `ids[i]` is the resource that bit i of a placement stands for (0: no resource). `start` are jobs to launch now,
    `accept` and `refuse` answer new reservations (missed ones, and jobs past their deadline, are refused too),
    `kill` are best-effort jobs whose resources are needed now, `wake` are names of sleeping nodes that planned jobs
    need. `orphans` are inner jobs whose container was not seen: it may be held, or over. `unfinished`: time ran out.
    """

    now: int
    ids: tuple[int, ...]
    placements: dict[int, Placement]
    unplaced: dict[int, Unplaced]
    start: tuple[int, ...] = ()
    accept: tuple[int, ...] = ()
    refuse: tuple[int, ...] = ()
    kill: tuple[int, ...] = ()
    wake: tuple[str, ...] = ()
    orphans: tuple[int, ...] = ()
    events: tuple[Event, ...] = ()
    unfinished: bool = False

    def resources(self, job_id: int) -> tuple[int, ...]:
        """Return the ids of the resources that a job was given."""
        return tuple([self.ids[at] for at in positions(self.placements[job_id].resources)])
