"""Named facts about a database itself: its identity, its key, its generation, the jumps of its server's clock."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, delete, insert, select, update

from oarlock.store.engine.tx import Tx
from oarlock.store.tables import instance

RESTORED = "restored"
"""The fact of a database that is put in place of another: from which file. Its server then begins a generation."""


def get(tx: Tx, name: str) -> str | None:
    """Return a fact; None if it was never stored."""
    return tx.execute(select(instance.c.value).where(instance.c.name == name)).scalar()


def with_prefix(tx: Tx, prefix: str) -> dict[str, str]:
    """Return the facts whose names begin with a prefix."""
    return dict(tuple(row) for row in tx.execute(_stored_beginning_with(prefix)))


@lru_cache(maxsize=16)
def _stored_beginning_with(prefix: str) -> Select[Any]:
    return select(instance.c.name, instance.c.value).where(instance.c.name.startswith(prefix, autoescape=True))


def get_or_set(tx: Tx, name: str, value: str) -> str:
    """Store a fact unless there is one already; return the stored one."""
    stored = get(tx, name)
    if stored is None:
        tx.execute(insert(instance), {"name": name, "value": value})
    return stored or value


def pop(tx: Tx, name: str) -> str | None:
    """Return a fact and delete it."""
    value = get(tx, name)
    if value is not None:
        tx.execute(delete(instance).where(instance.c.name == name))
    return value


def put(tx: Tx, name: str, value: str) -> None:
    """Store a fact, replacing the one there may be."""
    if get_or_set(tx, name, value) != value:
        tx.execute(update(instance).where(instance.c.name == name).values(value=value))


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


def add_clock_jump(tx: Tx, *, now: int, seconds: int) -> None:
    """Store a jump of the clock; `seconds` below 0 is a jump back."""
    if seconds > 0:
        get_or_set(tx, f"{_NAME}{now - seconds}", str(seconds))


def read_clock_jumps(tx: Tx) -> ClockJumps:
    """Return all jumps, oldest first."""
    stored = with_prefix(tx, _NAME)
    return ClockJumps(tuple(sorted((int(name.removeprefix(_NAME)), int(value)) for name, value in stored.items())))
