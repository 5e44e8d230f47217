"""The future of a set of units: a sorted list of instants, and from each one on which units are free.

A unit is a resource, or a whole node; the timeline does not care. Parallel lists of plain integers: the free set from
`times[i]` to `times[i + 1]` is `free[i]`, its size `count[i]`; the last slot lasts for ever. Where somebody takes what
another leaves nothing changes, and two slots become one: what is shorter is searched and changed in less time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from operator import and_, or_
from typing import NamedTuple, Protocol, Self

from msgspec import Struct


class SearchCriterion(Protocol):
    """What is searched for: `fits` says whether a set is enough; fewer than `least` units never are.

    It must be monotone: a set that contains one that fits, fits.
    """

    least: int

    def fits(self, free: int) -> bool: ...


class FreeWindow(Struct, frozen=True, gc=False):
    """A place for a wish: when, and what is free then for the whole duration."""

    start: int
    free: int


class Slots(NamedTuple):
    """Instants, and what is free from each one on."""

    times: list[int]
    free: list[int]


def slots_of_releases(begin: int, free: int, leaving: Iterable[tuple[int, int]]) -> Slots:
    """Return the slots of units that are all free, but for those of people who are there and leave: (when, units).

    One look at each, from the last who leaves back to the first; what two of them share is free when both have left.
    """
    times: list[int] = []
    sets: list[int] = []
    for stop, units in sorted(leaving, reverse=True):
        here = free & units
        if here and stop > begin:
            if not times or times[-1] != stop:
                times.append(stop)
                sets.append(free)
            free ^= here
    return Slots([begin, *times[::-1]], [free, *sets[::-1]])


class Timeline:
    """When which units are free, from an instant on. Units are taken and given back; searching changes nothing."""

    __slots__ = ("count", "free", "times")

    def __init__(self, begin: int, free: int) -> None:
        self.times: list[int] = [begin]
        self.free: list[int] = [free]
        self.count: list[int] = [free.bit_count()]

    @classmethod
    def of(cls, slots: "Slots") -> Self:
        """Build a timeline from existing slots."""
        made = cls.__new__(cls)
        made.times, made.free = slots.times, slots.free
        made.count = [free.bit_count() for free in slots.free]
        return made

    def copy(self) -> "Timeline":
        """Return a timeline that can be changed apart; sets are immutable, so this copies only the lists."""
        duplicate = Timeline.__new__(Timeline)
        duplicate.times, duplicate.free, duplicate.count = self.times[:], self.free[:], self.count[:]
        return duplicate

    def occupy(self, start: int, stop: int, units: int, size: int) -> None:
        """Take units that are all free during [start, stop); `size` is their number."""
        first, last = self._span(start, stop)
        self.free[first:last] = [free ^ units for free in self.free[first:last]]
        self.count[first:last] = [count - size for count in self.count[first:last]]
        self._join(last)
        self._join(first)

    def cover(self, start: int, stop: int, units: int) -> None:
        """Take units during [start, stop), whether they are free there or taken already."""
        inside = self.free[max(self._slot_at(start), 0) : bisect_left(self.times, stop)]
        if not units & reduce(or_, inside, 0):
            return  # nothing changes: do without two more instants
        first, last = self._span(start, stop)
        changed = [free ^ (free & units) for free in self.free[first:last]]
        self.free[first:last] = changed
        self.count[first:last] = [free.bit_count() for free in changed]
        self._join(last)
        self._join(first)

    def release(self, start: int, stop: int, units: int) -> None:
        """Return units back during [start, stop), whether they were taken or not."""
        first, last = self._span(start, stop)
        changed = [free | units for free in self.free[first:last]]
        self.free[first:last] = changed
        self.count[first:last] = [free.bit_count() for free in changed]

    def forget_before(self, now: int) -> None:
        """Drop the past: the timeline begins at `now`."""
        index = self._slot_at(now)
        if index < 0:
            return
        del self.times[:index], self.free[:index], self.count[:index]
        self.times[0] = max(self.times[0], now)

    def during(self, start: int, stop: int) -> int:
        """Return the units that are free all the time in [start, stop); `start` is not before the begin."""
        first = max(self._slot_at(start), 0)
        return self._common(first, bisect_left(self.times, stop, first + 1))

    def earliest(self, criterion: SearchCriterion, duration: int, not_before: int) -> FreeWindow | None:
        """Find the earliest start, and what is free then, at which a wish is fulfilled for `duration`, or None: never.

        Starts are `not_before` and the instants at which something becomes free. The window slides from slot to slot.
        What is free in all of it is kept in two parts, so that a step costs about three `and`s however long it is:
        `back` holds what is free from each slot up to `pivot`, `front` from there on. Most windows need no test, and
        are not even made: they offer nothing that the last one, which failed, did not.
        """
        times, free, count, fits, least = self.times, self.free, self.count, criterion.fits, criterion.least
        index = max(self._slot_at(not_before), 0)
        size, end, pivot, front, failed = len(times), index, index, 0, 0
        back: list[int] = []
        while index < size:
            start = times[index] if times[index] > not_before else not_before
            reach = bisect_left(times, start + duration, end if end > index else index + 1)
            if reach > end:
                if min(count[end:reach]) < least:  # no window that contains this slot will do
                    index = end = pivot = self._last_short(least, reach) + 1
                    continue
                if index < pivot:
                    more = free[end] if reach == end + 1 else reduce(and_, free[end:reach])
                    front = front & more if end > pivot else more
                end = reach
            if index >= pivot:
                back, pivot = list(accumulate(free[index:end][::-1], and_)), end
            window = back[pivot - 1 - index] & front if end > pivot else back[pivot - 1 - index]
            if window & failed != window:
                if fits(window):
                    return FreeWindow(start, window)
                failed = window
            index += 1
            while index < pivot:
                left = back[pivot - 1 - index]
                if left != back[pivot - index]:  # otherwise the slot that is left behind was in nobody's way
                    offered = left & front if end > pivot else left
                    if offered & failed != offered:
                        break
                index += 1
        return None

    def _slot_at(self, instant: int) -> int:
        return bisect_right(self.times, instant) - 1

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """Split slots at both ends and return the slots between them; the part before the begin is cut off."""
        first = self._cut(max(start, self.times[0]))
        last = self._cut(stop) if stop > self.times[0] else first
        return first, max(first, last)

    def _cut(self, instant: int) -> int:
        index = bisect_left(self.times, instant)
        if index == len(self.times) or self.times[index] != instant:
            self.times.insert(index, instant)
            self.free.insert(index, self.free[index - 1])
            self.count.insert(index, self.count[index - 1])
        return index

    def _join(self, index: int) -> None:
        """Join two neighbouring slots that have the same free set."""
        if index and self.free[index] == self.free[index - 1]:
            del self.times[index], self.free[index], self.count[index]

    def _last_short(self, least: int, end: int) -> int:
        """Return the last slot before `end` that has too few units; there is one."""
        index = end - 1
        while self.count[index] >= least:
            index -= 1
        return index

    def _common(self, first: int, last: int) -> int:
        return self.free[first] if last == first + 1 else reduce(and_, self.free[first:last])


class TimelineView(Protocol):
    """A timeline of any make, as people see it."""

    @property
    def times(self) -> list[int]: ...

    @property
    def free(self) -> list[int]: ...


class FreeFromNow:
    """What stays free from the begin of a timeline on, up to any instant: one pass, then a look-up each."""

    def __init__(self, timeline: TimelineView) -> None:
        self.times = timeline.times[:]
        self.free: list[int] = list(accumulate(timeline.free, and_))

    def until(self, stop: int) -> int:
        """Return the units that are free from the begin up to `stop`."""
        return self.free[max(bisect_left(self.times, stop) - 1, 0)]

    def longest(self, criterion: SearchCriterion) -> int | None:
        """Return the instant up to which a wish is fulfilled from the begin on; None: for ever."""
        low, high = 0, len(self.times)
        while low < high:
            middle = (low + high) // 2
            if criterion.fits(self.free[middle]):
                low = middle + 1
            else:
                high = middle
        return self.times[low] if low < len(self.times) else None


def slots(timeline: TimelineView) -> Sequence[tuple[int, int | None, int]]:
    """Return the timeline as (begin, end, free set) for people and tests; the last one ends at None."""
    ends: list[int | None] = [*timeline.times[1:], None]
    return list(zip(timeline.times, ends, timeline.free, strict=True))
