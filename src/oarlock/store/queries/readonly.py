"""The read-only account (DB_BASE_LOGIN_RO): PostgreSQL itself keeps it from reading secrets.

Statistics, portals and administrators log in with it. It reads all tables but those with secrets, and of jobs and
attempts all columns but the hidden ones.
"""

from collections.abc import Iterable, Mapping

import psycopg
from psycopg import sql

from oarlock.model.errors import DatabaseRefused
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import HIDDEN_JOB_COLUMNS, metadata

_SECRET_TABLES = frozenset(
    {"array_members", "array_texts", "audit", "challenges", "tokens", "request_ids", "instance", "notices"}
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
