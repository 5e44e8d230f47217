"""The timeline: what is free when, and the earliest window that is free long enough."""

from functools import reduce
from operator import and_
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.plan.timeline.blocked import BlockedTimeline
from oarlock.plan.timeline.timeline import FreeFromNow, Slots, Timeline, slots, slots_of_releases
from tests.plan.drawing import free

UNITS, BEGIN, END = 6, 10, 60
EVERYTHING = (1 << UNITS) - 1


class AtLeast(NamedTuple):
    """So many units, whichever."""

    least: int

    def fits(self, units: int) -> bool:
        return units.bit_count() >= self.least


class Pairs(NamedTuple):
    """Both units of so many pairs (0-1, 2-3, …)."""

    pairs: int
    least: int = 2

    def fits(self, units: int) -> bool:
        return (units & units >> 1 & 0x5555555555).bit_count() >= self.pairs


class Blocks(BlockedTimeline):
    """A wide timeline of which even a short one has many blocks."""

    full = 3


Line = Timeline | BlockedTimeline
of_each_kind = pytest.mark.parametrize("kind", [Timeline, Blocks])


def drawn(kind: type[Line], *lines: tuple[int, str]) -> Line:
    """Make a timeline of drawings, each from an instant on."""
    return kind.of(Slots([instant for instant, _ in lines], [free(drawing) for _, drawing in lines]))


def _earliest(timeline: Line, criterion, duration: int, not_before: int) -> tuple[int, int] | None:
    found = timeline.earliest(criterion, duration, not_before)
    return None if found is None else (found.start, found.free)


@of_each_kind
def test_taking_cuts_the_future_into_slots(kind):
    timeline = kind(0, free("...."))
    timeline.occupy(10, 20, free("..##"), 2)
    timeline.cover(15, 30, free(".##."))
    assert slots(timeline) == [
        (0, 10, free("....")),
        (10, 15, free("##..")),
        (15, 20, free("##.#")),
        (20, 30, free("#..#")),
        (30, None, free("....")),
    ]
    assert timeline.count == [4, 2, 1, 2, 4]


@of_each_kind
def test_what_changes_nothing_makes_no_slots(kind):
    timeline = kind(0, free("##.."))
    timeline.cover(10, 20, free("..##"))
    assert slots(timeline) == [(0, None, free("##.."))]


def test_whoever_takes_what_another_leaves_makes_no_slot():
    timeline = Timeline(0, free("...."))
    timeline.occupy(0, 10, free("##.."), 2)
    timeline.occupy(10, 20, free("##.."), 2)
    timeline.cover(20, 30, free("##.."))
    assert (timeline.times, timeline.free, timeline.count) == ([0, 30], [free("..##"), free("....")], [2, 4])
    timeline.release(10, 20, free("##.."))
    assert timeline.times == [0, 10, 20, 30]
    timeline.occupy(10, 20, free("##.."), 2)
    assert timeline.times == [0, 30]


@of_each_kind
def test_what_lies_before_the_begin_is_cut_off(kind):
    timeline = kind(10, free(".."))
    timeline.occupy(0, 15, free("#."), 1)
    timeline.occupy(0, 5, free(".#"), 1)
    timeline.cover(3, 9, free(".."))
    assert slots(timeline) == [(10, 15, free(".#")), (15, None, free(".."))]


@of_each_kind
def test_what_was_given_back_is_free_again(kind):
    timeline = drawn(kind, (0, ".#"), (10, "##"))
    timeline.release(5, 15, free("#."))
    assert slots(timeline) == [(0, 5, free(".#")), (5, 10, free("..")), (10, 15, free("#.")), (15, None, free("##"))]
    assert timeline.count == [1, 2, 1, 0]


@of_each_kind
def test_the_past_can_be_forgotten(kind):
    timeline = drawn(kind, (0, "##"), (10, "#."), (20, ".."))
    timeline.forget_before(-5)
    timeline.forget_before(15)
    assert slots(timeline) == [(15, 20, free("#.")), (20, None, free(".."))]


@of_each_kind
def test_a_copy_is_changed_apart(kind):
    timeline = drawn(kind, (0, ".."))
    duplicate = timeline.copy()
    duplicate.occupy(0, 5, free("."), 1)
    assert (slots(timeline), len(slots(duplicate))) == ([(0, None, free(".."))], 2)


@pytest.mark.parametrize(
    ("wanted", "duration", "not_before", "found"),
    [
        (1, 10, 0, (0, free(".#"))),
        (2, 10, 0, (20, free(".."))),
        (1, 11, 0, (0, free(".#"))),
        (1, 25, 0, (0, free(".#"))),
        (2, 5, 30, (30, free(".."))),
        (2, 26, 0, (50, free(".."))),
        (2, 20, 25, (25, free(".."))),
        (2, 20, 31, (50, free(".."))),
        (3, 1, 0, None),
        (1, 99, 70, (70, free(".."))),
    ],
)
@of_each_kind
def test_the_earliest_window_that_stays_free_is_found(kind, wanted, duration, not_before, found):
    timeline = drawn(kind, (0, ".#"), (20, ".."), (45, ".#"), (50, ".."))
    assert _earliest(timeline, AtLeast(wanted), duration, not_before) == found


@of_each_kind
def test_what_is_free_from_now_on_is_told_up_to_any_instant(kind):
    from_now = FreeFromNow(drawn(kind, (0, "...."), (10, "...#"), (20, "#..."), (30, "....")))
    assert [from_now.until(stop) for stop in (0, 1, 10, 11, 20, 21, 99)] == [
        free("...."), free("...."), free("...."), free("...#"), free("...#"), free("#..#"), free("#..#"),
    ]  # fmt: skip
    assert [from_now.longest(AtLeast(count)) for count in (5, 4, 3, 2)] == [0, 10, 20, None]


