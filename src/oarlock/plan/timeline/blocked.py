"""A timeline for very wide sets, where each operation on a set is expensive: slots are grouped into blocks.

Same results as `timeline.Timeline`. A block stores what is free in all of its slots (`common`), and what was taken from
all of them (`taken`) once instead of once per slot: a long occupation changes one set per block, and a long window is
the intersection of a few blocks' sets and of the slots at its two ends.
"""

from bisect import bisect_left, bisect_right
from functools import reduce
from itertools import accumulate, chain
from operator import and_
from typing import Self

from oarlock.model.plan import without
from oarlock.plan.timeline.timeline import FreeWindow, SearchCriterion, Slots


class SlotBlock:
    """Consecutive slots. The free set of a slot is its entry of `sets` without `taken`, which every entry contains."""

    __slots__ = ("common", "counts", "fewest", "sets", "taken", "taken_size", "times")

    def __init__(self, times: list[int], sets: list[int], counts: list[int]) -> None:
        self.times, self.sets, self.counts = times, sets, counts
        self.taken = self.taken_size = 0
        self.sum_up()

    def copy(self) -> "SlotBlock":
        """Return an independent copy."""
        duplicate = SlotBlock.__new__(SlotBlock)
        duplicate.times, duplicate.sets, duplicate.counts = self.times[:], self.sets[:], self.counts[:]
        duplicate.taken, duplicate.taken_size, duplicate.common, duplicate.fewest = (
            self.taken,
            self.taken_size,
            self.common,
            self.fewest,
        )
        return duplicate

    def sum_up(self) -> None:
        """Recompute what is free in all slots, and the smallest count of free units."""
        self.common = reduce(and_, self.sets) ^ self.taken
        self.fewest = min(self.counts) - self.taken_size

    def write_out(self) -> None:
        """Apply `taken` to each slot's own set, and clear it."""
        if self.taken:
            self.sets = [units ^ self.taken for units in self.sets]
            self.counts = [count - self.taken_size for count in self.counts]
            self.taken = self.taken_size = 0

    def halves(self) -> "tuple[SlotBlock, SlotBlock]":
        """Cut the block in two."""
        self.write_out()
        half = len(self.times) // 2
        return (
            SlotBlock(self.times[:half], self.sets[:half], self.counts[:half]),
            SlotBlock(self.times[half:], self.sets[half:], self.counts[half:]),
        )

    def is_all(self, first: int, last: int) -> bool:
        """Return whether [first, last) are all slots of the block."""
        return first == 0 and last == len(self.times)

    def during(self, first: int, last: int) -> int:
        """Return the units that are free in all of these slots."""
        return self.common if self.is_all(first, last) else reduce(and_, self.sets[first:last]) ^ self.taken

    def occupy(self, first: int, last: int, units: int, size: int) -> None:
        """Take units that are free in all of these slots."""
        if self.is_all(first, last):
            self.taken, self.taken_size = self.taken ^ units, self.taken_size + size
            self.common, self.fewest = self.common ^ units, self.fewest - size
        else:
            self.sets[first:last] = [free ^ units for free in self.sets[first:last]]
            self.counts[first:last] = counts = [count - size for count in self.counts[first:last]]
            self.common = without(self.common, units)
            self.fewest = min(self.fewest, min(counts) - self.taken_size)

    def change(self, first: int, last: int, units: int, *, free: bool) -> None:
        """Mark units as free or as taken, whatever they were before."""
        self.write_out()
        if free:
            changed = [slot_set | units for slot_set in self.sets[first:last]]
        else:
            changed = [without(slot_set, units) for slot_set in self.sets[first:last]]
        self.sets[first:last] = changed
        self.counts[first:last] = [slot_set.bit_count() for slot_set in changed]
        self.sum_up()

    def last_short(self, least: int, first: int, last: int) -> int:
        """Return the last of these slots that has too few units; -1 if all have enough."""
        if self.is_all(first, last) and self.fewest >= least:
            return -1
        least += self.taken_size
        return next((slot for slot in range(last - 1, first - 1, -1) if self.counts[slot] < least), -1)


