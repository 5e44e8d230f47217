"""Counting free resources of all nodes at once: nodes are fields of equal width inside one big integer.

A field's lowest bit (its *low*) stands for the node. Every operation is a fixed number of operations on whole integers,
however many nodes there are.
"""

from functools import cache
from typing import NamedTuple

from oarlock.model.plan import lowest, positions
from oarlock.plan.sets.layout import ResourceLayout

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
