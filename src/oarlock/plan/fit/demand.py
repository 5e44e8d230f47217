"""How much a shape asks for, in numbers that can be compared."""

from collections.abc import Hashable
from typing import NamedTuple


class Demand(NamedTuple):
    """Counts `of` the same resources in the same way. Whoever asks for as much or more in every one of them has no
    place where the other has none."""

    of: Hashable
    counts: tuple[int, ...]
