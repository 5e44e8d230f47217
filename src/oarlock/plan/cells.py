"""The tree of a request, with a memory: what a node offers depends only on which of its resources are free.

The tree is cut where its vertices first lie inside one node each. Below the cut a node's answer is looked up by the
bytes of its field (nodes of the same build share one memory); above it the surviving vertices are counted, a list a
parent. Where no such cut exists, because values span nodes or nodes have no fields, the tree is walked as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oarlock.model.request import Level
from oarlock.plan.layout import Layout, Node
from oarlock.plan.tree import Vertex, choose, grow, least, survivors, wanted

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
    """A vertex above the cut: its children, or, just above it, the numbers [first, last) of the vertices at the cut."""

    count: int
    children: tuple["Above", ...]
    first: int
    last: int

    def chosen(self, answers: Sequence[int]) -> list[int]:
        """Choose among the vertices at the cut, given what each would take; nothing when this one does not survive."""
        if not self.children:
            survivors = [index for index in range(self.first, self.last) if answers[index]]
            return survivors[: wanted(self.count, len(survivors), self.last - self.first)]
        kept = [chosen for child in self.children if (chosen := child.chosen(answers))]
        keep = wanted(self.count, len(kept), len(self.children))
        return [index for chosen in kept[:keep] for index in chosen]

    def survivors(self, answers: Sequence[int]) -> int:
        """Say how many children survive."""
        if not self.children:
            return sum(1 for index in range(self.first, self.last) if answers[index])
        return sum(1 for child in self.children if child.chosen(answers))


class Cells:
    """A group's tree, ready to be asked."""

    steady = True
    of_nodes = False

    def __init__(self, layout: Layout, allowed: int, levels: Sequence[Level]) -> None:
        self.root = grow(layout, allowed, levels)
        self.least = least(self.root)
        self._bytes = -(-layout.everything.bit_length() // 8)
        self._cut: list[Vertex] = []
        self._cells: list[Cell] = []
        self._shifts: list[int] = []
        depth = _cut_depth(layout, self.root)
        if depth:
            self._above = self._cut_off(self.root, depth)
            self._make_cells(layout)

    def fits(self, free: int) -> bool:
        """Say whether a free set is enough."""
        if not self._cells:
            return choose(self.root, free) != 0
        return bool(self._above.chosen(self._answers(free)))

    def take(self, free: int) -> int:
        """Give the resources taken of a free set; 0 when it does not fit."""
        if not self._cells:
            return choose(self.root, free)
        answers = self._answers(free)
        total = 0
        for index in self._above.chosen(answers):
            total |= answers[index] << self._shifts[index]
        return total

    def offers(self, free: int) -> int:
        """Say how many of the outermost units would survive."""
        if not self._cells:
            return survivors(self.root, free)
        return self._above.survivors(self._answers(free))

    def _answers(self, free: int) -> list[int]:
        """Ask every node; the answers stand in the order of the tree's vertices at the cut."""
        image = free.to_bytes(self._bytes, "little")
        answers = [0] * len(self._cut)
        for first, last, build, vertices in self._cells:
            part = image[first:last]
            known = build.answers.get(part)
            if known is None:
                known = build.answer(part)
            for index, taken in zip(vertices, known, strict=True):
                answers[index] = taken
        return answers

    def _cut_off(self, vertex: Vertex, depth: int) -> Above:
        """Copy the tree above the cut, and number the vertices at the cut in its order."""
        first = len(self._cut)
        if depth == 1:
            self._cut += vertex.children
            return Above(vertex.count, (), first, len(self._cut))
        children = tuple(self._cut_off(child, depth - 1) for child in vertex.children)
        return Above(vertex.count, children, first, len(self._cut))

    def _make_cells(self, layout: Layout) -> None:
        nodes = _node_of_each(layout, self._cut)
        inside: dict[str, tuple[Node, list[int]]] = {}
        for index, node in enumerate(nodes):
            inside.setdefault(node.name, (node, []))[1].append(index)
            self._shifts.append(node.low)
        builds: dict[tuple[Vertex, ...], Build] = {}
        for node, indexes in inside.values():
            local = tuple(_moved(self._cut[index], node.low) for index in indexes)
            build = builds.setdefault(local, Build(local))
            self._cells.append(Cell(node.low // 8, node.high // 8, build, tuple(indexes)))


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
