"""Compiled requests: whether a free set fits a shape, which resources are taken of it, and from when on it can fit.

Four algorithms with the same result; the fastest one that applies is chosen: plain resources are counted, whole nodes
are searched in a timeline of nodes, `nodes=K/core=q` is counted in all fields at once, everything else goes through the
tree (`TreeFit`, which caches the choice in each node). `tree.choose` is the reference for all of them.

A bound of one shape holds for every shape that requests as much or more: where four nodes with two cores each are not
free, six with two are not either. Shapes form a partial order; raising a bound raises those of the next harder shapes,
and so on, until a bound is already as high.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Protocol

from oarlock.model.condition import both
from oarlock.model.plan import lowest, union, without
from oarlock.model.snapshot import Shape
from oarlock.model.submission import ALL, Level, ResourceGroup
from oarlock.plan.fit.tree import Demand, RequestTrees, TreeFit, count_kept
from oarlock.plan.sets.layout import NODE, PLAIN, NodeFields, ResourceLayout
from oarlock.plan.sets.selection import matching

_REMEMBERED = 16  # cached results of `whole_nodes`


class Fit(Protocol):
    """A compiled shape. `of_nodes`: its free sets are sets of wholly free nodes, not of resources.

    `monotone`: every superset of a set that fits, fits. Fewer than `least` units never fit.
    """

    least: int
    monotone: bool
    of_nodes: bool
    demand: Demand | None

    def fits(self, free: int) -> bool:
        """Return whether a free set is enough."""

    def take(self, free: int) -> int:
        """Return the resources taken of a free set that fits; 0 when it does not."""

    def offers(self, free: int) -> int:
        """Return the largest count of outermost units (nodes, cores, …) with which the request fits a free set."""


@dataclass(slots=True, eq=False)
class CountFit:
    """A number of any resources."""

    mask: int
    count: int
    least: int
    monotone: bool = True
    of_nodes: bool = False
    demand: Demand | None = None

    def __post_init__(self) -> None:
        self.demand = _demand(self.mask, 0, 0, self.count)

    def fits(self, free: int) -> bool:
        return (free & self.mask).bit_count() >= self.least

    def take(self, free: int) -> int:
        here = free & self.mask
        return lowest(here, self._wanted(here))

    def offers(self, free: int) -> int:
        return (free & self.mask).bit_count()

    def _wanted(self, here: int) -> int:
        have = here.bit_count()
        return count_kept(self.count, have, self.mask.bit_count()) if have else 0


@dataclass(slots=True, eq=False)
class WholeNodesFit:
    """A number of whole nodes; its free sets are sets of free nodes."""

    fields: NodeFields
    mask: int
    count: int
    least: int
    monotone: bool = True
    of_nodes: bool = True
    demand: Demand | None = None

    def __post_init__(self) -> None:
        smallest = self.fields.smallest(self.mask)
        self.demand = _demand(self.fields.resources(self.mask), self.count, smallest, self.count * smallest)

    def fits(self, free: int) -> bool:
        return (free & self.mask).bit_count() >= self.least

    def take(self, free: int) -> int:
        here = free & self.mask
        return self.fields.resources(lowest(here, self._wanted(here)))

    def offers(self, free: int) -> int:
        return (free & self.mask).bit_count()

    def _wanted(self, here: int) -> int:
        have = here.bit_count()
        return count_kept(self.count, have, self.mask.bit_count()) if have else 0


@dataclass(slots=True, eq=False)
class NodePartsFit:
    """A number of nodes with a number of resources on each: `nodes=K/core=q`, counted in all fields at once."""

    fields: NodeFields
    mask: int
    nodes: int
    parts: int
    total: int  # nodes that have such resources, free or not
    least: int
    monotone: bool = True
    of_nodes: bool = False
    demand: Demand | None = None
    _last_free: int = 0  # the free set of the last call,
    _enough: int = 0  # the nodes that have enough of it,
    _taken: int = 0  # and how many of them would be taken

    def __post_init__(self) -> None:
        self.demand = _demand(self.mask, self.nodes, self.parts, self.nodes * self.parts)

    def fits(self, free: int) -> bool:
        here = free & self.mask
        self._last_free, self._taken = here, 0
        if self.least > PLAIN and here.bit_count() < self.least:  # one count of all is faster than counting each node
            return False
        self._enough = self.fields.at_least(here, self.parts)
        self._taken = self._wanted(self._enough)
        return self._taken > 0

    def take(self, free: int) -> int:
        here = free & self.mask
        if here != self._last_free:
            self.fits(here)
        return self.fields.lowest(here, self._enough, self._taken, self.parts) if self._taken else 0

    def _wanted(self, enough: int) -> int:
        """Return how many nodes are taken of those that have enough; up to two without a population count."""
        if self.nodes == 1:
            return int(enough != 0)
        if self.nodes == 2:
            return 2 if enough & (enough - 1) else 0
        have = enough.bit_count()
        return count_kept(self.nodes, have, self.total) if have else 0

    def offers(self, free: int) -> int:
        return self.fields.at_least(free & self.mask, self.parts).bit_count()


@dataclass(slots=True, eq=False)
class GroupsFit:
    """Several groups with disjoint resources: each takes from what the groups before it left.

    Where groups compete for the same resources, an earlier one may leave more for a later one when it has less to
    choose from, so a larger free set may fit worse: `monotone` is False then.
    """

    groups: Sequence[Fit]
    least: int
    monotone: bool
    of_nodes: bool = False
    demand: Demand | None = None

    def fits(self, free: int) -> bool:
        return self.take(free) != 0

    def take(self, free: int) -> int:
        total = 0
        for group in self.groups:
            taken = group.take(free)
            if not taken:
                return 0
            total |= taken
            free ^= taken
        return total

    def offers(self, free: int) -> int:
        return int(self.fits(free))


@dataclass(slots=True, eq=False)
class EmptyFit:
    """A shape that never fits: no resource has the requested properties."""

    least: int = 1
    monotone: bool = True
    of_nodes: bool = False
    demand: Demand | None = None

    def fits(self, free: int) -> bool:  # noqa: ARG002
        return False

    def take(self, free: int) -> int:  # noqa: ARG002
        return 0

    def offers(self, free: int) -> int:  # noqa: ARG002
        return 0


def _demand(mask: int, nodes: int, parts: int, total: int) -> Demand | None:
    """Return the demand on a set: nodes, resources per node, resources in all; None for ALL and BEST."""
    return Demand(mask, (nodes, parts, total)) if total > 0 else None


class Fitter:
    """Compiles shapes for one layout."""

    def __init__(self, layout: ResourceLayout) -> None:
        self.layout = layout
        self._forest = RequestTrees(layout)
        self._singles: dict[str, bool] = {}
        self._whole: dict[int, int] = {}
        sizes = {node.bits.bit_count() for node in layout.nodes}
        self._node_size = max(sizes, default=0)
        self._on_nodes = union(node.bits for node in layout.nodes)
        regular = layout.width > 0 and all(node.high - node.low == layout.width for node in layout.nodes)
        self.fields = NodeFields(layout) if regular and layout.nodes else None

    def compile(self, shape: Shape) -> Fit:
        """Return the fastest fit that applies to a shape.

        Raise `UnknownProperty` if it names a property that resources do not have, `ValueError` for an invalid count.
        """
        for level in [level for group in shape.groups for level in group.levels]:
            count_kept(level.count, 0, 0)
        if len(shape.groups) == 1:
            return self._group(shape, shape.groups[0], alone=True)
        masks = [self.allowed(shape, group) for group in shape.groups]
        groups = [self._group(shape, group, alone=False) for group in shape.groups]
        apart = sum(mask.bit_count() for mask in masks) == reduce(or_, masks).bit_count()
        least = sum(group.least for group in groups)
        return GroupsFit(groups, least, apart and all(group.monotone for group in groups))

    def whole_nodes(self, free: int) -> int:
        """Return the nodes of which every resource is free: bit i for node i. The last few results are cached."""
        cached = self._whole.get(free)
        if cached is None:
            cached = sum(1 << index for index, node in enumerate(self.layout.nodes) if free & node.bits == node.bits)
            if len(self._whole) >= _REMEMBERED:
                self._whole.clear()
            self._whole[free] = cached
        return cached

    def touched_nodes(self, resources: int) -> int:
        """Return the nodes that a set has a resource of."""
        if self.fields is not None:
            return self.fields.touched(resources)
        return sum(1 << index for index, node in enumerate(self.layout.nodes) if resources & node.bits)

    def is_whole(self, resources: int, nodes: int) -> bool:
        """Return whether a set surely covers these nodes entirely; it has at least one resource of each."""
        cached = self.fields.whole(resources) if self.fields is not None else None
        if cached is not None:
            return cached
        return (resources & self._on_nodes).bit_count() == nodes.bit_count() * self._node_size

    def resources_of(self, nodes: int) -> int:
        """Return all resources of a set of nodes."""
        if self.fields is not None:
            return self.fields.resources(nodes)
        return sum(node.bits for index, node in enumerate(self.layout.nodes) if nodes >> index & 1)

    def allowed(self, shape: Shape, group: ResourceGroup) -> int:
        """Return the resources that a group may use: its condition, the job's, and a value at each of its levels."""
        allowed = matching(self.layout, both(shape.where, group.where))
        for level in group.levels:
            allowed = without(allowed, self.layout.unset(level.name))
        return allowed

    def _group(self, shape: Shape, group: ResourceGroup, *, alone: bool) -> Fit:
        allowed = self.allowed(shape, group)
        if not allowed:
            return EmptyFit()
        outer, *inner = group.levels
        if not inner and self._single(allowed, outer):
            least = allowed.bit_count() if outer.count == ALL else max(outer.count, 1)
            return CountFit(allowed, outer.count, least)
        if self.fields is not None and self._is_node(allowed, outer):
            quick = self._of_nodes(self.fields, allowed, outer, inner, alone=alone)
            if quick is not None:
                return quick
        return TreeFit(self.layout, self._forest.tree(allowed, group.levels), group.levels)

    def _of_nodes(
        self, fields: NodeFields, allowed: int, outer: Level, inner: list[Level], *, alone: bool
    ) -> Fit | None:
        lows = fields.nonempty(allowed & fields.everything)
        whole = fields.resources(fields.nodes(lows)) == allowed
        if not inner and alone and whole:
            nodes = fields.nodes(lows)
            return WholeNodesFit(
                fields, nodes, outer.count, nodes.bit_count() if outer.count == ALL else max(outer.count, 1)
            )
        if len(inner) == 1 and inner[0].count > 0 and self._single_in_node(allowed, inner[0]):
            least = max(outer.count, 1) * inner[0].count
            return NodePartsFit(fields, allowed, outer.count, inner[0].count, lows.bit_count(), least)
        return None

    def _is_node(self, allowed: int, level: Level) -> bool:
        """Return whether a level is equivalent to the node: its values partition the allowed resources as nodes do."""
        if level.name == NODE:
            return True
        values = {bits & allowed for value, bits in self.layout.by_value(level.name).items() if value is not None}
        return values - {0} == {node.bits & allowed for node in self.layout.nodes} - {0}

    def _single(self, allowed: int, level: Level) -> bool:
        """Return whether every value of a level is one resource."""
        if level.name == "resource_id" or self._everywhere_single(level.name):
            return True
        return all((bits & allowed).bit_count() <= 1 for bits in self.layout.by_value(level.name).values())

    def _everywhere_single(self, name: str) -> bool:
        cached = self._singles.get(name)
        if cached is None:
            values = [value for value in self.layout.column(name) if value is not None]
            cached = self._singles[name] = len(set(values)) == len(values)
        return cached

    def _single_in_node(self, allowed: int, level: Level) -> bool:
        """Return whether every value of a level is at most one resource of each node."""
        if self._single(allowed, level):
            return True
        value, node = self.layout.column(level.name), self.layout.column(NODE)
        rows = self.layout.rows_of(allowed)
        return len({(node[row], value[row]) for row in rows}) == len(rows)


