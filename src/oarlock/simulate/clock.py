"""The simulated clock: an instant, and a queue of wake-ups."""

import heapq


class SimulatedClock:
    """The time goes from one wake-up to the next; work takes no time. Instants are epoch seconds."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._calls: list[tuple[int, str]] = []

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
        self.now += seconds
        self._calls = [(at + seconds, who) for at, who in self._calls]
