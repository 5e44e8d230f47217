"""Connections to the two databases: durable for the writer, read-only for readers."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from oarlock.model.errors import DatabaseRefused

BUSY_SECONDS = 5
READ_SECONDS = 60
_KEPT_STATEMENTS = 512
_LONGEST_IDLE_WAL_BYTES = 64 * 2**20


def writer(where: Path | URL) -> Engine:
    """Create the engine of the one writer: every commit is on disk before it returns."""
    if isinstance(where, Path):
        return _sqlite(where, mode="rw", begin="BEGIN IMMEDIATE", on_connect=_make_durable)
    return _postgresql(where, size=1, options="-c synchronous_commit=on")


def reader(where: Path | URL) -> Engine:
    """Create the engine of readers: each transaction sees one instant of the database, and cannot write."""
    if isinstance(where, Path):
        return _sqlite(where, mode="ro", begin="BEGIN", on_connect=_only_queries)
    engine = _postgresql(
        where,
        size=8,
        options=f"-c default_transaction_read_only=on -c statement_timeout={READ_SECONDS}s "
        f"-c idle_in_transaction_session_timeout={READ_SECONDS}s",
    )
    # READ COMMITTED would show each statement of a transaction another instant.
    return engine.execution_options(isolation_level="REPEATABLE READ")


def _sqlite(path: Path, *, mode: str, begin: str, on_connect: Any) -> Engine:
    def connect() -> sqlite3.Connection:
        # No transactions of Python's own: `begin` below opens them, so that savepoints and DDL are inside.
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_KEPT_STATEMENTS,
        )

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=8, max_overflow=-1)
    event.listen(engine, "connect", on_connect)

    def open_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "begin", open_transaction)
    return engine


def _make_durable(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise DatabaseRefused(
            f"The disk under the database cannot keep a write-ahead log (journal mode `{mode}`).",
            hint="Put the state directory on a local disk, or use PostgreSQL (DB_TYPE=Pg).",
        )
    # In WAL mode NORMAL would not sync at commit: a power cut could lose changes that were acknowledged.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {_LONGEST_IDLE_WAL_BYTES}")


def _only_queries(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.execute("PRAGMA query_only = ON")


def _postgresql(url: URL, *, size: int, options: str) -> Engine:
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"options": options, "connect_timeout": 10},
        pool_size=size,
        max_overflow=0 if size == 1 else -1,
        pool_pre_ping=size > 1,
    )