class ShapeBounds:
    """Lower bounds of one shape: no window of `duration` or longer begins before `start`. Both lists increase."""

    __slots__ = ("_durations", "_starts")

    def __init__(self) -> None:
        self._durations: list[int] = []
        self._starts: list[int] = []

    def at(self, duration: int) -> int:
        """Return the bound for a duration; 0 if there is none."""
        index = bisect_right(self._durations, duration) - 1
        return self._starts[index] if index >= 0 else 0

    def raise_to(self, duration: int, start: int) -> bool:
        """Record that no window of `duration` begins before `start`; False if the bound is already as high."""
        index = bisect_right(self._durations, duration)
        if index and self._starts[index - 1] >= start:
            return False
        if index and self._durations[index - 1] == duration:
            index -= 1
        dominated = bisect_right(self._starts, start, index)
        self._durations[index:dominated] = [duration]
        self._starts[index:dominated] = [start]
        return True

    def raise_like(self, other: "ShapeBounds") -> None:
        """Take over the bounds of an easier shape."""
        for duration, start in zip(other._durations, other._starts, strict=True):
            self.raise_to(duration, start)


@dataclass(slots=True, eq=False)
class BoundedShape:
    """The bounds of a shape, and its direct successors: harder shapes with no other shape between."""

    fit: Fit
    bounds: ShapeBounds = field(default_factory=ShapeBounds)
    harder: set["BoundedShape"] = field(default_factory=set)


