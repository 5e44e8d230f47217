"""The resource hierarchy of a request group as a tree of sets, and the choice of resources in it, cached per node.

A vertex is a value of a level below the value of the level above; its children come in resource order. A vertex
survives when enough of its children do: `n` of them, ALL that there were before anything was taken, or at least one
(BEST). It then keeps its first n, or all of them.

Walking the whole tree is the reference algorithm, correct for every request. `TreeFit` is faster, because what is
chosen in a node depends only on its free resources: the tree is cut at the first depth where each vertex lies inside
one node. Below the cut, the choice in a node is looked up by the free part of its field (nodes of the same build share
one cache); above it, surviving vertices are counted. One free set differs from the last one mostly in a node or two, so
only nodes that differ are looked up again. Where no such cut exists, because values span nodes or nodes have no fields,
the whole tree is walked.
"""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oarlock.model.plan import lowest, positions, union
from oarlock.model.resource import Value
from oarlock.model.submission import ALL, BEST, BESTHALF, Level
from oarlock.plan.sets.layout import NodeResources, ResourceLayout, bits_at


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


_REMEMBERED = 20_000  # cached choices of one build


@dataclass(slots=True)
class NodeBuild:
    """Nodes that are alike to a request: the vertices inside them, shifted to the node's first bit."""

    vertices: tuple[Vertex, ...]
    choices: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def choose_each(self, free: int) -> tuple[int, ...]:
        """Return what each vertex takes when these resources of the node are free."""
        choices = tuple([choose(vertex, free) for vertex in self.vertices])
        if len(self.choices) >= _REMEMBERED:
            self.choices.clear()
        self.choices[free] = choices
        return choices


class NodeInTree(NamedTuple):
    """A node's part in a tree: where its field begins, what build it is, and which vertices at the cut are inside."""

    low: int
    build: NodeBuild
    vertices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UpperVertex:
    """A vertex above the cut: its children, or, just above it, the numbers [first, last) of the vertices at the cut.

    `need` is how many of them it takes to survive, `mask` all vertices at the cut below it.
    """

    count: int
    children: tuple["UpperVertex", ...]
    first: int
    last: int
    need: int
    mask: int

    def survives(self, alive: int) -> bool:
        """Return whether this one survives, given the set of vertices at the cut that do."""
        if (alive & self.mask).bit_count() < self.need:
            return False
        return not self.children or self.survivors(alive, enough=self.need) >= self.need

    def survivors(self, alive: int, *, enough: int | None = None) -> int:
        """Return how many children survive; counting stops at `enough`."""
        if not self.children:
            return (alive & self.mask).bit_count()
        have = 0
        for child in self.children:
            # Most children fail this count, so the call is avoided for them.
            if (alive & child.mask).bit_count() >= child.need and (not child.children or child.survives(alive)):
                have += 1
                if have == enough:
                    break
        return have

    def chosen(self, alive: int) -> list[int]:
        """Choose among the vertices at the cut that survive; nothing when this one does not."""
        if not self.children:
            survivors = positions(alive & self.mask)
            return survivors[: count_kept(self.count, len(survivors), self.last - self.first)]
        kept: list[list[int]] = []
        for child in self.children:
            if (alive & child.mask).bit_count() >= child.need and (chosen := child.chosen(alive)):
                kept.append(chosen)
                if len(kept) == self.count:
                    break
        keep = count_kept(self.count, len(kept), len(self.children))
        return [index for chosen in kept[:keep] for index in chosen]


