"""An instance: its state directory, its database, and how both are opened by the one server that they have.

Commands that look at an instance use this, and load nothing else of a server.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from oarlock.config import Config
from oarlock.model.errors import DatabaseRefused, OarlockError
from oarlock.node import trust
from oarlock.server.process.clock import RealClock
from oarlock.settings.kinds import DbType
from oarlock.store.engine import facts
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.site.generation import GenerationMarks, MarkFile

log = logging.getLogger(__name__)


@contextlib.contextmanager
def open_instance(state_dir: Path, config: Config, *, announce: bool = False) -> Iterator[Database]:
    """Open the database of a state directory as its one server; a fresh directory gets a new one.

    `announce`: log that it is new, since a mistyped name makes a new one as well.
    """
    prepare_state_dir(state_dir)
    marker = state_dir / "oarlock.db.created"
    fresh = not marker.exists()
    with open_database(database_address(state_dir, config), create=fresh, marker=marker) as database:
        now = int(RealClock().now())
        database.lock(now=now)
        _grant_reader(database, config)
        marks = GenerationMarks(database, mark_file(state_dir))
        if marks.check(now=now) and announce:
            log.warning("%s held no instance: a new one begins there, without nodes and without jobs", state_dir)
        yield database
        with contextlib.suppress(OarlockError):  # another server may hold the database by now
            marks.renew()


def _grant_reader(database: Database, config: Config) -> None:
    """Create or update the read-only account if its password is set; if that fails, log it and go on."""
    if config.db_type is not DbType.POSTGRESQL or config.db_base_passwd_ro is None:
        return
    from oarlock.store.engine import engines  # late: a server on SQLite starts without psycopg

    role, password = config.db_base_login_ro, config.db_base_passwd_ro.value
    try:
        database.write(lambda tx: engines.grant_reader(tx, role, password=password))
    except DatabaseRefused as refused:
        log.warning("no read-only account", extra={"user": role, "why": str(refused), "hint": refused.hint})


def mark_file(state_dir: Path) -> MarkFile:
    """Return the file beside the database that records how far the database had come."""
    return MarkFile(state_dir / "oarlock.db.mark")


def default_state() -> Path:
    """Return the default state directory: the system's for root, one in the home directory for others."""
    if os.geteuid() == 0:
        return Path("/var/lib/oarlock")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "oarlock"


def state_of_commands() -> Path:
    """Return the state directory of the instance that commands speak to: the one of a socket in OARLOCK_SERVER."""
    server = os.environ.get("OARLOCK_SERVER", "").partition(",")[0]
    return Path(server).parent if server.startswith("/") else default_state()


def prepare_state_dir(state_dir: Path) -> None:
    """Create the directories of an instance; others may pass through, to the socket and to their jobs' files."""
    try:
        for path, mode in ((state_dir, 0o755), (state_dir / "spool", 0o700), (state_dir / "run", 0o755)):
            trust.make(str(path), mode)
            trust.check(str(path))
        trust.prepare(str(state_dir / "spool"), 0o700)
    except trust.UnsafeDirectory as unsafe:
        raise DatabaseRefused(
            f"The state directory {state_dir} is not safe: {unsafe}.",
            hint="What lies there is believed, so nobody but root and the server's user may write it or a directory "
            "above it. Name another with --state, or give it to that user and take the right to write from others.",
        ) from unsafe
    except OSError as error:
        raise DatabaseRefused(
            f"The state directory {state_dir} cannot be used: {error.strerror}.", hint="Name another with --state."
        ) from error


def database_address(state_dir: Path, config: Config) -> str | Path:
    """Return the path (SQLite) or the address (PostgreSQL) of the database."""
    if config.db_type is DbType.SQLITE:
        return state_dir / "oarlock.db"
    from urllib.parse import quote

    password = f":{quote(config.db_base_passwd.value, safe='')}" if config.db_base_passwd else ""
    who = f"{quote(config.db_base_login, safe='')}{password}"
    host = config.db_hostname
    if host.startswith("/"):
        return f"postgresql://{who}@/{config.db_base_name}?host={quote(host, safe='')}&port={config.db_port}"
    return f"postgresql://{who}@{host}:{config.db_port}/{config.db_base_name}"


def attempt_key(database: Database) -> bytes:
    """Return the key from which the secrets of attempts are made; made once in the life of a database."""
    return bytes.fromhex(database.write(lambda tx: facts.get_or_set(tx, "attempt key", secrets.token_hex(32))))