class Plain:
    """A timeline as a list of sets, one a second; the last one lasts."""

    def __init__(self) -> None:
        self.free = [EVERYTHING] * (END - BEGIN)
        self.edges = {BEGIN}

    def change(self, start: int, stop: int, step) -> None:
        for at in range(max(start, BEGIN), min(stop, END)):
            self.free[at - BEGIN] = step(self.free[at - BEGIN])
        self.edges |= {start, stop}

    def during(self, start: int, stop: int) -> int:
        return reduce(and_, [self.free[min(at, END - 1) - BEGIN] for at in range(start, stop)])

    def earliest(self, criterion, duration: int, not_before: int):
        begin = max(BEGIN, not_before)
        for start in sorted({begin, *(edge for edge in self.edges if edge > begin)}):
            if criterion.fits(self.during(start, start + duration)):
                return start, self.during(start, start + duration)
        return None


instants = st.integers(BEGIN - 5, END - 2)
changes = st.lists(
    st.tuples(st.sampled_from(["occupy", "cover", "release"]), instants, instants, st.integers(1, EVERYTHING)),
    max_size=25,
)
wishes = st.builds(AtLeast, st.integers(1, UNITS + 1)) | st.just(Pairs(1))


def applied(kind: type[Line], told) -> tuple[Line, Plain]:
    """Do the same to a timeline and to a plain list."""
    timeline, plain = kind(BEGIN, EVERYTHING), Plain()
    for what, one, other, units in told:
        start, stop = min(one, other), max(one, other) + 1
        if what == "release":
            timeline.release(start, stop, units)
            plain.change(start, stop, lambda free, units=units: free | units)
        elif what == "occupy" and stop > BEGIN:
            units &= plain.during(max(start, BEGIN), stop)
            timeline.occupy(start, stop, units, units.bit_count())
            plain.change(start, stop, lambda free, units=units: free ^ units)
        else:
            timeline.cover(start, stop, units)
            plain.change(start, stop, lambda free, units=units: free & ~units)
    return timeline, plain


@given(changes)
@of_each_kind
def test_a_timeline_is_a_list_of_sets_one_a_second(kind, told):
    timeline, plain = applied(kind, told)
    assert [timeline.during(at, at + 1) for at in range(BEGIN, END)] == plain.free
    assert timeline.times == sorted(set(timeline.times))
    assert timeline.count == [units.bit_count() for units in timeline.free]


@settings(max_examples=300)
@given(changes, wishes, st.integers(1, 40), st.integers(BEGIN - 3, END))
@of_each_kind
def test_the_earliest_window_is_the_first_that_a_plain_search_finds(kind, told, criterion, duration, not_before):
    timeline, plain = applied(kind, told)
    assert _earliest(timeline, criterion, duration, not_before) == plain.earliest(criterion, duration, not_before)


@given(changes, wishes, st.integers(BEGIN, END))
@of_each_kind
def test_what_stays_free_from_now_on_is_what_is_free_all_the_time(kind, told, criterion, stop):
    timeline, plain = applied(kind, told)
    from_now = FreeFromNow(timeline)
    assert from_now.until(stop) == plain.during(BEGIN, max(stop, BEGIN + 1))
    until = from_now.longest(criterion)
    seconds = [at for at in range(BEGIN, END) if not criterion.fits(plain.during(BEGIN, at + 1))]
    assert until == (min(seconds) if seconds else None)


@pytest.mark.parametrize("seed", range(20))
@of_each_kind
def test_long_timelines_are_searched_in_strides_without_missing_a_window(kind, seed):
    r = Random(seed)
    timeline = kind(0, (1 << 40) - 1)
    for _ in range(150):
        start = r.randint(0, 3000)
        timeline.cover(start, start + r.choice([20, 100, 400]), 1 << r.randrange(40) | 1 << r.randrange(40))
    for _ in range(40):
        criterion, duration = Pairs(r.randint(1, 16)), r.choice([1, 50, 300, 800, 1500])
        fitting = [at for at in timeline.times if criterion.fits(timeline.during(at, at + duration))]
        found = _earliest(timeline, criterion, duration, 0)
        assert (found and found[0]) == (fitting[0] if fitting else None)


leavers = st.lists(st.tuples(instants, st.integers(1, EVERYTHING)), max_size=12)


@of_each_kind
@given(leavers)
def test_those_who_are_there_leave_one_after_the_other(kind, leaving):
    plain = Plain()
    for stop, units in leaving:
        plain.change(BEGIN, stop, lambda free, units=units: free & ~units)
    timeline = kind.of(slots_of_releases(BEGIN, EVERYTHING, leaving))
    assert [timeline.during(at, at + 1) for at in range(BEGIN, END)] == plain.free
    assert timeline.times == sorted(set(timeline.times))
    assert timeline.count == [units.bit_count() for units in timeline.free]


@given(changes, instants, changes)
def test_a_timeline_in_blocks_forgets_and_copies_as_a_plain_one(told, now, more):
    plain, blocks = applied(Timeline, told)[0], applied(Blocks, told)[0]
    kept = blocks.copy()
    for timeline in (plain, blocks):
        timeline.forget_before(now)
        for _, one, other, units in more:
            timeline.cover(min(one, other), max(one, other) + 1, units)
    assert changes_of(blocks) == changes_of(plain)
    assert changes_of(kept) == changes_of(applied(Timeline, told)[0])


def changes_of(timeline: Line) -> list[tuple[int, int]]:
    """Give what is free from when on, without the instants at which nothing changes."""
    sets = [None, *timeline.free]
    return [(at, free) for at, before, free in zip(timeline.times, sets, timeline.free, strict=False) if free != before]