class TreeFit:
    """The fit of a group that needs its tree, with cached choices per node."""

    monotone = True
    of_nodes = False

    def __init__(self, layout: ResourceLayout, root: Vertex, levels: Sequence[Level]) -> None:
        self.root = root
        self.demand = _demand(root, levels)
        self.least = minimum_size(self.root)
        self._cut: list[Vertex] = []
        self._nodes: list[NodeInTree] = []  # in the order of their fields
        self._shifts: list[int] = []
        depth = _cut_depth(layout, self.root)
        if depth:
            self._upper = self._cut_off(self.root, depth)
            self._make_nodes(layout)
        self._lows = [node.low for node in self._nodes]
        self._last_free = 0  # the free set of the last call,
        self._parts = [0] * len(self._nodes)  # the part of each node in it,
        self._choices = [0] * len(self._cut)  # what each vertex at the cut takes of it,
        self._alive = 0  # and which of them take anything

    def fits(self, free: int) -> bool:
        """Return whether a free set is enough."""
        if not self._nodes:
            return choose(self.root, free) != 0
        here = free & self.root.bits
        if here.bit_count() < self.least:
            return False
        self._update(here)
        return self._upper.survives(self._alive)

    def take(self, free: int) -> int:
        """Return the resources taken of a free set; 0 when it does not fit."""
        if not self._nodes:
            return choose(self.root, free)
        self._update(free & self.root.bits)
        total = 0
        for index in self._upper.chosen(self._alive):
            total |= self._choices[index] << self._shifts[index]
        return total

    def offers(self, free: int) -> int:
        """Return how many of the outermost units would survive."""
        if not self._nodes:
            return survivors(self.root, free)
        self._update(free & self.root.bits)
        return self._upper.survivors(self._alive)

    def _update(self, free: int) -> None:
        """Update the cached choices for a free set, node by node from the highest bit that differs to the lowest."""
        choices, parts, difference = self._choices, self._parts, free ^ self._last_free
        while difference:
            number = bisect_right(self._lows, difference.bit_length() - 1) - 1
            low, build, vertices = self._nodes[number]
            changed = difference >> low
            difference ^= changed << low
            part = parts[number] = parts[number] ^ changed
            cached = build.choices.get(part)
            if cached is None:
                cached = build.choose_each(part)
            for index, taken in zip(vertices, cached, strict=True):
                if (not taken) != (not choices[index]):
                    self._alive ^= 1 << index
                choices[index] = taken
        self._last_free = free

    def _cut_off(self, vertex: Vertex, depth: int) -> UpperVertex:
        """Copy the tree above the cut, and number the vertices at the cut in its order."""
        first = len(self._cut)
        if depth == 1:
            self._cut += vertex.children
            return _upper(vertex, (), first, len(self._cut))
        children = tuple(self._cut_off(child, depth - 1) for child in vertex.children)
        return _upper(vertex, children, first, len(self._cut))

    def _make_nodes(self, layout: ResourceLayout) -> None:
        nodes = _node_of_each(layout, self._cut)
        inside: dict[str, tuple[NodeResources, list[int]]] = {}
        for index, node in enumerate(nodes):
            inside.setdefault(node.name, (node, []))[1].append(index)
            self._shifts.append(node.low)
        builds: dict[tuple[Vertex, ...], NodeBuild] = {}
        for node, indexes in sorted(inside.values(), key=lambda pair: pair[0].low):
            local = tuple([_shifted(self._cut[index], node.low) for index in indexes])
            build = builds.setdefault(local, NodeBuild(local))
            self._nodes.append(NodeInTree(node.low, build, tuple(indexes)))


def _demand(root: Vertex, levels: Sequence[Level]) -> Demand | None:
    """Return the requested count of each level; None for ALL and BEST."""
    counts = tuple(level.count for level in levels)
    return Demand((root.bits, *(level.name for level in levels)), counts) if min(counts) > 0 else None


def _upper(vertex: Vertex, children: tuple[UpperVertex, ...], first: int, last: int) -> UpperVertex:
    need = len(vertex.children) if vertex.count == ALL else max(vertex.count, 1)
    return UpperVertex(vertex.count, children, first, last, need, ((1 << (last - first)) - 1) << first)


def _cut_depth(layout: ResourceLayout, root: Vertex) -> int:
    """Find the first depth below the root at which every vertex lies inside one node; 0 if there is none."""
    if not layout.width or not root.children:
        return 0
    depth, vertices = 1, list(root.children)
    while True:
        if all(_inside(layout, vertex) for vertex in vertices):
            return depth
        if not vertices[0].children:
            return 0
        depth, vertices = depth + 1, [child for vertex in vertices for child in vertex.children]


def _inside(layout: ResourceLayout, vertex: Vertex) -> bool:
    return _node_at(layout, vertex.bits) is not None


def _node_at(layout: ResourceLayout, bits: int) -> NodeResources | None:
    """Return the node whose field holds all of a set."""
    low, high = (bits & -bits).bit_length() - 1, bits.bit_length()
    node = layout.node_at(low)
    return node if node is not None and high <= node.high else None


def _node_of_each(layout: ResourceLayout, vertices: Sequence[Vertex]) -> list[NodeResources]:
    return [node for vertex in vertices if (node := _node_at(layout, vertex.bits)) is not None]


def _shifted(vertex: Vertex, shift: int) -> Vertex:
    return Vertex(vertex.bits >> shift, vertex.count, tuple(_shifted(child, shift) for child in vertex.children))
