"""Jumps of the server's clock: stored, so that instants from before a jump can be compared with the clock after it."""

from dataclasses import dataclass

from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx

_NAME = "clock jump "


@dataclass(frozen=True, slots=True)
class ClockJumps:
    """Forward jumps, by the instant before each. Backward jumps need no correction: they only delay deadlines."""

    ahead: tuple[tuple[int, int], ...] = ()  # the instant that it would have been, and by how many seconds it jumped

    def today(self, instant: int) -> int:
        """Convert an instant stored before a jump to what the present clock would have shown."""
        for before, seconds in self.ahead:
            if instant <= before:
                instant += seconds
        return instant


def add(tx: Tx, *, now: int, seconds: int) -> None:
    """Store a jump of the clock; `seconds` below 0 is a jump back."""
    if seconds > 0:
        facts.get_or_set(tx, f"{_NAME}{now - seconds}", str(seconds))


def read(tx: Tx) -> ClockJumps:
    """Return all jumps, oldest first."""
    stored = facts.with_prefix(tx, _NAME)
    return ClockJumps(tuple(sorted((int(name.removeprefix(_NAME)), int(value)) for name, value in stored.items())))
