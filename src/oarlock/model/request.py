"""What a job asks for: alternatives → groups → levels → counts, and for how long."""

from dataclasses import dataclass

from oarlock.model.condition import Condition

ALL = -1  # every resource that matches, all of them free
BEST = -2  # as many as are free, at least one
BESTHALF = -3  # half of what is free, rounded down, at least one

WORDS = {"ALL": ALL, "BEST": BEST, "BESTHALF": BESTHALF}
"""Counts that are words; stored as these integers, as OAR stores them."""


@dataclass(frozen=True, slots=True)
class Level:
    """`name=count`: so many different values of a property, below each value of the level above."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """One hierarchy of levels, outermost first, on the resources that a condition leaves."""

    levels: tuple[Level, ...]
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One `-l`: groups with disjoint resources, for a walltime (`None`: the site's rules give one)."""

    groups: tuple[ResourceGroup, ...]
    walltime: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """Everything asked for: any one of the alternatives will do; `where` (`-p`) holds for all of them."""

    alternatives: tuple[Alternative, ...]
    where: Condition | None = None
