"""The one clock that is real. Whatever else reads the time is given it."""

import time
from typing import Protocol


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
