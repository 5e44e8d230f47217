"""The tree of a request, with a memory: what a node offers depends only on which of its resources are free.

The tree is cut where its vertices first lie inside one node each. Below the cut a node's answer is looked up by the
bytes of its field (nodes of the same build share one memory); above it the surviving vertices are counted, a number a
parent. One question differs little from the last one, so only nodes that differ are looked up again. Where no such cut
exists, because values span nodes or nodes have no fields, the tree is walked as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oarlock.model.request import ALL, Level
from oarlock.plan.asks import Asks
from oarlock.plan.fields import Fields
from oarlock.plan.layout import Layout, Node
from oarlock.plan.tree import Vertex, choose, least, survivors, wanted

_REMEMBERED = 20_000  # answers kept for one build of node


@dataclass(slots=True)
class Build:
    """Nodes that look alike to a request: the vertices inside them, from the node's own first bit on."""

    vertices: tuple[Vertex, ...]
    answers: dict[bytes, tuple[int, ...]] = field(default_factory=dict)

    def answer(self, image: bytes) -> tuple[int, ...]:
        """Give what each vertex takes when these resources of the node are free."""
        free = int.from_bytes(image, "little")
        found = tuple(choose(vertex, free) for vertex in self.vertices)
        if len(self.answers) >= _REMEMBERED:
            self.answers.clear()
        self.answers[image] = found
        return found


class Cell(NamedTuple):
    """A node's part in a tree: the bytes of its field, what build it is, and which vertices at the cut are inside."""

    first: int
    last: int
    build: Build
    vertices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Above:
    """A vertex above the cut: its children, or, just above it, the numbers [first, last) of the vertices at the cut.

    `need` is how many of them it takes to survive.
    """

    count: int
    children: tuple["Above", ...]
    first: int
    last: int
    need: int
    mask: int

    def survives(self, alive: int) -> bool:
        """Say whether this one survives, given the set of vertices at the cut that do."""
        if not self.children:
            return (alive & self.mask).bit_count() >= self.need
        return self.survivors(alive, enough=self.need) >= self.need

    def survivors(self, alive: int, *, enough: int | None = None) -> int:
        """Say how many children survive; whoever knows how many are enough need not count on."""
        if not self.children:
            return (alive & self.mask).bit_count()
        have = 0
        for child in self.children:
            if child.survives(alive):
                have += 1
                if have == enough:
                    break
        return have

    def chosen(self, answers: Sequence[int]) -> list[int]:
        """Choose among the vertices at the cut, given what each would take; nothing when this one does not survive."""
        if not self.children:
            survivors = [index for index in range(self.first, self.last) if answers[index]]
            return survivors[: wanted(self.count, len(survivors), self.last - self.first)]
        kept = [chosen for child in self.children if (chosen := child.chosen(answers))]
        keep = wanted(self.count, len(kept), len(self.children))
        return [index for chosen in kept[:keep] for index in chosen]


