"""A timeline: the free units of a cluster over time, as slots.

A unit is a resource or a whole node. Slots are parallel lists of plain integers: the free set from `times[i]` to
`times[i + 1]` is `free[i]`, its size `count[i]`; the last slot lasts for ever. Neighbouring slots with equal sets are
joined: a shorter timeline is faster to search and to change.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from operator import and_, or_
from typing import NamedTuple, Protocol, Self

from msgspec import Struct


class SearchCriterion(Protocol):
    """What a search looks for: `fits` decides about a free set; fewer than `least` units never fit.

    It must be monotone: every superset of a set that fits, fits.
    """

    least: int

    def fits(self, free: int) -> bool: ...


class FreeWindow(Struct, frozen=True, gc=False):
    """The result of a search: the start, and the units that are free for the whole duration."""

    start: int
    free: int


class Slots(NamedTuple):
    """The begins of slots, and their free sets."""

    times: list[int]
    free: list[int]


def slots_of_releases(begin: int, free: int, leaving: Iterable[tuple[int, int]]) -> Slots:
    """Return the slots of units that are all free except for running occupations, given as (end, units).

    One pass from the last end back to the first; units of several occupations are free when the last of these ends.
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
    """Free units over time, from an instant on. Units are taken and released; a search changes nothing."""

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
        """Return an independent copy; sets are immutable integers, so only the lists are copied."""
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
            return  # nothing changes, and two more slots would only cost time
        first, last = self._span(start, stop)
        changed = [free ^ (free & units) for free in self.free[first:last]]
        self.free[first:last] = changed
        self.count[first:last] = [free.bit_count() for free in changed]
        self._join(last)
        self._join(first)

    def release(self, start: int, stop: int, units: int) -> None:
        """Release units during [start, stop), whether they were taken or not."""
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
        """Return the earliest window of `duration` that meets a criterion, or None if there is none.

        Candidate starts are `not_before` and the instants at which units become free. The window slides from slot to
        slot. Its free set is the intersection of its slots, kept in two parts so that a step costs about three `&`
        however long the window is: `back` holds the intersection from each slot up to `pivot`, `front` from there on.
        Most windows are not tested, and not even computed: their free set is contained in that of the last failed one.
        """
        times, free, count, fits, least = self.times, self.free, self.count, criterion.fits, criterion.least
        index = max(self._slot_at(not_before), 0)
        size, end, pivot, front, failed = len(times), index, index, 0, 0
        back: list[int] = []
        while index < size:
            start = times[index] if times[index] > not_before else not_before
            reach = bisect_left(times, start + duration, end if end > index else index + 1)
            if reach > end:
                if min(count[end:reach]) < least:  # every window that contains this slot fails
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
                if left != back[pivot - index]:  # otherwise removing the slot does not enlarge the free set
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
    """What both kinds of timelines have in common."""

    @property
    def times(self) -> list[int]: ...

    @property
    def free(self) -> list[int]: ...


class FreeFromNow:
    """The units that stay free from the begin of a timeline up to any instant: computed once, then looked up."""

    def __init__(self, timeline: TimelineView) -> None:
        self.times = timeline.times[:]
        self.free: list[int] = list(accumulate(timeline.free, and_))

    def until(self, stop: int) -> int:
        """Return the units that are free from the begin up to `stop`."""
        return self.free[max(bisect_left(self.times, stop) - 1, 0)]

    def longest(self, criterion: SearchCriterion) -> int | None:
        """Return the instant up to which a criterion is met from the begin on; None: for ever."""
        low, high = 0, len(self.times)
        while low < high:
            middle = (low + high) // 2
            if criterion.fits(self.free[middle]):
                low = middle + 1
            else:
                high = middle
        return self.times[low] if low < len(self.times) else None


def slots(timeline: TimelineView) -> Sequence[tuple[int, int | None, int]]:
    """Return the slots as (begin, end, free set); the last one ends at None."""
    ends: list[int | None] = [*timeline.times[1:], None]
    return list(zip(timeline.times, ends, timeline.free, strict=True))
