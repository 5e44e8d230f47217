"""The layout of resources in an integer: the bit of each resource, and the bits of each node.

Each node gets a field of bits; fields have one width, a power of two, in the order of SCHEDULER_RESOURCE_ORDER. So the
free cores of all nodes can be counted at once, inside one big number. A node with more resources than the width takes
several fields. Resources without a node (licences) follow after all fields. Where the order mixes the resources of
different nodes there are no fields: positions follow the order, and nodes are handled by slower code.

A field's lowest bit (its *low*) stands for the node. Every operation is a fixed number of operations on whole integers,
however many nodes there are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import NamedTuple

from oarlock.model.plan import lowest, positions
from oarlock.model.resource import ResourceOrder, Value
from oarlock.model.snapshot import ResourceTable
from oarlock.model.submission_errors import UnknownProperty

NODE = "network_address"
_PRIORITY = "scheduler_priority"
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
    if _is_mixed(runs) and any(term.column == _PRIORITY for term in order):
        runs = _without_priority(table, order, rows)
    return _plain(table, rows, names) if _is_mixed(runs) else _fields(table, runs)


def _is_mixed(runs: Sequence[tuple[str, list[int]]]) -> bool:
    """Return whether a node has several runs."""
    return len({name for name, _ in runs}) != len(runs)


def _without_priority(
    table: ResourceTable, order: Sequence[ResourceOrder], rows: Sequence[int]
) -> list[tuple[str, list[int]]]:
    """Return runs in which nodes stay together although their resources have several priorities, if that is all.

    Each node stands where its first resource does. The priorities follow the jobs that run, and a pass without fields
    takes several times as long.
    """
    names = table.columns[NODE]
    constant = [term for term in order if term.column != _PRIORITY]
    unmixed = _runs(sorted(preferred_rows(table, constant), key=lambda row: not names[row]), names)
    if _is_mixed(unmixed):
        return unmixed
    by_node: dict[str, list[int]] = {}
    for row in rows:
        by_node.setdefault(str(names[row] or ""), []).append(row)
    return list(by_node.items())


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


_FEW = 6  # nodes: up to so many, joining their sets one by one is faster
_FEW_PARTS = 4  # nodes: up to so many, taking from each node one by one is faster
_BYTE = 8
PLAIN = 2  # up to so many members are counted by clearing lowest bits, which is as fast as a full count
_MARKED = 128  # the widest field whose count fits into seven bits of a byte (the eighth is the mark)
_DIGITS = bytes.maketrans(bytes(range(2)), b"01")


class TakenResources(NamedTuple):
    """Resources that were taken last, and their nodes; `whole` if they are all resources of these nodes."""

    resources: int
    nodes: int
    whole: bool


class NodeFields:
    """The fields of a layout that has them, without wide nodes: field i belongs to node i."""

    def __init__(self, layout: ResourceLayout) -> None:
        self.width = width = layout.width
        self.size = len(layout.nodes)
        self.everything = layout.everything & ((1 << (self.size * width)) - 1)
        self.lows = _repeated(1, width, self.size)
        self._tops = self.lows << (width - 1)
        self._below = self._tops - self.lows  # all of each field but its highest bit
        self._pairs, self._nibbles, self._halves = (_halved(shift, self.size * width) for shift in (1, 2, 4))
        # Up to 128 members a product adds all bytes of a field up in its highest one: none of the sums overflows.
        self._in_bytes = width <= _MARKED
        self._ones = _repeated(1, _BYTE, width // _BYTE)
        self._sums = [(1 << step, _halved(1 << step, self.size * width)) for step in range(3, width.bit_length() - 1)]
        self._mark = width - 1 if self._in_bytes else width.bit_length()
        self._marks = self.lows << self._mark
        self._lifts: dict[int, int] = {}  # by count: added, it lifts exactly the fields with enough members to the mark
        self._bytes = self.size * width // 8
        self._node_bits = [node.bits for node in layout.nodes]
        self._field = (1 << width) - 1
        self._last = TakenResources(0, 0, whole=False)
        self._spread = _spreads(width)

    def nonempty(self, bits: int) -> int:
        """Return the lows of the fields that hold at least one member."""
        return self._nonempty_tops(bits) >> (self.width - 1)

    def _nonempty_tops(self, bits: int) -> int:
        """Return the highest bits of the nonempty fields.

        Adding a field's all-ones below its top carries into the top bit if any lower bit is set; `| bits` covers a set
        top bit. The masked operands cannot overflow into the next field.
        """
        return ((bits & self._below) + self._below | bits) & self._tops

    def at_least(self, bits: int, count: int) -> int:
        """Return a mark in each field that holds `count` members or more; `lows_of` turns marks into lows."""
        if count > self.width:
            return 0
        if count <= PLAIN:
            for _ in range(count - 1):
                bits &= bits - self.nonempty(bits)  # without the lowest member of each field
            return self._nonempty_tops(bits) if self._in_bytes else self.nonempty(bits) << self._mark
        # The parallel population count: sums of 2, 4, then 8 bits, in all fields at once.
        bits -= (bits >> 1) & self._pairs
        bits = (bits & self._nibbles) + ((bits >> 2) & self._nibbles)
        bits = (bits + (bits >> 4)) & self._halves
        if self._in_bytes:
            bits *= self._ones
        else:
            for shift, mask in self._sums:
                bits = (bits & mask) + ((bits >> shift) & mask)
        lift = self._lifts.get(count)
        if lift is None:
            lift = self._lifts[count] = self._lift(count)
        return (bits + lift) & self._marks

    def _lift(self, count: int) -> int:
        if self._in_bytes:
            return ((1 << (_BYTE - 1)) - count << (self.width - _BYTE)) * self.lows
        return ((1 << self._mark) - count) * self.lows

    def lows_of(self, marks: int) -> int:
        """Turn marks into lows."""
        return marks >> self._mark

    def filled(self, lows: int) -> int:
        """Return whole fields for their lows."""
        return (lows << self.width) - lows

    def nodes(self, lows: int) -> int:
        """Turn lows into a set of nodes: bit i for field i."""
        image = lows.to_bytes(self._bytes, "little")[:: self.width // 8]
        return int(image[::-1].translate(_DIGITS), 2)

    def resources(self, nodes: int) -> int:
        """Turn a set of nodes into the set of all their resources."""
        if nodes.bit_count() <= _FEW:
            made, left = 0, nodes
            while left:
                others = left & (left - 1)
                made |= self._node_bits[(left ^ others).bit_length() - 1]
                left = others
        else:
            image = b"".join([self._spread[value] for value in nodes.to_bytes(-(-self.size // 8), "little")])
            made = int.from_bytes(image, "little") & self.everything
        self._last = TakenResources(made, nodes, whole=True)
        return made

    def lowest(self, bits: int, marks: int, fields: int, count: int) -> int:
        """Return the `count` lowest members of each of the first so many `fields` that are marked as having as many."""
        marks = lowest(marks, fields)
        given = (
            self._lowest_node_by_node(bits, marks, count)
            if fields <= _FEW_PARTS
            else self._lowest_at_once(bits, marks, count)
        )
        self._last = given
        return given.resources

    def _lowest_node_by_node(self, bits: int, marks: int, count: int) -> TakenResources:
        taken = nodes = 0
        while marks:
            mark = marks.bit_length() - 1
            marks ^= 1 << mark
            node = mark // self.width
            low = node * self.width
            taken |= lowest(bits >> low & self._field, count) << low
            nodes |= 1 << node
        return TakenResources(taken, nodes, whole=False)

    def _lowest_at_once(self, bits: int, marks: int, count: int) -> TakenResources:
        lows = self.lows_of(marks)
        here = left = bits & self.filled(lows)
        for _ in range(count):
            left &= left - lows  # clears the lowest set bit of every chosen field; each has one left, so no borrow
        return TakenResources(here ^ left, self.nodes(lows), whole=False)

    def touched(self, resources: int) -> int:
        """Return the nodes that a set has a resource of. Mostly the set was just taken, so that result is cached."""
        if resources is self._last.resources:
            return self._last.nodes
        return self.nodes(self.nonempty(resources & self.everything))

    def whole(self, resources: int) -> bool | None:
        """Return whether a set was taken as whole nodes; None if it is not the set that was taken last."""
        return self._last.whole if resources is self._last.resources else None

    def smallest(self, nodes: int) -> int:
        """Return the size of the smallest of these nodes."""
        return min((self._node_bits[index].bit_count() for index in positions(nodes)), default=0)


def _halved(width: int, total: int) -> int:
    """Return alternating runs of `width` ones and zeros."""
    return _repeated((1 << width) - 1, 2 * width, total // (2 * width))


def _repeated(pattern: int, period: int, times: int) -> int:
    """Return a pattern repeated `period` bits apart, by doubling."""
    written, done = pattern, 1
    while done < times:
        more = min(done, times - done)
        written |= (written & ((1 << (more * period)) - 1)) << (done * period)
        done += more
    return written if times else 0


@cache
def _spreads(width: int) -> list[bytes]:
    return [_spread(value, width) for value in range(256)]


def _spread(value: int, width: int) -> bytes:
    return b"".join((b"\xff" if value >> bit & 1 else b"\x00") * (width // 8) for bit in range(8))
