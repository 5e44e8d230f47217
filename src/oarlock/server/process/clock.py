"""The real clock; everything else receives a clock as an argument."""

import time
from typing import Protocol

_JUMP_SECONDS = 5


class Clock(Protocol):
    """Wall time in epoch seconds, and a monotonic time for measuring pauses."""

    def now(self) -> float:
        """Return the wall time."""
        ...

    def steady(self) -> float:
        """Return a monotonic time in seconds; only differences of it have a meaning."""
        ...


class RealClock:
    """This machine's clock."""

    def now(self) -> float:
        """Return the wall time."""
        return time.time()

    def steady(self) -> float:
        """Return a monotonic time."""
        return time.monotonic()


class JumpDetector:
    """Detects jumps of the wall clock by comparing it with the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart = clock.now() - clock.steady()

    def jump(self) -> int:
        """Return by how many seconds the wall clock jumped since the last call; 0 for small corrections."""
        apart = self._clock.now() - self._clock.steady()
        jumped = round(apart - self._apart)
        self._apart = apart
        return jumped if abs(jumped) >= _JUMP_SECONDS else 0
