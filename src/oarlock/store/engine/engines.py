"""Connections to the two databases: durable for the writer, read-only for readers and for the account of sites."""

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from oarlock.model.errors import DatabaseRefused
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import HIDDEN_JOB_COLUMNS, metadata

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


def heartbeat(where: URL) -> Engine:
    """Create the engine of a server's heartbeat: a beat that a crash loses is the next one's place."""
    return _postgresql(where, size=1, options="-c synchronous_commit=off -c statement_timeout=5s")


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


_SECRET_TABLES = frozenset(
    {
        "array_members",
        "array_texts",
        "audit",
        "browser_sessions",
        "challenges",
        "finding_snoozes",
        "finding_warnings",
        "instance",
        "job_scripts",
        "job_shares",
        "mail_choices",
        "mails",
        "notices",
        "request_ids",
        "saved_views",
        "software_days",
        "tokens",
    }
)
_HIDDEN: Mapping[str, frozenset[str]] = {
    "jobs": HIDDEN_JOB_COLUMNS,
    "attempts": frozenset({"secret_hash", "nonce"}),
    "unknown_attempts": frozenset({"tag"}),
}
_SECONDS = 60


def grant_reader(tx: Tx, role: str, *, password: str) -> None:
    """Create or update the account, and grant it what it may read and nothing else. PostgreSQL only.

    Called at every start, so that tables of a newer version are readable too. `DatabaseRefused` if the server's own
    account may not do that, or if both names are the same: the server would lose its rights.
    """
    connection = tx.connection.driver_connection
    assert isinstance(connection, psycopg.Connection)  # noqa: S101  (tells mypy)
    if role == connection.info.user:
        raise DatabaseRefused(f"`{role}` is the server's own account.", hint="Choose another DB_BASE_LOGIN_RO.")
    exists = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone()
    verb = sql.SQL("ALTER" if exists else "CREATE")
    # Hashed here, so that the password itself never stands in PostgreSQL's log of statements.
    hashed = connection.pgconn.encrypt_password(password.encode(), role.encode()).decode()
    try:
        for statement in _statements(verb, sql.Identifier(role), sql.Literal(hashed), connection.info.dbname):
            connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseRefused(
            f"The read-only account `{role}` cannot be made: {error.diag.message_primary}.",
            hint=f"Run `ALTER ROLE {connection.info.user} CREATEROLE`, or remove DB_BASE_PASSWD_RO from the settings.",
        ) from error


def _statements(verb: sql.SQL, role: sql.Identifier, password: sql.Literal, database: str) -> Iterable[sql.Composed]:
    yield sql.SQL(
        "{} ROLE {} LOGIN PASSWORD {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS"
    ).format(verb, role, password)
    yield sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(role)
    yield sql.SQL("ALTER ROLE {} SET statement_timeout = {}").format(role, sql.Literal(f"{_SECONDS}s"))
    yield sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), role)
    # A schema that a restore created has no rights for everybody, unlike the first one.
    yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(role)
    yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(role)
    for table in metadata.sorted_tables:
        hidden = _HIDDEN.get(table.name)
        if table.name in _SECRET_TABLES:
            continue
        if hidden is None:
            yield sql.SQL("GRANT SELECT ON {} TO {}").format(sql.Identifier(table.name), role)
        else:
            columns = [sql.Identifier(column.name) for column in table.columns if column.name not in hidden]
            yield sql.SQL("GRANT SELECT ({}) ON {} TO {}").format(
                sql.SQL(", ").join(columns), sql.Identifier(table.name), role
            )
