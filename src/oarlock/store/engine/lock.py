"""The lock of the one active server, and how a second server finds out who holds it."""

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec
from sqlalchemy import delete, func, insert, select, text

from oarlock.model.errors import DatabaseAway, DatabaseHeld
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import instance

_ADVISORY_KEY = 0x6F61726C6F636B  # "oarlock"


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a database: a process, its machine, and since when."""

    pid: int
    host: str
    since: int


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
    if not tx.execute(select(func.pg_try_advisory_lock(_ADVISORY_KEY))).scalar_one():
        raise _held(b"")


class AdvisoryLock:
    """The lock of a PostgreSQL database: it lives as long as the connection on which it was taken."""

    def __init__(self, holder: LockHolder) -> None:
        self._holder = msgspec.json.encode(holder).decode()
        self._backend = 0  # the session that has it

    def take(self, tx: Tx) -> None:
        """Hold the database whatever becomes of the transaction, or refuse and name who holds it (`DatabaseHeld`)."""
        self._lock(tx)
        tx.execute(delete(instance).where(instance.c.name == "holder"))
        tx.execute(insert(instance), {"name": "holder", "value": self._holder})

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
        if not tx.execute(select(func.pg_try_advisory_lock(_ADVISORY_KEY))).scalar_one():
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


_LOCKERS = text(
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32) + objid::bigint = :key"
).bindparams(key=_ADVISORY_KEY)


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
