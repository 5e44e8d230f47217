"""The lock of the one server of a database, and its heartbeat.

On SQLite the lock is a file's. On PostgreSQL it is an advisory lock, which ends with the connection of its holder. A
holder that is frozen or cut off keeps its connection for hours, though: so it writes a heartbeat every two seconds, and
a standby server (`StandbyWatch`) ends the connection of a holder that was silent for eight. The next change of that
holder finds the connection gone and the lock with somebody else, before anything is written.
"""

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec
from sqlalchemy import URL, delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from oarlock.model.errors import DatabaseAway, DatabaseHeld, DatabaseRefused
from oarlock.store.engine import engines
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import instance

log = logging.getLogger(__name__)

ADVISORY_KEY = 0x6F61726C6F636B  # "oarlock"
RESTORE_KEY = 0x6F6172726573  # "oarres": beside the lock while a backup is put back, which has no heartbeat

HEARTBEAT_SECONDS = 2.0
LOOK_SECONDS = 0.5

SILENCE_SECONDS = 8.0
"""After this long without a heartbeat a standby server ends the holder's connection. Three beats may be lost."""


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a database: a process, its machine, and since when."""

    pid: int
    host: str
    since: int

    @property
    def text(self) -> str:
        """How the database names it."""
        return msgspec.json.encode(self).decode()


def this_process(since: int) -> LockHolder:
    """Return the holder that stands for this process."""
    return LockHolder(os.getpid(), socket.gethostname(), since)


class FileLock:
    """A lock on a file beside the database; the kernel releases it when the process ends."""

    def __init__(self, path: Path, holder: LockHolder) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            written = os.pread(self._file, 4096, 0)
            os.close(self._file)
            raise _held(written) from None
        # Written after the lock is taken: a reader of an empty file is between these two steps of ours.
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, msgspec.json.encode(holder), 0)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._file)


def take_for_restore(tx: Tx) -> None:
    """Hold a PostgreSQL database, which may be empty, as long as this connection lives, or raise `DatabaseHeld`."""
    # Before the lock itself, so that no standby server ever finds the lock without the mark beside it.
    tx.execute(select(func.pg_advisory_lock_shared(RESTORE_KEY)))
    if not tx.execute(select(func.pg_try_advisory_lock(ADVISORY_KEY))).scalar_one():
        raise _held(b"")


class AdvisoryLock:
    """The lock of a PostgreSQL database: it lives as long as the connection on which it was taken."""

    def __init__(self, holder: LockHolder) -> None:
        self._holder = holder.text
        self._backend = 0  # the session that has it

    def take(self, tx: Tx) -> None:
        """Hold the database whatever becomes of the transaction, or refuse and name who holds it (`DatabaseHeld`)."""
        self._lock(tx)
        tx.execute(delete(instance).where(instance.c.name.in_(["holder", "heartbeat"])))
        tx.execute(
            insert(instance),
            [{"name": "holder", "value": self._holder}, {"name": "heartbeat", "value": f"{self._holder} 0"}],
        )

    def take_again(self, tx: Tx) -> None:
        """Hold the database on a new connection, if no other server held it since the last connection was lost.

        A server that held it meanwhile may have ended, so that the lock is free: what we remember of the database is
        out of date all the same.
        """
        self._end_last_session(tx)
        self._lock(tx)
        last_holder = _last_holder(tx)
        if last_holder != self._holder:
            raise _held(last_holder.encode())

    def _lock(self, tx: Tx) -> None:
        if not tx.execute(select(func.pg_try_advisory_lock(ADVISORY_KEY))).scalar_one():
            last_holder = _last_holder(tx)
            if last_holder == self._holder and self._backend in tx.execute(_LOCKERS).scalars().all():
                raise DatabaseAway(
                    "The database still keeps the connection that this server lost.",
                    hint="The server tries again by itself.",
                )
            raise _held(last_holder.encode())
        self._backend = tx.execute(select(func.pg_backend_pid())).scalar_one()

    def _end_last_session(self, tx: Tx) -> None:
        """Terminate our own last session if PostgreSQL has not noticed yet that its connection broke."""
        if self._backend in tx.execute(_LOCKERS).scalars().all():
            tx.execute(select(func.pg_terminate_backend(self._backend)))


SESSION_HOLDING = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32) + objid::bigint = "  # PostgreSQL shows the two halves of a key
)
_LOCKERS = text(SESSION_HOLDING + ":key").bindparams(key=ADVISORY_KEY)


def _last_holder(tx: Tx) -> str:
    return tx.execute(select(instance.c.value).where(instance.c.name == "holder")).scalar() or ""


def _held(written: bytes) -> DatabaseHeld:
    try:
        holder = msgspec.json.decode(written, type=LockHolder)
    except msgspec.DecodeError:  # the first is between taking the lock and saying so
        return DatabaseHeld("Another server already works on this database.", hint="Stop it before starting this one.")
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    return DatabaseHeld(
        f"Another server already works on this database: process {holder.pid} on {holder.host}, since {since}.",
        hint=f"Stop it before starting this one (`kill {holder.pid}` on {holder.host}).",
    )


class Heartbeat:
    """A thread that shows, while a server holds a PostgreSQL database, that it lives.

    It has a connection of its own: a writer that is busy with one long transaction is not dead. `lost` is called once,
    in this thread, when another server is found to be the holder.
    """

    def __init__(self, where: URL, holder: LockHolder, *, lost: Callable[[], object]) -> None:
        self._engine, self._holder, self._lost = engines.heartbeat(where), holder.text, lost
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oarlock-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Stopping twice does no harm."""
        self._stopped.set()
        self._thread.join()
        self._engine.dispose()

    def _run(self) -> None:
        beats = 0
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            beats += 1
            try:
                with self._engine.begin() as tx:
                    alone = _beat(tx, self._holder, beats)
            except SQLAlchemyError as error:  # the writer reports a database that is away
                log.debug("heartbeat not written", extra={"error": str(error)})
                continue
            if not alone:
                self._lost()
                return


def _beat(tx: Tx, holder: str, number: int) -> bool:
    """Write a heartbeat if `holder` still holds the database; return whether it does."""
    # An alias: without it the inner query would be about the very row that is updated.
    named = instance.alias()
    still = select(named.c.name).where(named.c.name == "holder", named.c.value == holder).exists()
    row = update(instance).where(instance.c.name == "heartbeat", still).values(value=f"{holder} {number}")
    return tx.execute(row).rowcount == 1


class StandbyWatch:
    """What a standby server sees of the active one. `look` is called again and again until it returns True."""

    def __init__(self, where: URL, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engines.reader(where), clock
        self._beat = ""
        self._seen_at = clock()  # by our own clock: those of two machines differ

    @classmethod
    def of(cls, where: Path | URL) -> Self:
        """Watch a database; an SQLite file is refused."""
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
