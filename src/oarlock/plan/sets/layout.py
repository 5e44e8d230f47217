"""The layout of resources in an integer: the bit of each resource, and the bits of each node.

Each node gets a field of bits; fields have one width, a power of two, in the order of SCHEDULER_RESOURCE_ORDER. So the
free cores of all nodes can be counted at once, inside one big number. A node with more resources than the width takes
several fields. Resources without a node (licences) follow after all fields. Where the order mixes the resources of
different nodes there are no fields: positions follow the order, and nodes are handled by slower code.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from oarlock.model.plan import positions
from oarlock.model.resource import ResourceOrder, Value
from oarlock.model.snapshot import ResourceTable
from oarlock.model.submission_errors import UnknownProperty

NODE = "network_address"
_EMPTY = 4  # fields may have that many times more bits than resources, so that every node fits into one field
_USUAL = 0.9  # otherwise this share of the nodes must fit into one field


@dataclass(frozen=True, slots=True)
class NodeResources:
    """A node: its name, its resources, and its field, the bits [low, high)."""

    name: str
    bits: int
    low: int
    high: int


@dataclass(slots=True)
class ResourceLayout:
    """The positions of all resources. `width` is that of a field, 0 where nodes have none."""

    table: ResourceTable
    rows: list[int]  # table rows, in preferred order
    place: list[int]  # the position of each, in the same order
    width: int
    nodes: tuple[NodeResources, ...]
    everything: int = 0
    ids: tuple[int, ...] = ()  # the resource at each position; 0 where there is none
    _row_at: dict[int, int] = field(default_factory=dict)
    _position: dict[int, int] = field(default_factory=dict)
    _by_value: dict[str, dict[Value, int]] = field(default_factory=dict)
    _unset: dict[str, int] = field(default_factory=dict)
    _lows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = self.table.ids
        self._row_at = dict(zip(self.place, self.rows, strict=True))
        self._position = {ids[row]: at for at, row in self._row_at.items()}
        self.ids = tuple([ids[row] if (row := self._row_at.get(at)) is not None else 0 for at in range(self._end)])
        self.everything = bits_at(self.place)
        self._lows = [node.low for node in self.nodes]

    @property
    def _end(self) -> int:
        return max(self.place, default=-1) + 1

    def bits_of(self, ids: Iterable[int]) -> int:
        """Return the set of these resources; ids that are not (or no longer) here are left out."""
        at_each = (self._position.get(resource) for resource in ids)
        return bits_at([at for at in at_each if at is not None])

    def ids_of(self, bits: int) -> tuple[int, ...]:
        """Return the resource ids of a set, in preferred order."""
        return tuple([self.ids[at] for at in positions(bits)])

    def rows_of(self, bits: int) -> list[int]:
        """Return the table rows of a set, in preferred order."""
        return [self._row_at[at] for at in positions(bits)]

    def nodes_of(self, bits: int) -> list[str]:
        """Return the names of the nodes that a set touches, in preferred order."""
        return [node.name for node in self.nodes if node.bits & bits]

    def node_at(self, position: int) -> NodeResources | None:
        """Return the node whose field a position is in; None where there are no fields, or behind them."""
        index = bisect_right(self._lows, position) - 1
        node = self.nodes[index] if self.width and index >= 0 else None
        return node if node is not None and position < node.high else None

    def column(self, name: str) -> Sequence[Value]:
        """Return a property of all resources, by table row. `UnknownProperty` where there is none of that name."""
        column = self.table.ids if name == "resource_id" else self.table.columns.get(name)
        if column is None:
            raise UnknownProperty(f"There is no property `{name}`.", hint="`oarproperty -l` lists the properties.")
        return column

    def by_value(self, name: str) -> dict[Value, int]:
        """Return the set of resources of each value of a property, in order of first appearance; made once."""
        cached = self._by_value.get(name)
        if cached is None:
            cached = self._by_value[name] = self._group_by_value(self.column(name))
        return cached

    def _group_by_value(self, column: Sequence[Value]) -> dict[Value, int]:
        if len(set(column)) == 1:  # all resources have the same value
            return {column[0]: self.everything}
        positions_by_value: dict[Value, list[int]] = {}
        for row, at in zip(self.rows, self.place, strict=True):
            positions_by_value.setdefault(column[row], []).append(at)
        return {value: bits_at(places) for value, places in positions_by_value.items()}

    def unset(self, name: str) -> int:
        """Return the resources without a value. An empty node name counts as none: licences may have an empty text."""
        cached = self._unset.get(name)
        if cached is None:
            column, nothing = self.column(name), {None, ""} if name == NODE else {None}
            some = not nothing.isdisjoint(column)
            places = (
                [at for row, at in zip(self.rows, self.place, strict=True) if column[row] in nothing] if some else []
            )
            cached = self._unset[name] = bits_at(places)
        return cached


def bits_at(places: Sequence[int]) -> int:
    """Return the set with these positions; one write per byte instead of one big `|` per member."""
    if not places:
        return 0
    image = bytearray(max(places) // 8 + 1)
    for at in places:
        image[at >> 3] |= 1 << (at & 7)
    return int.from_bytes(image, "little")


def make_layout(table: ResourceTable, order: Sequence[ResourceOrder]) -> ResourceLayout:
    """Assign a position to every resource."""
    names = table.columns.get(NODE, (None,) * len(table.ids))
    rows = sorted(preferred_rows(table, order), key=lambda row: not names[row])
    runs = _runs(rows, names)
    if len({name for name, _ in runs}) != len(runs):
        return _plain(table, rows, names)
    return _fields(table, runs)


def _runs(rows: Sequence[int], names: Sequence[Value]) -> list[tuple[str, list[int]]]:
    """Cut the order into runs of one node each; resources without a node are the last one, under no name."""
    return [(name, list(run)) for name, run in groupby(rows, key=lambda row: str(names[row] or ""))]


def _fields(table: ResourceTable, runs: Sequence[tuple[str, list[int]]]) -> ResourceLayout:
    width = _field_width(sorted(len(members) for name, members in runs if name))
    rows: list[int] = []
    place: list[int] = []
    nodes: list[NodeResources] = []
    low = 0
    for name, run in runs:
        high = low + -(-len(run) // width) * width
        rows += run
        place += range(low, low + len(run))
        if name:
            nodes.append(NodeResources(name, ((1 << len(run)) - 1) << low, low, high))
        low = high
    return ResourceLayout(table, rows, place, width, tuple(nodes))


def _field_width(sizes: Sequence[int]) -> int:
    """Choose a power of two: one that holds every node if fields are not too empty then, else nearly every node."""
    if not sizes:
        return _power(1)
    widest = _power(sizes[-1])
    return widest if widest * len(sizes) <= _EMPTY * sum(sizes) else _power(sizes[int((len(sizes) - 1) * _USUAL)])


def _power(size: int) -> int:
    """Return the smallest power of two that is at least `size`, and at least 8: fields are whole bytes."""
    return max(8, 1 << (size - 1).bit_length())


def _plain(table: ResourceTable, rows: list[int], names: Sequence[Value]) -> ResourceLayout:
    positions_by_node: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        if names[row]:
            positions_by_node.setdefault(str(names[row]), []).append(at)
    nodes = tuple(NodeResources(name, bits_at(places), 0, 0) for name, places in positions_by_node.items())
    return ResourceLayout(table, rows, list(range(len(rows))), 0, nodes)


def preferred_rows(table: ResourceTable, order: Sequence[ResourceOrder]) -> list[int]:
    """Return the row numbers of a table in an order; ties go to the lower resource id, missing values are last."""
    rows = sorted(range(len(table.ids)), key=table.ids.__getitem__)
    for term in reversed(order):
        if term.column == "resource_id":
            rows.sort(key=table.ids.__getitem__, reverse=term.descending)
            continue
        column = table.columns.get(term.column)
        if column is None:
            raise UnknownProperty(
                f"The resource order names `{term.column}`, which is not a property of resources.",
                hint="`oarproperty -l` lists the properties.",
            )
        _sort_by(rows, column, descending=term.descending)
    return rows


def _sort_by(rows: list[int], column: Sequence[Value], *, descending: bool) -> None:
    """Sort stably by one column. Numbers come before texts, nothing after both, in either direction."""
    values = set(column)
    if len(values) == 1:  # most columns of most sites
        return
    ranked = [*sorted(values - {None}, key=_rank, reverse=descending), None]
    place = {value: at for at, value in enumerate(ranked)}
    rows.sort(key=lambda row: place[column[row]])


def _rank(value: Value) -> tuple[bool, int, str]:
    return (True, 0, value) if isinstance(value, str) else (False, value or 0, "")
