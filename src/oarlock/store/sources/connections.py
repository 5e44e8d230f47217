"""Connections to databases of others: PostgreSQL or MariaDB, read-only, with a deadline for every statement."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from oarlock.model.errors import ConfigRefused
from oarlock.model.source import STATEMENT_SECONDS, SourceAway

_POSTGRESQL = frozenset({"postgresql", "postgres"})
_MARIADB = frozenset({"mysql", "mariadb"})
_CONNECT_SECONDS = 2
_EXAMPLE = "Write postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE."


def parse_address(text: str, password: str = "", *, setting: str = "SOURCE_DATABASE") -> URL:
    """Parse the address of a database; `ConfigRefused` if it is none, or has a password in it."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigRefused(f"{setting} is not the address of a database.", hint=_EXAMPLE) from None
    if url.password:
        raise ConfigRefused(
            f"{setting} holds a password.",
            hint=f"Take it out, and name a file: {setting.partition('_')[0]}_PASSWORD=file:PATH.",
        )
    if url.drivername not in _POSTGRESQL | _MARIADB:
        raise ConfigRefused(f"{setting} begins with `{url.drivername[:40]}://`.", hint=_EXAMPLE)
    driver = "postgresql+psycopg" if url.drivername in _POSTGRESQL else "mysql+pymysql"
    return url.set(drivername=driver, password=password or None)


class ForeignDatabase:
    """A database of somebody else. `name` is what people call it, `seconds` how long a statement may take."""

    def __init__(self, url: URL, name: str, *, seconds: float = STATEMENT_SECONDS) -> None:
        self.name = name
        self._engine = _engine(url, seconds)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a transaction that cannot write; `SourceAway` if the database fails or takes too long."""
        try:
            with self._engine.connect() as connection, connection.begin():
                yield connection
        except (TypeError, ValueError) as error:  # a column that is not what it is called
            raise SourceAway(
                self.name, f"its tables are not understood ({' '.join(str(error).split())[:200]})"
            ) from error
        except DBAPIError as error:
            raise SourceAway(self.name, _reason(error)) from error
        except SQLAlchemyError as error:
            raise SourceAway(self.name, " ".join(str(error).split())[:300]) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def open_file(path: Path, name: str) -> ForeignDatabase:
    """Open an SQLite file that nobody writes any more, for instance what a dump was loaded into."""
    return ForeignDatabase(URL.create("sqlite", database=str(path.absolute())), name)


def _reason(error: DBAPIError) -> str:
    original: Any = error.orig
    text = original.args[-1] if getattr(original, "args", None) and isinstance(original.args[-1], str) else original
    return " ".join(str(text).split()).rstrip(".")[:300]


def _engine(url: URL, seconds: float) -> Engine:
    if url.drivername == "sqlite":
        return create_engine(url, connect_args={"check_same_thread": False})
    if url.drivername.startswith("postgresql"):
        limit = f"-c default_transaction_read_only=on -c statement_timeout={int(seconds * 1000)}"
        arguments: dict[str, Any] = {"options": limit, "connect_timeout": _CONNECT_SECONDS}
        engine = create_engine(url, connect_args=arguments, pool_size=2, pool_pre_ping=True)
        return engine.execution_options(isolation_level="REPEATABLE READ")
    try:
        import pymysql  # noqa: F401  (an extra)
    except ImportError:
        raise ConfigRefused(
            "A MariaDB database is read by pymysql, which is not installed.", hint="pip install 'oarlock[mariadb]'"
        ) from None
    arguments = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": int(seconds) + 1, "charset": "utf8mb4"}
    engine = create_engine(url, connect_args=arguments, pool_size=2, pool_pre_ping=True, pool_recycle=600)
    event.listen(engine, "connect", partial(_guard_mariadb, seconds=seconds))
    return engine


def _guard_mariadb(connection: Any, _record: Any, *, seconds: float) -> None:
    """Make a session read-only; MariaDB and MySQL spell the deadline of statements differently."""
    import pymysql

    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
        try:
            cursor.execute(f"SET SESSION max_statement_time = {seconds:g}")
        except pymysql.err.Error:
            cursor.execute(f"SET SESSION max_execution_time = {int(seconds * 1000)}")