class Cells:
    """A group's tree, ready to be asked."""

    steady = True
    of_nodes = False

    def __init__(self, layout: Layout, root: Vertex, levels: Sequence[Level], fields: Fields | None = None) -> None:
        self.root = root
        self.asks = _asks(root, levels)
        self.least = least(self.root)
        self._fields = fields
        self._bytes = -(-layout.everything.bit_length() // 8)
        self._cut: list[Vertex] = []
        self._cells: dict[int, Cell] = {}  # by the number of the node
        self._shifts: list[int] = []
        depth = _cut_depth(layout, self.root)
        if depth:
            self._above = self._cut_off(self.root, depth)
            self._make_cells(layout)
        self._asked = 0  # the free set of the last question,
        self._answers = [0] * len(self._cut)  # what each vertex at the cut takes of it,
        self._alive = 0  # and which of them take anything

    def fits(self, free: int) -> bool:
        """Say whether a free set is enough."""
        if not self._cells:
            return choose(self.root, free) != 0
        here = free & self.root.bits
        if here.bit_count() < self.least:
            return False
        self._ask(here)
        return self._above.survives(self._alive)

    def take(self, free: int) -> int:
        """Give the resources taken of a free set; 0 when it does not fit."""
        if not self._cells:
            return choose(self.root, free)
        self._ask(free & self.root.bits)
        total = 0
        for index in self._above.chosen(self._answers):
            total |= self._answers[index] << self._shifts[index]
        return total

    def offers(self, free: int) -> int:
        """Say how many of the outermost units would survive."""
        if not self._cells:
            return survivors(self.root, free)
        self._ask(free & self.root.bits)
        return self._above.survivors(self._alive)

    def _ask(self, free: int) -> None:
        """Bring the answers up to date."""
        if free == self._asked:
            return
        image, answers = free.to_bytes(self._bytes, "little"), self._answers
        for number in self._changed(free ^ self._asked):
            first, last, build, vertices = self._cells[number]
            part = image[first:last]
            known = build.answers.get(part)
            if known is None:
                known = build.answer(part)
            for index, taken in zip(vertices, known, strict=True):
                if (not taken) != (not answers[index]):
                    self._alive ^= 1 << index
                answers[index] = taken
        self._asked = free

    def _changed(self, difference: int) -> Iterable[int]:
        """Give the nodes that a difference touches; all of them where that is not quickly told."""
        return self._cells if self._fields is None else self._fields.numbers(difference)

    def _cut_off(self, vertex: Vertex, depth: int) -> Above:
        """Copy the tree above the cut, and number the vertices at the cut in its order."""
        first = len(self._cut)
        if depth == 1:
            self._cut += vertex.children
            return _above(vertex, (), first, len(self._cut))
        children = tuple(self._cut_off(child, depth - 1) for child in vertex.children)
        return _above(vertex, children, first, len(self._cut))

    def _make_cells(self, layout: Layout) -> None:
        nodes = _node_of_each(layout, self._cut)
        inside: dict[str, tuple[Node, list[int]]] = {}
        for index, node in enumerate(nodes):
            inside.setdefault(node.name, (node, []))[1].append(index)
            self._shifts.append(node.low)
        builds: dict[tuple[Vertex, ...], Build] = {}
        numbers = {node.name: number for number, node in enumerate(layout.nodes)}
        for node, indexes in inside.values():
            local = tuple(_moved(self._cut[index], node.low) for index in indexes)
            build = builds.setdefault(local, Build(local))
            self._cells[numbers[node.name]] = Cell(node.low // 8, node.high // 8, build, tuple(indexes))


def _asks(root: Vertex, levels: Sequence[Level]) -> Asks | None:
    """Say how much is asked for at each level; ALL and BEST are no counts."""
    counts = tuple(level.count for level in levels)
    return Asks((root.bits, *(level.name for level in levels)), counts) if min(counts) > 0 else None


def _above(vertex: Vertex, children: tuple[Above, ...], first: int, last: int) -> Above:
    need = len(vertex.children) if vertex.count == ALL else max(vertex.count, 1)
    return Above(vertex.count, children, first, last, need, ((1 << (last - first)) - 1) << first)


def _cut_depth(layout: Layout, root: Vertex) -> int:
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


def _inside(layout: Layout, vertex: Vertex) -> bool:
    return _node_at(layout, vertex.bits) is not None


def _node_at(layout: Layout, bits: int) -> Node | None:
    """Give the node whose field holds all of a set."""
    low, high = (bits & -bits).bit_length() - 1, bits.bit_length()
    node = layout.node_at(low)
    return node if node is not None and high <= node.high else None


def _node_of_each(layout: Layout, vertices: Sequence[Vertex]) -> list[Node]:
    return [node for vertex in vertices if (node := _node_at(layout, vertex.bits)) is not None]


def _moved(vertex: Vertex, shift: int) -> Vertex:
    return Vertex(vertex.bits >> shift, vertex.count, tuple(_moved(child, shift) for child in vertex.children))