class SearchBounds:
    """The bounds of all shapes that were searched for."""

    def __init__(self) -> None:
        self._shapes: dict[Fit, BoundedShape] = {}

    def at(self, fit: Fit, duration: int) -> int:
        """Return the instant before which no window of a shape begins; 0 if there is no bound."""
        shape = self._shapes.get(fit)
        if shape is None:
            shape = self._register(fit)
        return shape.bounds.at(duration)

    def raise_to(self, fit: Fit, duration: int, start: int) -> None:
        """Record that a shape, and every harder one, has no window before `start`.

        Where a bound is already as high, so are those of all harder shapes: the propagation stops there.
        """
        left = [self._shapes[fit]]
        while left:
            shape = left.pop()
            if shape.bounds.raise_to(duration, start):
                left += shape.harder

    def clear(self) -> None:
        """Drop all bounds: resources were released, so earlier starts are possible again."""
        self._shapes.clear()

    def _register(self, fit: Fit) -> BoundedShape:
        shapes = set(self._shapes.values())
        easier = {shape for shape in shapes if _is_easier(shape.fit, fit)}
        harder = {shape for shape in shapes if _is_easier(fit, shape.fit)}
        for shape in easier & harder:  # equally hard: both share their bounds
            self._shapes[fit] = shape
            return shape
        new = self._shapes[fit] = BoundedShape(fit, harder=harder.difference(*(shape.harder for shape in harder)))
        for shape in easier:
            if easier.isdisjoint(shape.harder):  # no shape is between the two
                shape.harder = shape.harder - harder | {new}
                new.bounds.raise_like(shape.bounds)
        return new


def _is_easier(fit: Fit, other: Fit) -> bool:
    """Return whether a shape surely fits every free set that the other one fits."""
    if not (fit.monotone and other.monotone and fit.demand and other.demand):
        return False
    if fit.of_nodes and not other.of_nodes:  # whole nodes count as the smallest node, so they may need more
        return False
    mine, theirs = fit.demand, other.demand
    return mine.of == theirs.of and all(some <= more for some, more in zip(mine.counts, theirs.counts, strict=True))
