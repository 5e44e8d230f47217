"""What a job asks for: alternatives → groups → levels → counts, and for how long."""

from msgspec import Struct

from oarlock.model.condition import Condition

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
