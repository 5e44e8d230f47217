"""Copies of a database: made while its server works, checked, and put in its place when no server does."""

import errno
import itertools
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, text

from oarlock.model.errors import DatabaseRefused
from oarlock.store import migrations
from oarlock.store.engine import engines, facts
from oarlock.store.engine.opening import migrate_back, parse_address
from oarlock.store.engine.server_lock import FileLock, take_for_restore, this_process

ReportProgress = Callable[[str], None]
"""Takes a line about the progress of long work."""

_PAGES = 2_000  # copied between two looks at the clock
_SAY_SECONDS = 2.0
_GOOD_FILE = "Name a file that `oarlock backup` made, or a copy of a whole database."


@dataclass(frozen=True, slots=True)
class BackupCopy:
    """A finished copy of a database."""

    file: str
    bytes: int
    identity: str
    jobs: int


def copy(source: Path, target: Path, say: ReportProgress) -> BackupCopy:
    """Copy an SQLite database as it is at one instant, and check the copy; `target` appears when it is on disk."""
    try:
        with written_whole(target) as partial:
            _copy(source, partial, say)
            about = check(partial)
    except (OSError, sqlite3.Error) as problem:
        raise _not_copied(source, target, problem) from problem
    return BackupCopy(str(target), target.stat().st_size, about.identity, about.jobs)


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield a new file beside `target`, which takes its name when the block has ended and it is on disk.

    Its name has this machine and this process in it: of two backups to one file each writes its own, and the name is
    never that of half a file. What killed processes of this machine left is removed; a device is not replaced.
    """
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "It is not a regular file", str(target))
    begins = f".{target.name}.{socket.gethostname()}-"
    _remove_left(target.parent, begins)
    partial = target.with_name(f"{begins}{os.getpid()}.partial")
    try:
        partial.touch(mode=0o600, exist_ok=False)
        yield partial
        # First the content, then the name, then the directory: a power cut leaves a whole copy or none.
        _to_disk(partial)
        partial.replace(target)
        _to_disk(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _remove_left(folder: Path, begins: str) -> None:
    """Remove what a process that is gone wrote, and what SQLite had beside it."""
    for path in folder.iterdir():
        number = path.name.removeprefix(begins).partition(".")[0]
        is_left = number == str(os.getpid()) or (number.isdecimal() and not Path(f"/proc/{number}").exists())
        if path.name.startswith(begins) and is_left:
            path.unlink(missing_ok=True)


def _copy(source: Path, partial: Path, say: ReportProgress) -> None:
    with closing(_read_only(source)) as database, closing(sqlite3.connect(partial)) as target:
        database.execute("BEGIN")  # one instant, however long it takes and whatever is written meanwhile
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        database.backup(target, pages=_PAGES, progress=_progress(say))
        target.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, with nothing beside it


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _progress(say: ReportProgress) -> Callable[[int, int, int], None]:
    """Return a callback that reports the progress now and then."""
    next_at = time.monotonic() + _SAY_SECONDS

    def report(_status: int, left: int, pages: int) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at and pages:
            next_at = time.monotonic() + _SAY_SECONDS
            say(f"{100 * (pages - left) // pages} % copied")

    return report


def _to_disk(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _not_copied(source: Path, target: Path, problem: OSError | sqlite3.Error) -> DatabaseRefused:
    says = " ".join(str(problem.strerror if isinstance(problem, OSError) else problem).split())
    return DatabaseRefused(
        f"{source} cannot be copied to {target}: {says}.",
        hint="Nothing was changed. Make room, or name a place that can be written.",
    )


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """Facts stored in a copy."""

    identity: str
    jobs: int


def check(path: Path) -> BackupFacts:
    """Check all of a copy; raise `DatabaseRefused` if it is damaged, not Oarlock's, or of a newer version."""
    try:
        with closing(_read_only(path)) as connection:
            ((verdict,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            (identity,) = connection.execute("SELECT value FROM instance WHERE name = 'identity'").fetchone()
            (jobs,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
    except (sqlite3.Error, TypeError) as problem:
        says = " ".join(str(problem).split())
        raise DatabaseRefused(f"{path} is not a whole database of Oarlock: {says}.", hint=_GOOD_FILE) from problem
    refuse_unknown_form(path, revision)
    return BackupFacts(identity, jobs)


def refuse_unknown_form(file: Path, revision: str) -> None:
    """Refuse a copy that a newer version made, or one from before the first release."""
    migrations.refuse_unknown_form(str(file), revision, instead=f"Nothing was changed. {_GOOD_FILE}")


def refuse_foreign(file: Path, identity: str, marker: Path) -> None:
    """Refuse a copy of another instance than the one that the marker remembers."""
    if marker.exists() and (remembered := marker.read_text().partition("\n")[0]) != identity:
        raise DatabaseRefused(
            f"{file} is of another instance: it is {identity}, {marker} says {remembered}.",
            hint=f"Name a backup of this instance. If that one is meant to replace it, remove {marker} first.",
        )


def restore(file: Path, path: Path, marker: Path, *, now: int, say: ReportProgress) -> Path | None:
    """Replace an SQLite database that no server uses by a copy; return where the old one is kept.

    The old one is kept under a name of its own. The server that opens the new one begins a generation.
    """
    if not file.is_file():
        raise DatabaseRefused(f"There is no file {file}.", hint=_GOOD_FILE)
    held = FileLock(path.with_name(f"{path.name}.lock"), this_process(now))
    try:
        say(f"checking {file}")
        refuse_foreign(file, check(file).identity, marker)
        new = path.with_name(f"{path.name}.restoring")
        try:
            copy(file, new, say)
            _note_restore(new, file)
            return _replace(path, new, now)
        finally:
            new.unlink(missing_ok=True)
    finally:
        held.release()


def _note_restore(new: Path, file: Path) -> None:
    with closing(sqlite3.connect(new)) as connection, connection:
        connection.execute("DELETE FROM instance WHERE name = ?", (facts.RESTORED,))
        connection.execute("INSERT INTO instance (name, value) VALUES (?, ?)", (facts.RESTORED, str(file)))
    _to_disk(new)


def _replace(path: Path, new: Path, now: int) -> Path | None:
    """Exchange the files. What was not yet in the main file of the old one goes into it first, or along with it."""
    if not path.exists():
        new.replace(path)
        _to_disk(path.parent)
        return None
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    kept = path.with_name(_unused(f"{path.name}.before-restore-{when}", {path.name for path in path.parent.iterdir()}))
    try:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        pass  # a damaged one is kept with all its parts
    # A link, not a rename: at no instant is there no database under its name.
    os.link(path, kept)
    for ending in ("-wal", "-shm"):
        beside = path.with_name(path.name + ending)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + ending))
    new.replace(path)
    _to_disk(path.parent)
    return kept


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A PostgreSQL database for its client programs; the address has no password."""

    url: URL
    address: str
    password: str


def locate(address_or_path: str | Path) -> Path | PostgresAddress:
    """Return where a database is: a file, or what PostgreSQL's programs need."""
    place = parse_address(address_or_path)
    if isinstance(place, Path):
        return place
    address = place.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    return PostgresAddress(place, address, str(place.password or ""))


class PostgresExchange:
    """Exchanges the tables of a PostgreSQL database that no server uses; the old ones stay in another schema."""

    def __init__(self, where: PostgresAddress, *, now: int) -> None:
        self._engine = engines.writer(where.url)
        self._now = now

    def run(self, load: Callable[[], None], source: str) -> str:
        """Move the tables aside, have the dump loaded, note where it came from; return the schema of the old tables."""
        try:
            with self._engine.connect() as connection:
                return self._exchange(connection, load, source)
        finally:
            self._engine.dispose()  # closes the connection, and with it ends the lock

    def _exchange(self, connection: Connection, load: Callable[[], None], source: str) -> str:
        with connection.begin():
            take_for_restore(connection)
            schemas = connection.execute(text("SELECT nspname FROM pg_namespace")).scalars()
            kept = _unused(f"before_restore_{self._now}", set(schemas))
            connection.execute(text(f"ALTER SCHEMA public RENAME TO {kept}"))
            connection.execute(text("CREATE SCHEMA public"))
        try:
            load()
            with connection.begin():
                facts.put(connection, facts.RESTORED, source)
        except BaseException:
            with connection.begin():
                connection.execute(text("DROP SCHEMA public CASCADE"))
                connection.execute(text(f"ALTER SCHEMA {kept} RENAME TO public"))
            raise
        return kept


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number behind it if it is taken: two restores may begin within one second."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(unused for unused in names if unused not in taken)


def step_back(place: Path | PostgresAddress, form: str, *, now: int) -> tuple[str, str]:
    """Bring a database that no server uses back to an older form; return the one it had, and the copy of a file."""
    if isinstance(place, Path):
        if not place.is_file():
            raise DatabaseRefused(f"There is no database at {place}.", hint="Name the state directory with --state.")
        held = FileLock(place.with_name(f"{place.name}.lock"), this_process(now))
        try:
            before, copy = migrate_back(place, form)
        finally:
            held.release()
        return before, str(copy or "")
    engine = engines.writer(place.url)
    try:
        with engine.connect() as connection:  # the lock lives as long
            take_for_restore(connection)
            before, _ = migrate_back(place.url, form)
    finally:
        engine.dispose()
    return before, ""
