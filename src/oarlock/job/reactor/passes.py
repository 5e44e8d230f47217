"""When the scheduler plans: a quick pass as soon as something changed, a whole one now and then while more jobs wait.

Passes take a bounded share of the time. Under load, what happens during the pause after a pass is planned together.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

from msgspec import Struct

from oarlock.job.reactor.steps import Moment, QuickPass, WholePass
from oarlock.job.run.starting.schedule import Decision

LEAST_DEPTH, MOST_DEPTH = 64, 512
"""Waiting jobs of a queue that a quick pass looks at: what can start now is nearly always among them."""

LONGEST_PAUSE = 60.0
"""Seconds between two passes when nothing happens."""

_SHARE = 2.0  # a quick pass is followed by a pause this many times as long as the CPU time it took
_BUSY_SHARE = 3.0  # ... or this many, when more jobs wait than it looked at: nobody notices a small delay
_LONGEST_BUSY = 0.1
_LEAST_PAUSE = 0.05  # before the next pass when a planned start is over
_LOOK_SHARE = 10.0  # the arrays behind the first jobs are looked at once in this many times the CPU time it takes
_LEAST_LOOK, _LONGEST_LOOK = 0.2, 3.0
_WHOLE_SHARE = 10.0  # a whole pass of each kind takes at most 1/11 of the time
_LEAST_WHOLE = 1.0
_LEAST_DATES = 4.0  # nobody reads dates more often, and in a long queue that moves each pass changes all of them
_LONGEST_WHOLE = 3.0  # ... but all jobs are looked at this often, or half of the time where a look takes longer


@dataclass(slots=True)
class PassSchedule:
    """When the next pass of each kind is due, by what the last ones took and found.

    `depths`: least and most waiting jobs of a queue that a quick pass looks at. `longest_pause`: a pass is made after
    so many seconds even when nothing happened; None: never.
    """

    depths: tuple[int, int] = (LEAST_DEPTH, MOST_DEPTH)
    longest_pause: float | None = LONGEST_PAUSE
    whole_at: float = 0.0  # monotonic, as all instants here but those of starts and wake-ups
    dates_at: float = 0.0
    whole_wanted: bool = False
    _depth: int = field(init=False)
    _requested: bool = False
    _wake_ups: list[int] = field(default_factory=list)  # wall time
    _next_start: float | None = None  # wall time
    _look_at: float | None = None  # when jobs behind the first ones are due to be looked at
    _arrays_at: float = 0.0  # when arrays behind the first jobs may be looked at again
    _idle_at: float | None = None
    _pause_until: float = 0.0
    _pause: float = 0.0
    _quick_runs: bool = False
    _whole_began: float | None = None
    _whole_again: bool = False  # something changed since the whole pass under way began
    _looking: float = 0.0  # seconds that it took last to see who starts
    _looked: bool = False  # who starts was seen since dates were last given

    def __post_init__(self) -> None:
        self._depth = self.depths[0]

    def request(self, at: int | None = None) -> None:
        """Request a quick pass: as soon as possible, or at an instant (wall time)."""
        if at is None:
            self._requested = True
        else:
            heapq.heappush(self._wake_ups, at)

    @property
    def idle(self) -> bool:
        """Whether no pass will follow unless something happens, or nothing does for long."""
        return not (self._requested or self._wake_ups or self.whole_wanted) and self._next_start is None

    def next(self, at: Moment) -> QuickPass | WholePass | None:
        """Begin the pass that is due, if one is."""
        if not self._quick_runs and self._until_quick(at) == 0:
            while self._wake_ups and self._wake_ups[0] <= at.now:
                heapq.heappop(self._wake_ups)
            self._requested, self._quick_runs = False, True
            return QuickPass(self._depth, at.steady >= self._arrays_at)
        if self.whole_wanted and self._whole_began is None and at.steady >= self.whole_at:
            self._whole_began, self._whole_again = at.steady, False
            return WholePass(self._looked and at.steady >= self.dates_at)
        return None

    def wake_in(self, at: Moment) -> float | None:
        """Return in how many seconds a pass is due if nothing happens before; None: never, or one is under way."""
        waits = [] if self._quick_runs else [self._until_quick(at)]
        if self.whole_wanted and self._whole_began is None:
            waits.append(max(self.whole_at - at.steady, 0.0))
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _until_quick(self, at: Moment) -> float | None:
        """Return how many seconds nothing has to be planned, if nothing happens before."""
        waits = [0.0] if self._requested else []
        waits += [instant - at.now for instant in self._wake_ups[:1]]
        waits += [instant - at.now for instant in (self._next_start,) if instant is not None]
        waits += [instant - at.steady for instant in (self._look_at, self._idle_at) if instant is not None]
        return max(min(waits), self._pause_until - at.steady, 0.0) if waits else None

    def quick_ended(self, step: QuickPass, decision: Decision, cost: float, at: Moment) -> None:
        """Note what a quick pass decided, and the CPU seconds it took."""
        self._pause = _SHARE * cost
        if decision.left:
            self._pause = max(self._pause, min(_BUSY_SHARE * cost, _LONGEST_BUSY))
            if step.arrays:
                self._arrays_at = at.steady + min(max(_LOOK_SHARE * cost, _LEAST_LOOK), _LONGEST_LOOK)
        self._look_at = max(self._arrays_at, at.steady) if decision.left and not step.arrays else None
        start = decision.next_start
        self._next_start = None if start is None else max(start, at.now + _LEAST_PAUSE)
        if decision.left:
            self._want_whole()
            if len(decision.starts) >= step.depth:
                self._requested = True  # those behind may fit, too
        self._adapt_depth(len(decision.starts))
        self._end_quick(at)

    def quick_failed(self, at: Moment, *, again_in: float | None = None) -> None:
        """Note that a quick pass failed; the next one is due when it would have been without it.

        `again_in`: seconds after which the same pass may succeed, as the database may accept something again.
        """
        if again_in is not None:
            self._requested, self._pause = True, max(self._pause, again_in)
        if self._next_start is not None:
            self._next_start = max(self._next_start, at.now + _LEAST_PAUSE)
        self._look_at = None if self._look_at is None else max(self._look_at, at.steady + _LEAST_LOOK)
        self._end_quick(at)

    def _end_quick(self, at: Moment) -> None:
        self._quick_runs = False
        self._pause_until = at.steady + self._pause
        self._idle_at = None if self.longest_pause is None else self._pause_until + self.longest_pause

    def _adapt_depth(self, started: int) -> None:
        """Choose the next depth; between the two bounds it stays, lest passes of one kind change it each time."""
        least, most = self.depths
        if 2 * started > self._depth:
            self._depth = min(2 * self._depth, most)
        elif 4 * started < self._depth:
            self._depth = max(self._depth // 2, least)

    def _want_whole(self) -> None:
        if self.whole_wanted:
            self._whole_again = True
        self.whole_wanted = True

    def whole_ended(self, step: WholePass, decision: Decision | None, at: Moment) -> None:
        """Note that a whole pass ended (`decision` None: it failed). Another follows until all jobs have dates."""
        took = at.steady - (self._whole_began or 0.0)
        # Where nothing can be kept between passes, one without dates looks at all jobs as well.
        dated = step.dates or (decision is not None and decision.whole)
        if dated:
            self.dates_at = at.steady + max(_LEAST_DATES, _WHOLE_SHARE * took)
        else:
            self._looking = took
        self._looked = not dated
        self.whole_at = at.steady + (_LEAST_WHOLE if dated else self._pause_after_look(at))
        self._whole_began = None
        self.whole_wanted = self._whole_again or not (dated or decision is None)

    def _pause_after_look(self, at: Moment) -> float:
        """Return the pause after a pass without dates: none where dates are due, which are given right behind it."""
        if at.steady >= self.dates_at:
            return 0.0
        return min(max(_LEAST_WHOLE, _WHOLE_SHARE * self._looking), max(_LONGEST_WHOLE, self._looking))


MOST_PASSES = 200


class PassRecord(Struct, frozen=True):
    """A scheduling pass: when, how long it took with what it decided, how many jobs it started and left unread.

    `whole`: it planned all waiting jobs; a quick pass only starts those that fit now.
    """

    at: int
    seconds: float
    whole: bool
    started: int
    left: int


def new_log() -> deque[PassRecord]:
    """Return an empty log; it forgets the oldest pass for each one beyond its length."""
    return deque(maxlen=MOST_PASSES)
