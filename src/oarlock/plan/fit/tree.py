"""The resource hierarchy of a request group as a tree of sets, and the choice of resources in it.

This is the reference algorithm: it is correct for every request.

A vertex is a value of a level below the value of the level above; its children come in resource order. A vertex
survives when enough of its children do: `n` of them, ALL that there were before anything was taken, or at least one
(BEST). It then keeps its first n, or all of them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oarlock.model.plan import lowest, positions, union
from oarlock.model.resource import Value
from oarlock.model.submission import ALL, BEST, BESTHALF, Level
from oarlock.plan.sets.layout import ResourceLayout, bits_at


class Demand(NamedTuple):
    """A request as comparable counts `of` the same resources: where a demand does not fit, no demand fits that is as
    large or larger in every count."""

    of: Hashable
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Vertex:
    """A block of resources. `count` says how many of its children (or, without any, of its resources) are wanted."""

    bits: int
    count: int
    children: tuple["Vertex", ...] = ()


def build_tree(layout: ResourceLayout, allowed: int, levels: Sequence[Level]) -> Vertex:
    """Build the tree of a group on the allowed resources; resources without a value at some level are left out.

    Below the last level all resources are wanted. Where each of its values is one resource (cores), these are counted
    themselves: the same choice from a much smaller tree.
    """
    counts = [level.count for level in levels]
    columns = [layout.column(level.name) for level in levels]
    paths = list(zip(*([column[row] for row in layout.rows_of(allowed)] for column in columns), strict=True))
    branches = [branch for branch in zip(positions(allowed), paths, strict=True) if None not in branch[1]]
    if len(set(paths)) < len(paths):
        counts.append(ALL)
    return _vertex(branches, counts, 0)


def with_counts(vertex: Vertex, levels: Sequence[Level], depth: int = 0) -> Vertex:
    """Copy a tree for a group that asks for the same levels of the same resources, with other counts."""
    count = levels[depth].count if depth < len(levels) else ALL
    children = tuple([with_counts(child, levels, depth + 1) for child in vertex.children])
    return Vertex(vertex.bits, count, children)


class RequestTrees:
    """The trees of a layout: each is built once, and copied for requests with other counts."""

    def __init__(self, layout: ResourceLayout) -> None:
        self._layout = layout
        self._grown: dict[tuple[int, tuple[str, ...]], Vertex] = {}

    def tree(self, allowed: int, levels: Sequence[Level]) -> Vertex:
        """Return the tree of a group on the allowed resources."""
        key = allowed, tuple(level.name for level in levels)
        grown = self._grown.get(key)
        if grown is None:
            grown = self._grown[key] = build_tree(self._layout, allowed, levels)
            return grown
        return with_counts(grown, levels)


_Branch = tuple[int, tuple[Value, ...]]
"""A resource's position, and its values from the outermost level in."""


def _vertex(branches: list[_Branch], counts: Sequence[int], depth: int) -> Vertex:
    if depth == len(counts) - 1:
        return Vertex(bits_at([at for at, _ in branches]), counts[depth])
    below: dict[Value, list[_Branch]] = {}
    for branch in branches:
        below.setdefault(branch[1][depth], []).append(branch)
    children = tuple([_vertex(some, counts, depth + 1) for some in below.values()])
    return Vertex(union(child.bits for child in children), counts[depth], children)


def count_kept(count: int, survivors: int, total: int) -> int:
    """Return how many of the survivors a vertex keeps; 0 when it does not survive."""
    if count > 0:
        return count if survivors >= count else 0
    if count == ALL:
        return survivors if survivors == total else 0
    if count == BEST:
        return survivors
    if count == BESTHALF:
        return max(1, survivors // 2) if survivors else 0
    raise ValueError(f"{count} is not a count of resources")


def choose(vertex: Vertex, free: int) -> int:
    """Return the resources that a vertex takes of a free set; none when it does not survive."""
    here = free & vertex.bits
    if not here:
        return 0
    if not vertex.children:
        return lowest(here, count_kept(vertex.count, here.bit_count(), vertex.bits.bit_count()))
    kept = [taken for child in vertex.children if (taken := choose(child, here))]
    total = 0
    for taken in kept[: count_kept(vertex.count, len(kept), len(vertex.children))]:
        total |= taken
    return total


def survivors(vertex: Vertex, free: int) -> int:
    """Return how many children of a vertex (or, without any, how many of its resources) a free set leaves."""
    if not vertex.children:
        return (free & vertex.bits).bit_count()
    return sum(1 for child in vertex.children if choose(child, free))


def minimum_size(vertex: Vertex) -> int:
    """Return a lower bound on the resources that a vertex needs; fewer free ones never fit."""
    if not vertex.children:
        size = vertex.bits.bit_count()
        return size if vertex.count == ALL else max(vertex.count, 1)
    needs = sorted(minimum_size(child) for child in vertex.children)
    if vertex.count == ALL:
        return sum(needs)
    return sum(needs[: max(vertex.count, 1)])
