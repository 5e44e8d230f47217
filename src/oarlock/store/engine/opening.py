"""Open a database, or refuse with the reason: never start empty where there was a database. In memory, too."""

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, insert, inspect, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from oarlock.failpoints import failpoint
from oarlock.model.errors import DatabaseRefused
from oarlock.store import migrations
from oarlock.store.engine import engines
from oarlock.store.engine.database import Closing, Database
from oarlock.store.engine.tx import Tx
from oarlock.store.engine.writer import Change
from oarlock.store.tables import instance

if TYPE_CHECKING:
    from alembic.config import Config

_CHECK_SECONDS = 3.0
_MIGRATION_KEY = 0x6F61726D6967  # "oarmig"
_RESTORE = (
    "Keep the file as it is and put the last backup in its place; `sqlite3 FILE .recover` saves what can be read."
)


def open_database(where: str | Path, *, create: bool = False, marker: Path | None = None) -> Database:
    """Open a database: a file (SQLite), or a `postgresql://…` address.

    With `create` one is made where there never was any. The marker file (beside an SQLite file by default) remembers
    that there was one, so that a database that went missing is refused instead of begun anew. An older one is brought
    up to date, after a copy on SQLite; a newer, damaged or foreign one is refused. All refusals are `DatabaseRefused`.
    """
    address = parse_address(where)
    engine = engines.writer(address)
    try:
        if isinstance(address, Path):
            marker = marker or _beside(address, "created")
            _prepare_file(address, create=create, marker=marker)
        _bring_up_to_date(engine, address, create=create, marker=marker)
    except (DBAPIError, OSError) as error:
        raise _unusable(address, error) from error
    finally:
        engine.dispose()
    return Database(address)


@contextmanager
def open_for_check(address: Path | URL) -> Iterator[Tx]:
    """Open a transaction that only reads, on a database that may be damaged (`DatabaseRefused`)."""
    engine = engines.reader(address)
    try:
        with engine.connect() as tx, tx.begin():
            yield tx
    except DBAPIError as error:
        if isinstance(address, Path) and not os.access(address, os.R_OK):
            reason = "there is no such file" if not address.exists() else "it is not readable for this account"
            raise DatabaseRefused(
                f"The database {address} cannot be checked: {reason}.",
                hint="Run this as the account that serves, with its --state or --config.",
            ) from error
        raise DatabaseRefused(
            f"The database cannot be checked: {' '.join(str(error.orig).split())}.",
            hint="If its file is damaged, put the last backup in its place (`oarlock restore`).",
        ) from error
    finally:
        engine.dispose()


def migrate(tx: Tx, to: str = "head") -> None:
    """Run the steps that lead to a form, the newest by default, inside the given transaction; back if it is older."""
    # Alembic takes a fifth of a second to import, and is needed once in the life of a database.
    from alembic import command

    present = _revision(tx)
    goes_back = present is not None and to != "head" and int(to) < int(present)
    (command.downgrade if goes_back else command.upgrade)(_alembic(tx), to)


