"""The one clock that is real. Whatever else reads the time is given it."""

import time
from typing import Protocol

_JUMP_SECONDS = 5


class Clock(Protocol):
    """Wall time in epoch seconds, and a time that never jumps for measuring pauses."""

    def now(self) -> float:
        """Give the wall time."""
        ...

    def steady(self) -> float:
        """Give a time that only its differences mean something of."""
        ...


class RealClock:
    """This machine's clock."""

    def now(self) -> float:
        """Give the wall time."""
        return time.time()

    def steady(self) -> float:
        """Give a time that never jumps."""
        return time.monotonic()


class JumpDetector:
    """Notices when the wall clock jumps: by comparing it with the clock that does not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart = clock.now() - clock.steady()

    def jump(self) -> int:
        """Say by how many seconds the wall clock jumped since the last look; a little is no jump but a correction."""
        apart = self._clock.now() - self._clock.steady()
        jumped = round(apart - self._apart)
        self._apart = apart
        return jumped if abs(jumped) >= _JUMP_SECONDS else 0
