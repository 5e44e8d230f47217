"""A database that is open: many readers, one writer, at most one server."""

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import URL, Connection, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from oarlock.model.errors import DatabaseAway, DatabaseHeld, DatabaseRefused, TooSlow
from oarlock.store.engine import engines
from oarlock.store.engine.server_lock import AdvisoryLock, FileLock, Heartbeat, this_process
from oarlock.store.engine.tx import Tx
from oarlock.store.engine.writer import Change, Writer
from oarlock.store.tables import HIDDEN_JOB_COLUMNS

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
        self._heartbeat: Heartbeat | None = None

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
            # A change that reads something: on a connection that was ended the writer then finds who holds the lock.
            self._heartbeat = Heartbeat(self._where, holder, lost=lambda: self.submit(_read_anything))

    def call_on_loss(self, callback: Callable[[DatabaseHeld], None]) -> None:
        """Call `callback` once, in another thread, when another server is found to hold the database."""
        self._writer.call_on_loss(callback)

    def close(self) -> None:
        """Finish the queued changes, then close. Closing twice does no harm."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
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


def _read_anything(tx: Tx) -> None:
    tx.execute(select(1))


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
