"""A database in memory, for simulations: the same tables and the same SQL as on disk, gone with its process."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import StaticPool

from oarlock.store.engine.database import Closing
from oarlock.store.engine.opening import migrate
from oarlock.store.engine.tx import Tx
from oarlock.store.engine.writer import Change

T = TypeVar("T")


class MemoryDatabase(Closing):
    """Read with `read`, change with `write`; of one thread only, and both on the one connection there is."""

    def __init__(self) -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        _empty().backup(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        self._engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
        event.listen(self._engine, "begin", _begin)
        self._tx = self._engine.connect()

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """Yield a transaction for reading."""
        with self._tx.begin():
            yield self._tx

    def write(self, change: Change[T]) -> T:
        """Run a change. What it raises is raised here, and nothing was changed."""
        with self._tx.begin():
            return change(self._tx)

    def close(self) -> None:
        """Close all connections."""
        self._tx.close()
        self._engine.dispose()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


@cache
def _empty() -> sqlite3.Connection:
    """Create the tables once a process: that takes longer than to simulate a thousand jobs."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    with engine.begin() as tx:
        migrate(tx)
    return connection
