"""How a standby server waits for its turn: it looks at the lock and the heartbeat of the active one."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from sqlalchemy import URL, func, select, text
from sqlalchemy.exc import DBAPIError

from oarlock.model.errors import DatabaseAway, DatabaseRefused
from oarlock.store.engine import engines
from oarlock.store.engine.opening import parse_address
from oarlock.store.engine.server_lock import ADVISORY_KEY, RESTORE_KEY, SESSION_HOLDING
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import instance

log = logging.getLogger(__name__)

SILENCE_SECONDS = 8.0
"""After this long without a heartbeat a standby server ends the holder's connection. Three beats may be lost."""
LOOK_SECONDS = 0.5


class StandbyWatch:
    """What a standby server sees of the active one. `look` is called again and again until it returns True."""

    def __init__(self, where: URL, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engines.reader(where), clock
        self._beat = ""
        self._seen_at = clock()  # by our own clock: those of two machines differ

    @classmethod
    def of(cls, address: str | Path) -> Self:
        """Watch the database at `address`; an SQLite file is refused."""
        where = parse_address(address)
        if not isinstance(where, URL):
            raise DatabaseRefused(
                "A standby server needs a database that two machines reach; this one is an SQLite file.",
                hint="Set DB_TYPE=Pg, or start without --standby.",
            )
        return cls(where)

    @property
    def address(self) -> str:
        """The address of the database, without its password."""
        return self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def look(self) -> bool:
        """Return whether the lock is free; end the connection of a holder that was silent for too long.

        Raises `DatabaseAway` where the database cannot be asked.
        """
        try:
            return self._look()
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            raise DatabaseAway(
                f"The database cannot be asked: {reason}.", hint="It is asked again by itself."
            ) from error

    def _look(self) -> bool:
        with self._engine.connect() as tx, tx.begin():
            if tx.execute(select(func.pg_try_advisory_lock(ADVISORY_KEY))).scalar_one():
                tx.execute(select(func.pg_advisory_unlock(ADVISORY_KEY)))
                return True
            beat = _current_beat(tx)
            if beat is None or beat != self._beat:
                self._beat, self._seen_at = beat or "", self._clock()
            elif self._clock() - self._seen_at > SILENCE_SECONDS:
                self._end_holder(tx)
        return False

    def _end_holder(self, tx: Tx) -> None:
        ended = tx.execute(_END_SILENT_HOLDER, {"beat": self._beat}).scalars().all()
        if ended:
            log.warning(
                "the active server was silent for too long: its connection is ended",
                extra={"holder": self._beat.rpartition(" ")[0], "seconds": round(self._clock() - self._seen_at, 1)},
            )
        self._seen_at = self._clock()


def _current_beat(tx: Tx) -> str | None:
    """Return the last heartbeat; None where there is none: a database that is empty, or is being restored."""
    if tx.execute(select(func.to_regclass(instance.name))).scalar() is None:
        return None
    return tx.execute(select(instance.c.value).where(instance.c.name == "heartbeat")).scalar()


# One statement: a holder that changed since the last look, or that restores a backup, is left alone.
_END_SILENT_HOLDER = text(
    f"SELECT pg_terminate_backend(held.pid) FROM ({SESSION_HOLDING}:key) AS held"  # noqa: S608  (constants only)
    f" WHERE held.pid NOT IN ({SESSION_HOLDING}:restore)"
    " AND EXISTS (SELECT 1 FROM instance WHERE name = 'heartbeat' AND value = :beat)"
).bindparams(key=ADVISORY_KEY, restore=RESTORE_KEY)
