"""A database that is open: many readers, one writer, at most one server; and the lock of that server."""

import fcntl
import os
import socket
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import msgspec
from sqlalchemy import URL, Connection, delete, func, insert, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from oarlock.model.errors import DatabaseAway, DatabaseHeld, DatabaseRefused, TooSlow
from oarlock.store.engine import engines
from oarlock.store.engine.tx import Tx
from oarlock.store.engine.writer import Change, Writer
from oarlock.store.tables import HIDDEN_JOB_COLUMNS, instance

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


T = TypeVar("T")

ASK_SECONDS = 2.0
"""How long a condition that a user wrote may take."""

_STEPS_BETWEEN_LOOKS = 10_000


class Closing(ABC):
    """A context manager that calls `close` at its end."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Database(Closing):
    """Read with `read` (or `ask`, for conditions of users), change with `write` or `submit`."""

    def __init__(self, where: Path | URL) -> None:
        self._where = where
        self._reader = engines.reader(where)
        self._engine = engines.writer(where)
        self._writer = Writer(self._engine, _same_file(where) if isinstance(where, Path) else _anything)
        self._lock: FileLock | None = None

    @property
    def address(self) -> str:
        """Where it is, password included, for another process that opens it: a path, or a PostgreSQL address."""
        if isinstance(self._where, Path):
            return str(self._where)
        return self._where.render_as_string(hide_password=False)

    @property
    def engine_name(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """Yield a read-only transaction that sees one instant of the database. Keep it short.

        A database that cannot be reached is refused (`DatabaseRefused`).
        """
        try:
            with self._reader.connect() as tx, tx.begin():
                yield tx
        except OperationalError as error:
            raise DatabaseRefused(
                f"The database cannot be read: {' '.join(str(error.orig).split())}",
                hint="Ask again in a moment; the server's log has more.",
            ) from error

    @contextmanager
    def ask(self, seconds: float = ASK_SECONDS) -> Iterator[Tx]:
        """Yield a transaction for one condition that a user wrote.

        Such conditions are bound and name known columns only; this is the second fence: what others must not see
        cannot be read here, and what takes over `seconds` is refused (`TooSlow`).
        """
        with self.read() as tx:
            guard = _guard_sqlite if self.engine_name == "sqlite" else _guard_postgresql
            try:
                with guard(tx, seconds):
                    yield tx
            except DBAPIError as error:
                if "interrupted" in str(error.orig) or "statement timeout" in str(error.orig):
                    raise TooSlow(
                        f"The condition was not answered within {seconds:g} s.", hint="Ask for less at once."
                    ) from error
                raise

    def submit(self, change: Change[T]) -> Future[T]:
        """Queue a change; the future has its value once it is on disk. Callable from any thread."""
        return self._writer.submit(change)

    def write(self, change: Change[T]) -> T:
        """Run a change and wait until it is on disk. What it raises is raised here, and nothing was changed."""
        return self._writer.write(change)

    def lock(self, *, now: int) -> None:
        """Take the lock of the one server until `close`; raise `DatabaseHeld`, which names its holder, if it is taken.

        On PostgreSQL the lock lives in the writer's own connection: a server that lost it cannot write any more.
        """
        holder = this_process(now)
        if isinstance(self._where, Path):
            self._lock = FileLock(self._where.with_name(self._where.name + ".lock"), holder)
        else:
            lock = AdvisoryLock(holder)
            self._writer.hold(lock.take, lock.take_again)

    def call_on_loss(self, callback: Callable[[DatabaseHeld], None]) -> None:
        """Call `callback` once, in another thread, when another server is found to hold the database."""
        self._writer.call_on_loss(callback)

    def close(self) -> None:
        """Finish the queued changes, then close. Closing twice does no harm."""
        self._writer.close()
        self._reader.dispose()
        self._engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _same_file(path: Path) -> Callable[[], None]:
    """Return a check that raises once the file that is open now was removed or replaced.

    An open file goes on taking writes after its name is gone; they would be lost with the process that has it open.
    """
    opened = path.stat()

    def check() -> None:
        try:
            now = path.stat()
        except FileNotFoundError:
            now = None
        # A file is the same one only if device and inode are: a copy under the same name has another inode.
        if now is None or (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
            raise DatabaseAway(
                f"The change was not accepted: the database file {path} was {'replaced' if now else 'removed'} while "
                "the server worked on it.",
                hint="Nothing was half done. Move the file back; or stop the server and use `oarlock restore`.",
            )

    return check


def _anything() -> None:
    """Accept a database that is not a file."""


@contextmanager
def _guard_sqlite(tx: Connection, seconds: float) -> Iterator[None]:
    connection = tx.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)  # noqa: S101  (tells mypy)
    give_up_at = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > give_up_at, _STEPS_BETWEEN_LOOKS)
    connection.set_authorizer(_allowed)
    try:
        yield
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)


def _allowed(action: int, first: str | None, second: str | None, _schema: str | None, _trigger: str | None) -> int:
    """Allow reads of resources and of the visible columns of jobs, and nothing else."""
    match action:
        case sqlite3.SQLITE_SELECT:
            fine = True
        case sqlite3.SQLITE_READ:
            fine = first == "resources" or (first == "jobs" and second not in HIDDEN_JOB_COLUMNS)
        case sqlite3.SQLITE_FUNCTION:
            fine = second == "glob"
        case _:
            fine = False
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY


@contextmanager
def _guard_postgresql(tx: Connection, seconds: float) -> Iterator[None]:
    tx.execute(text("SELECT set_config('statement_timeout', :limit, true)"), {"limit": f"{seconds * 1000:.0f}ms"})
    yield