class BlockedTimeline:
    """Free units over time, from an instant on. Units are taken and released; a search changes nothing."""

    __slots__ = ("blocks", "starts")
    full = 48  # a block with more slots is split; about twice the square root of the slots in a long window

    def __init__(self, begin: int, free: int) -> None:
        self.starts: list[int] = [begin]  # of the blocks
        self.blocks: list[SlotBlock] = [SlotBlock([begin], [free], [free.bit_count()])]

    @classmethod
    def of(cls, slots: Slots) -> Self:
        """Build a timeline from existing slots."""
        made = cls.__new__(cls)
        counts = [free.bit_count() for free in slots.free]
        parts = [slice(first, first + cls.full // 2) for first in range(0, len(counts), cls.full // 2)]
        made.blocks = [SlotBlock(slots.times[part], slots.free[part], counts[part]) for part in parts]
        made.starts = [block.times[0] for block in made.blocks]
        return made

    @property
    def times(self) -> list[int]:
        """The instants at which slots begin."""
        return list(chain.from_iterable(block.times for block in self.blocks))

    @property
    def free(self) -> list[int]:
        """The free set of each slot."""
        return [units ^ block.taken for block in self.blocks for units in block.sets]

    @property
    def count(self) -> list[int]:
        """The number of free units of each slot."""
        return [count - block.taken_size for block in self.blocks for count in block.counts]

    def copy(self) -> Self:
        """Return an independent copy."""
        duplicate = type(self).__new__(type(self))
        duplicate.starts, duplicate.blocks = self.starts[:], [block.copy() for block in self.blocks]
        return duplicate

    def occupy(self, start: int, stop: int, units: int, size: int) -> None:
        """Take units that are all free during [start, stop); `size` is their number."""
        for block, first, last in self._span(start, stop):
            block.occupy(first, last, units, size)

    def cover(self, start: int, stop: int, units: int) -> None:
        """Take units during [start, stop), whether they are free there or taken already."""
        if self._has_some(start, stop, units):  # otherwise nothing changes, and two more slots would only cost time
            for block, first, last in self._span(start, stop):
                block.change(first, last, units, free=False)

    def release(self, start: int, stop: int, units: int) -> None:
        """Release units during [start, stop), whether they were taken or not."""
        for block, first, last in self._span(start, stop):
            block.change(first, last, units, free=True)

    def forget_before(self, now: int) -> None:
        """Drop the past: the timeline begins at `now`."""
        if now < self.starts[0]:
            return
        at, slot = self._place(now)
        del self.starts[:at], self.blocks[:at]
        block = self.blocks[0]
        del block.times[:slot], block.sets[:slot], block.counts[:slot]
        block.times[0] = self.starts[0] = max(block.times[0], now)
        block.sum_up()

    def during(self, start: int, stop: int) -> int:
        """Return the units that are free all the time in [start, stop); `start` is not before the begin."""
        window = SlidingWindow(self, *self._place(start))
        window.reach(stop, 0)
        return window.free()

    def earliest(self, criterion: SearchCriterion, duration: int, not_before: int) -> FreeWindow | None:
        """Return the earliest window of `duration` that meets a criterion, or None if there is none.

        Candidate starts are `not_before` and the instants at which units become free. A window whose free set is
        contained in that of the last failed window is not tested: the criterion is monotone.
        """
        window, fits, least, failed = SlidingWindow(self, *self._place(not_before)), criterion.fits, criterion.least, 0
        while window.at < len(self.blocks):
            start = max(self.blocks[window.at].times[window.slot], not_before)
            short = window.reach(start + duration, least)
            if short is not None:  # every window that contains this slot fails
                window = SlidingWindow(self, *short)
                window.step()
                continue
            free = window.free()
            if free & failed != free:
                if fits(free):
                    return FreeWindow(start, free)
                failed = free
            window.step()
        return None

    def _place(self, instant: int) -> tuple[int, int]:
        """Return the block and slot that contain an instant; the very first ones for an earlier instant."""
        at = max(bisect_right(self.starts, instant) - 1, 0)
        return at, max(bisect_right(self.blocks[at].times, instant) - 1, 0)

    def _has_some(self, start: int, stop: int, units: int) -> bool:
        """Return whether some of the units are free at some instant of [start, stop)."""
        (at, first), last_at = self._place(start), bisect_left(self.starts, stop) - 1
        for number in range(at, last_at + 1):
            block = self.blocks[number]
            last = bisect_left(block.times, stop) if number == last_at else len(block.times)
            if any(slot_set & units & block.taken != slot_set & units for slot_set in block.sets[first:last]):
                return True
            first = 0
        return False

    def _span(self, start: int, stop: int) -> list[tuple[SlotBlock, int, int]]:
        """Split slots at both ends and return the slots between them; the part before the begin is cut off."""
        start = max(start, self.starts[0])
        if stop <= start:
            return []
        self._cut(start)
        self._cut(stop)
        at, last_at = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop) - 1
        blocks = self.blocks[at : last_at + 1]
        firsts = [bisect_left(blocks[0].times, start)] + [0] * (last_at - at)
        lasts = [len(block.times) for block in blocks]
        lasts[-1] = bisect_left(blocks[-1].times, stop)
        return list(zip(blocks, firsts, lasts, strict=True))

    def _cut(self, instant: int) -> None:
        at = bisect_right(self.starts, instant) - 1
        block = self.blocks[at]
        slot = bisect_left(block.times, instant)
        if slot < len(block.times) and block.times[slot] == instant:
            return
        block.times.insert(slot, instant)
        block.sets.insert(slot, block.sets[slot - 1])
        block.counts.insert(slot, block.counts[slot - 1])
        if len(block.times) > self.full:
            self.blocks[at : at + 1] = halves = block.halves()
            self.starts[at : at + 1] = [half.times[0] for half in halves]


class SlidingWindow:
    """A window that slides over a timeline: from a slot of block `at` up to, not including, slot `end` of `end_at`.

    Its free set is kept in two parts: `back` has what is free from each slot of the first block up to the block's end,
    `front` what is free in the blocks after it. A step within the first block leaves `front` unchanged.
    """

    def __init__(self, line: BlockedTimeline, at: int, slot: int) -> None:
        self.blocks, self.starts = line.blocks, line.starts
        self.at, self.slot = at, slot
        self.end_at, self.end = at, slot
        self.front = 0
        self.back: list[int] = []

    def reach(self, stop: int, least: int) -> tuple[int, int] | None:
        """Extend the window up to an instant; return the last slot on the way with fewer than `least` units, if any."""
        end_at = bisect_left(self.starts, stop, self.end_at + 1) - 1
        end = bisect_left(self.blocks[end_at].times, stop)
        if (end_at, end) == (self.end_at, self.end):
            return None
        for at, first, last in reversed(more := self._slots(self.end_at, self.end, end_at, end)):
            if (short := self.blocks[at].last_short(least, first, last)) >= 0:
                return at, short
        for at, first, last in more:
            if at > self.at and first < last:
                units = self.blocks[at].during(first, last)
                self.front = units if at == self.at + 1 and first == 0 else self.front & units
        self.end_at, self.end = end_at, end
        return None

    def free(self) -> int:
        """Return what is free in all of the window."""
        block = self.blocks[self.at]
        if self.end_at == self.at:
            return block.during(self.slot, self.end)
        if not self.back:
            self.back = list(accumulate(block.sets[self.slot :][::-1], and_))
        return (self.back[len(block.times) - 1 - self.slot] ^ block.taken) & self.front

    def step(self) -> None:
        """Move the start to the next slot; slots whose removal does not enlarge the free set are skipped."""
        last = len(self.blocks[self.at].times) - 1
        self.slot += 1
        while self.back and self.slot <= last and self.back[last - self.slot] == self.back[last - self.slot + 1]:
            self.slot += 1
        if self.slot <= last:
            if self.end_at == self.at:
                self.end = max(self.end, self.slot)
            return
        self.at, self.slot, self.back = self.at + 1, 0, []
        if self.end_at < self.at:
            self.end_at, self.end = self.at, 0
        for at, first, end in self._slots(self.at + 1, 0, self.end_at, self.end):
            units = self.blocks[at].during(first, end)
            self.front = units if at == self.at + 1 else self.front & units

    def _slots(self, at: int, slot: int, end_at: int, end: int) -> list[tuple[int, int, int]]:
        """Return the slots from one place to another, block by block."""
        numbers = range(at, end_at + 1)
        return [
            (number, slot if number == at else 0, end if number == end_at else len(self.blocks[number].times))
            for number in numbers
        ]