def _alembic(tx: Tx) -> "Config":
    """Build the settings of Alembic for steps inside a transaction."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations.SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = tx
    return config


def migrate_back(where: Path | URL, to: str) -> tuple[str, Path | None]:
    """Bring a database that no server uses back to an older form, after a copy on SQLite.

    Return the form that it had, and the copy. What only the newer form holds is lost.
    """
    engine = engines.writer(where)
    try:
        with engine.begin() as tx:
            if tx.dialect.name == "postgresql":
                _prepare_postgresql(tx)
            revision = _revision(tx)
            if revision is None:
                raise DatabaseRefused(f"There is no database at {_shown(where)}.", hint="Name it with --state.")
            migrations.refuse_unknown_form(_shown(where), revision, instead="Use the version that made it.")
            if int(revision) < int(to):
                raise DatabaseRefused(
                    f"The database {_shown(where)} is older already (its form is `{revision}`, not `{to}`).",
                    hint="Start the version that you have: it brings the tables up to date.",
                )
            copy = None
            if revision != to:
                if isinstance(where, Path):
                    _copy(where, copy := _beside(where, f"before-{to}-from-{revision}"))
                migrate(tx, to)
    except DBAPIError as error:
        raise _unusable(where, error) from error
    finally:
        engine.dispose()
    return revision, copy


def parse_address(where: str | Path) -> Path | URL:
    """Return where a database is: a path, or a PostgreSQL address; other kinds are refused (`DatabaseRefused`)."""
    if isinstance(where, Path) or "://" not in where:
        return Path(where)
    url = make_url(where)
    if url.get_backend_name() != "postgresql":
        raise DatabaseRefused(
            f"A database of kind `{url.get_backend_name()}` cannot be used.",
            hint="Oarlock keeps its data in SQLite (a path) or in PostgreSQL (postgresql://…).",
        )
    return url


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _shown(place: Path | URL) -> str:
    return str(place) if isinstance(place, Path) else place.render_as_string(hide_password=True)


def _prepare_file(path: Path, *, create: bool, marker: Path) -> None:
    """Check that the file is intact and readable by us alone; an empty one counts as missing."""
    if not path.exists() or path.stat().st_size == 0:
        _refuse_gone(path, marker)
        if not create:
            raise _missing(path)
        if not path.parent.is_dir():
            raise DatabaseRefused(f"There is no directory {path.parent} for the database.", hint="Make it first.")
        path.touch(mode=0o600)
        return
    if not path.is_file():
        raise DatabaseRefused(f"{path} is no file, so no database can be there.", hint="Name a file in a directory.")
    path.chmod(0o600)
    _check_whole(path)


def _check_whole(path: Path) -> None:
    """Refuse a file that is damaged. A very large one is looked at for a few seconds only: `oarlock check` does all."""
    give_up_at = time.monotonic() + _CHECK_SECONDS
    try:
        with closing(sqlite3.connect(path, timeout=engines.BUSY_SECONDS)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > give_up_at, 100_000)
            ((verdict,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        if "interrupted" in str(error):
            return
        verdict = str(error)
    if verdict != "ok":
        raise DatabaseRefused(f"The database {path} is damaged: {' '.join(verdict.split())}.", hint=_RESTORE)


def _bring_up_to_date(engine: Engine, place: Path | URL, *, create: bool, marker: Path | None) -> None:
    with engine.begin() as tx:
        if tx.dialect.name == "postgresql":
            _prepare_postgresql(tx)
        revision = _revision(tx)
        if revision is None:
            _begin(tx, place, create=create, marker=marker)
        else:
            migrations.refuse_unknown_form(
                f"The database {_shown(place)}", revision, instead=_begin_with_another(place, marker)
            )
            if revision != (newest := migrations.REVISIONS[-1]):
                if isinstance(place, Path):
                    _copy(place, _beside(place, f"before-{newest}"))
                migrate(tx)
        identity = tx.execute(select(instance.c.value).where(instance.c.name == "identity")).scalar_one()
    if marker is not None:
        _mark(marker, identity, place)


def _begin_with_another(place: Path | URL, marker: Path | None) -> str:
    """Return how to go on without a database that cannot be brought up to date."""
    move = "move it away" if isinstance(place, Path) else "name an empty one in DB_BASE_NAME"
    remove = f" and remove {marker}" if marker is not None else ""
    return f"Let its jobs end with the version that made it; then {move}{remove}: `oarlock serve` begins a new one."


def _prepare_postgresql(tx: Tx) -> None:
    """Lock out other processes that create or migrate tables; on SQLite, BEGIN IMMEDIATE does that."""
    tx.execute(select(func.pg_advisory_xact_lock(_MIGRATION_KEY)))
    if (encoding := tx.execute(text("SHOW server_encoding")).scalar_one()) != "UTF8":
        raise DatabaseRefused(
            f"The database has the encoding {encoding}; names would not survive it.",
            hint="Make it with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`.",
        )


def _revision(tx: Tx) -> str | None:
    """Return the migration that a database is at; None if it is empty."""
    if inspect(tx).has_table("alembic_version"):
        return tx.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return None


def _begin(tx: Tx, place: Path | URL, *, create: bool, marker: Path | None) -> None:
    """Create the tables in an empty database."""
    if strangers := sorted(inspect(tx).get_table_names()):
        raise DatabaseRefused(
            f"The database {_shown(place)} holds tables of something else ({', '.join(strangers[:3])} …).",
            hint="Oarlock needs a database of its own; a running OAR's is never touched.",
        )
    if tx.dialect.name == "postgresql":
        _refuse_half_restored(tx, place)
    if marker is not None:
        _refuse_gone(place, marker)
    if not create:
        raise _missing(place)
    migrate(tx)
    tx.execute(insert(instance), {"name": "identity", "value": uuid.uuid4().hex})


_MOVED_ASIDE = text(
    "SELECT schemaname FROM pg_tables WHERE schemaname LIKE 'before_restore_%' AND tablename = 'jobs' ORDER BY 1 DESC"
)


def _refuse_half_restored(tx: Tx, place: Path | URL) -> None:
    """Refuse to begin anew where a restore was killed; a standby server has no marker file that would tell."""
    if schema := tx.execute(_MOVED_ASIDE).scalar():
        raise DatabaseRefused(
            f"The database {_shown(place)} is empty since a restore was broken off: what was there is in the schema "
            f"{schema}.",
            hint="Do the restore again (`oarlock restore FILE`).",
        )


def _refuse_gone(place: Path | URL, marker: Path) -> None:
    if marker.exists():
        raise DatabaseRefused(
            f"The database {_shown(place)} is empty or gone, but there was one: {marker} says so.",
            hint=f"Put the last backup back. To begin with nothing, and lose every job, remove {marker} first.",
        )


def _missing(place: Path | URL) -> DatabaseRefused:
    return DatabaseRefused(
        f"There is no database at {_shown(place)}.", hint="`oarlock serve` makes one at first start."
    )


def _mark(marker: Path, identity: str, place: Path | URL) -> None:
    """Write the marker file; raise `DatabaseRefused` if it names another database."""
    if not marker.exists() or marker.stat().st_size == 0:  # an empty one is of a process that died at this point
        # Written beside it first: a file that is only half there would refuse its own database for ever.
        partial = _beside(marker, "partial")
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        with partial.open("w") as file:
            file.write(f"{identity}\nA database was made here. As long as this file is, none is begun anew.\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(marker)
    elif (remembered := marker.read_text().partition("\n")[0]) != identity:
        raise DatabaseRefused(
            f"The database {_shown(place)} is not the one that was here: it is {identity}, {marker} says {remembered}.",
            hint=f"Put the right database back. If this one is meant to replace it, remove {marker} first.",
        )


def _copy(source: Path, target: Path) -> None:
    """Copy a database, whole or not at all."""
    partial = _beside(target, "partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    with closing(sqlite3.connect(source)) as source_db, closing(sqlite3.connect(partial)) as target_db:
        source_db.backup(target_db)
    partial.replace(target)


def _unusable(place: Path | URL, error: DBAPIError | OSError) -> DatabaseRefused:
    reason = " ".join(str(error.orig if isinstance(error, DBAPIError) else error.strerror).split())
    if isinstance(place, URL):
        hint = "Is the server running, and are DB_HOSTNAME and DB_BASE_LOGIN right?"
    else:
        hint = "The server needs to read and write this file and its directory."
    return DatabaseRefused(f"The database {_shown(place)} cannot be used: {reason}.", hint=hint)


T = TypeVar("T")


class MemoryDatabase(Closing):
    """Read with `read`, change with `write`; of one thread only, and both on the one connection there is."""

    def __init__(self) -> None:
        self._connection = connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        _empty().backup(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        self._engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
        event.listen(self._engine, "begin", _memory_begin)
        self._tx = self._engine.connect()

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """Yield a transaction for reading."""
        with self._tx.begin():
            yield self._tx

    def write(self, change: Change[T]) -> T:
        """Run a change. What it raises is raised here, and nothing was changed."""
        with self._tx.begin():
            value = change(self._tx)
            failpoint("commit")
        failpoint("committed")
        return value

    def copy(self) -> sqlite3.Connection:
        """Copy it as it is now."""
        target = sqlite3.connect(":memory:")
        self._connection.backup(target)
        return target

    def put_back(self, copy: sqlite3.Connection) -> None:
        """Replace it by a copy."""
        copy.backup(self._connection)
        self._tx.info.clear()  # what the writer counts in memory

    def close(self) -> None:
        """Close all connections."""
        self._tx.close()
        self._engine.dispose()


def _memory_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


@cache
def _empty() -> sqlite3.Connection:
    """Create the tables once a process: that takes longer than to simulate a thousand jobs."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    with engine.begin() as tx:
        migrate(tx)
        tx.execute(insert(instance), {"name": "identity", "value": "in memory"})
    return connection
