"""A resource: the smallest thing a job can be given, usually a core."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

PROPERTY_ALIASES = {"available_upto": "cm_availability"}
"""Names that OAR 2.5 has for columns of the manual: both are understood."""

OF_THE_SYSTEM = frozenset({
    "resource_id", "type", "network_address", "state", "next_state", "finaud_decision", "next_finaud_decision",
    "state_num", "suspended_jobs", "scheduler_priority", "besteffort", "deploy", "expiry_date", "desktop_computing",
    "last_job_date", "cm_availability", *PROPERTY_ALIASES,
})  # fmt: skip
"""Columns that say how a resource fares or what the system does with it; the others say what it is."""

DEFAULT_TYPE = "default"
"""The type of resources that jobs run on; others (licences, frontends) are only counted."""

DESKTOP_PROPERTY = "desktop_computing"
"""`YES`: the resource is on a machine that fetches its jobs itself, because the server cannot reach it."""

Value = int | str | None
"""What a property can hold: an integer, a text, or nothing."""


NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
"""What a node can be called: it becomes an argument of ssh, and a part of paths."""


CPUS_PROPERTY = "cpuset"
"""The property that every resource has for the numbers of its CPUs; a site may use another one of its own."""

_MOST_CPUS = 8192  # what the largest Linux kernels are built for
_CPU_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def parse_cpus(value: Value) -> tuple[int, ...]:
    """Parse the CPUs of a resource, as the kernel of its node counts them: `3`, `0,32`, `0-3`. Nothing is no CPU.

    Raise ValueError for anything else.
    """
    text = "" if value is None else str(value).strip()
    if not text:
        return ()
    cpus: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()[:20]!r} is not a CPU number")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < _MOST_CPUS:
            raise ValueError(f"{part.strip()!r} is not a range of CPUs between 0 and {_MOST_CPUS - 1}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


class ResourceState(StrEnum):
    """Whether a resource can be used. The manual's words."""

    ALIVE = "Alive"  # ready
    ABSENT = "Absent"  # taken out by an administrator, or asleep
    SUSPECTED = "Suspected"  # something went wrong on it
    DEAD = "Dead"  # will not come back


class NextState(StrEnum):
    """The state that was asked for; the server applies it."""

    UNCHANGED = "UnChanged"
    ALIVE = "Alive"
    ABSENT = "Absent"
    SUSPECTED = "Suspected"
    DEAD = "Dead"


STATE_NUMBER: Mapping[ResourceState, int] = {
    ResourceState.ALIVE: 1,
    ResourceState.ABSENT: 2,
    ResourceState.SUSPECTED: 3,
    ResourceState.DEAD: 4,
}
"""`state_num`: the state as a number, so that SQL can order by it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of `resources`; every column is in `properties`, the site's own included."""

    id: int
    properties: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ResourceOrder:
    """One column to sort resources by."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} {'DESC' if self.descending else 'ASC'}"


DEFAULT_ORDER = (
    ResourceOrder("scheduler_priority"),
    ResourceOrder("suspended_jobs"),
    ResourceOrder("network_address"),
    ResourceOrder("resource_id"),
)
"""Which resources are preferred where a site says nothing."""
