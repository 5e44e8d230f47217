"""Sets of resources as integers: bit i stands for position i of the layout.

Inner loops use bare `int` (an `and` of 10,000 resources takes a tenth of a microsecond); `ResourceSet` is for display.
Difference is written `x ^ (x & y)`: Python's `~` makes negative numbers, and `&` with one is ten times slower.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock.plan.sets.layout import ResourceLayout


_FEW, _ONE_BY_ONE = 5, 16_000  # up to so many members, or members times width, clearing bits one by one is faster


def without(bits: int, taken: int) -> int:
    """Return the members of `bits` that are not in `taken`."""
    return bits ^ (bits & taken)


def union(sets: Iterable[int]) -> int:
    """Return the members of any of the sets."""
    return reduce(or_, sets, 0)


def lowest(bits: int, count: int) -> int:
    """Return the `count` lowest members; `bits` must have that many.

    A few are taken one by one. For many, a binary search finds the cut between wanted and unwanted members: each step
    counts half of the remaining width, which is about two population counts of the full width in all.
    """
    if count <= _FEW or count * bits.bit_length() < _ONE_BY_ONE:
        left = bits
        for _ in range(count):
            left &= left - 1  # clears the lowest set bit
        return bits ^ left
    rest, wanted, cut, width = bits, count, 0, bits.bit_length()
    while width > 1:
        half = width >> 1
        low = rest & ((1 << half) - 1)
        here = low.bit_count()
        if here >= wanted:
            rest, width = low, half
        else:
            rest, wanted, cut, width = rest >> half, wanted - here, cut + half, width - half
    return bits & ((1 << (cut + 1)) - 1)


@dataclass(frozen=True, slots=True)
class ResourceSet:
    """A set of resources of one layout, with set operators and a short text form."""

    layout: "ResourceLayout"
    bits: int

    def __and__(self, other: "ResourceSet") -> "ResourceSet":
        return ResourceSet(self.layout, self.bits & other.bits)

    def __or__(self, other: "ResourceSet") -> "ResourceSet":
        return ResourceSet(self.layout, self.bits | other.bits)

    def __sub__(self, other: "ResourceSet") -> "ResourceSet":
        return ResourceSet(self.layout, without(self.bits, other.bits))

    def __le__(self, other: "ResourceSet") -> bool:
        return self.bits & other.bits == self.bits

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __iter__(self) -> Iterator[int]:
        """Yield resource ids, in the order in which the scheduler prefers them."""
        return iter(self.layout.ids_of(self.bits))

    def __contains__(self, resource_id: object) -> bool:
        return resource_id in self.layout.ids_of(self.bits)

    def __str__(self) -> str:
        return fold(self.layout.nodes_of(self.bits))


_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Write node names short: `node[1-4,7]`, keeping zeros in front (`n[08-11]`) and what follows the number."""
    numbered: dict[tuple[str, str, int], set[int]] = {}
    plain: dict[str, None] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain[name] = None
            continue
        before, digits, after = match.groups()
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        numbered.setdefault((before, after, width), set()).add(int(digits))
    folded = [_folded(before, after, width, numbers) for (before, after, width), numbers in _joined(numbered).items()]
    return ",".join(folded + list(plain))


def _joined(numbered: dict[tuple[str, str, int], set[int]]) -> dict[tuple[str, str, int], set[int]]:
    """Join `n10` with `n08, n09`: an unpadded number belongs to the padded numbers of the same width."""
    for before, after, width in [key for key in numbered if key[2]]:
        unpadded = numbered.get((before, after, 0), set())
        same_width = {number for number in unpadded if len(str(number)) == width}
        numbered[before, after, width] |= same_width
        unpadded -= same_width
    return {key: numbers for key, numbers in numbered.items() if numbers}


def _folded(before: str, after: str, width: int, numbers: set[int]) -> str:
    pieces: list[str] = []
    ordered = sorted(numbers)
    first = ordered[0]
    for number, following in zip(ordered, [*ordered[1:], None], strict=True):
        if following != number + 1:
            span = f"{first:0{width}d}" if first == number else f"{first:0{width}d}-{number:0{width}d}"
            pieces.append(span)
            first = following if following is not None else first
    if len(ordered) == 1:
        return f"{before}{pieces[0]}{after}"
    return f"{before}[{','.join(pieces)}]{after}"
