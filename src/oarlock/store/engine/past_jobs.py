"""Archives of purged jobs: SQLite files with the tables of a database, in `past/` of the state directory."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from oarlock.model.errors import DatabaseRefused
from oarlock.store import migrations
from oarlock.store.engine import engines
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx

_FOLDER = "past"
T = TypeVar("T")


def archive_of(state_dir: Path, name: str) -> Path:
    """Return where an archive is kept."""
    return state_dir / _FOLDER / f"{name}.db"


def archives(state_dir: Path) -> list[Path]:
    """Return the archives of an instance, that of the latest jobs first."""
    return sorted((state_dir / _FOLDER).glob("*.db"), reverse=True)


def write_archive(file: Path, change: Callable[[Tx], T]) -> T:
    """Run a change in an archive, which is made if there is none; it is on disk when this returns."""
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with open_database(file, create=True, marker=file.with_suffix(".made")) as database:
            return database.write(change)
    except OSError as error:
        raise DatabaseRefused(
            f"The archive {file} cannot be written: {error.strerror}.", hint="Nothing was deleted. Make room."
        ) from error


@contextmanager
def open_archive(file: Path) -> Iterator[Tx]:
    """Yield a transaction that reads an archive; one of an older version is brought up to date first."""
    _bring_up_to_date(file)
    engine = engines.reader(file)
    try:
        with engine.connect() as tx, tx.begin():
            yield tx
    except DBAPIError as error:
        raise DatabaseRefused(
            f"The archive {file} cannot be read: {' '.join(str(error.orig).split())}.",
            hint="Put a copy of it in its place, or move it away.",
        ) from error
    finally:
        engine.dispose()


def _bring_up_to_date(file: Path) -> None:
    engine = engines.reader(file)
    try:
        with engine.connect() as tx:
            revision = tx.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except DBAPIError:
        return  # whoever reads it next is told
    finally:
        engine.dispose()
    if revision != migrations.REVISIONS[-1] and os.access(file, os.W_OK):
        open_database(file, marker=file.with_suffix(".made")).close()
