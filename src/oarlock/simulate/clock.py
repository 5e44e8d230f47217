"""The simulated clock: an instant, and a queue of wake-ups."""

import heapq

from oarlock.job.reactor.steps import Moment


class SimulatedClock:
    """The time goes from one wake-up to the next; work takes no time, or part of a second. Instants are in seconds."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._jumped = 0
        self._spent = 0.0  # of the present second
        self._calls: list[tuple[int, str]] = []

    @property
    def now(self) -> int:
        """What it shows."""
        return self._now

    @property
    def moment(self) -> Moment:
        """The present by both clocks; only the monotonic one does not jump."""
        return Moment(self._now + self._spent, self._now - self._jumped + self._spent)

    def go_to(self, instant: int) -> None:
        """Advance to an instant; one that is over changes nothing."""
        if instant > self._now:
            self._now, self._spent = instant, 0.0

    def spend(self, seconds: float) -> bool:
        """Advance within the present second; return False if not so much is left of it."""
        if self._spent + seconds >= 1:
            return False
        self._spent += seconds
        return True

    def call(self, who: str, at: int) -> None:
        """Request a wake-up at an instant; the same request twice is one wake-up."""
        heapq.heappush(self._calls, (at, who))

    def next(self) -> int | None:
        """Return when the next call is."""
        return self._calls[0][0] if self._calls else None

    def due(self) -> list[str]:
        """Return those whose time has come, in order, each once."""
        called: dict[str, None] = {}
        while self._calls and self._calls[0][0] <= self.now:
            called[heapq.heappop(self._calls)[1]] = None
        return list(called)

    def jump(self, seconds: int) -> None:
        """Change the time shown: requested wake-ups come after as long as before."""
        self._now += seconds
        self._jumped += seconds
        self._calls = [(at + seconds, who) for at, who in self._calls]
