"""Backup and restore of an instance's database: SQLite by itself, PostgreSQL by its own programs."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from oarlock.config import Config
from oarlock.model.errors import DatabaseRefused
from oarlock.server.instance import database_address, prepare_state_dir
from oarlock.store.engine import backup as store
from oarlock.store.engine.backup import BackupCopy, PostgresAddress, PostgresExchange, ReportProgress

_NOTE = "last-backup.json"
_PARTS = re.compile(r"^(\S+)\t(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore: its file, and where the old database is kept."""

    file: str
    kept: str


@dataclass(frozen=True, slots=True)
class LastBackup:
    """When the newest backup of an instance was made, and where it was put."""

    at: float
    file: str


def last_backup(state_dir: Path) -> LastBackup | None:
    """Return the newest backup that was noted in a state directory."""
    try:
        noted = json.loads((state_dir / _NOTE).read_text())
        return LastBackup(float(noted["at"]), str(noted["file"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def backup(state_dir: Path, config: Config, file: Path, say: ReportProgress) -> BackupCopy:
    """Copy the database of an instance to a file, whether its server runs or not; `oarlock doctor` knows of it."""
    where = store.locate(database_address(state_dir, config))
    if isinstance(where, Path) and not where.exists():
        raise DatabaseRefused(f"There is no database at {where}.", hint="Name the state directory with --state.")
    made = _dump(where, file) if isinstance(where, PostgresAddress) else store.copy(where, file, say)
    _note_backup(state_dir, file)
    return made


def _note_backup(state_dir: Path, file: Path) -> None:
    """Note a backup; where the state directory is full or another's, the copy is good without the note."""
    early = state_dir / f".{_NOTE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        early.write_text(json.dumps({"at": time.time(), "file": str(file.absolute())}))
        early.replace(state_dir / _NOTE)


def restore(state_dir: Path, config: Config, file: Path, say: ReportProgress) -> RestoreResult:
    """Replace the database by a backup; refused while a server runs. The old database is kept."""
    prepare_state_dir(state_dir)
    where, marker = store.locate(database_address(state_dir, config)), state_dir / "oarlock.db.created"
    now = int(time.time())
    if isinstance(where, Path):
        kept = store.restore(file.absolute(), where, marker, now=now, say=say)
        return RestoreResult(str(file), str(kept or ""))
    say(f"checking {file}")
    facts = _facts_of(file)
    store.refuse_foreign(file, facts.get("identity", ""), marker)
    loading = [_program("pg_restore"), "--single-transaction", "--exit-on-error", "--no-owner", "--no-acl"]

    def load() -> None:
        _run([*loading, f"--dbname={where.address}", str(file)], where, f"{file} cannot be restored")

    return RestoreResult(str(file), f"schema {PostgresExchange(where, now=now).run(load, str(file.absolute()))}")


def _dump(where: PostgresAddress, file: Path) -> BackupCopy:
    partial = file.with_name(f".{file.name}.partial")
    command = [_program("pg_dump"), "--format=custom", "--exclude-schema=before_restore_*", f"--file={partial}"]
    try:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        _run([*command, f"--dbname={where.address}"], where, f"The database cannot be copied to {file}")
        facts = _facts_of(partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(file)
    except OSError as problem:
        raise DatabaseRefused(
            f"The database cannot be copied to {file}: {problem.strerror}.", hint="Name a place that can be written."
        ) from problem
    finally:
        partial.unlink(missing_ok=True)
    return BackupCopy(str(file), file.stat().st_size, facts.get("identity", ""), _rows(file, "jobs"))


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise DatabaseRefused(
            f"`{name}` is not installed on this machine.",
            hint="Install PostgreSQL's client programs (Debian: postgresql-client), of the server's version or newer.",
        )
    return path


def _run(command: list[str], where: PostgresAddress | None, refused: str) -> str:
    """Run a program of PostgreSQL; the password goes by the environment, which others cannot read."""
    environment = {**os.environ, "PGPASSWORD": where.password} if where and where.password else None
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - a list
    if completed.returncode:
        says = " ".join(completed.stderr.split())[-400:] or f"exit {completed.returncode}"
        raise DatabaseRefused(f"{refused}: {says}", hint="Nothing was changed.")
    return completed.stdout


def _table(file: Path, name: str) -> str:
    """Return the rows of a table in a dump, as `COPY` writes them."""
    if not file.is_file():
        raise DatabaseRefused(f"There is no file {file}.", hint="Name a file that `oarlock backup` made.")
    command = [_program("pg_restore"), "--data-only", f"--table={name}", "--file=-", str(file)]
    return _run(command, None, f"{file} is not a whole backup").partition("FROM stdin;\n")[2].partition("\n\\.")[0]


def _facts_of(file: Path) -> dict[str, str]:
    """Read the facts of a dump; raise `DatabaseRefused` if it is not Oarlock's, or of a newer version."""
    facts = dict(_PARTS.findall(_table(file, "instance")))
    if "identity" not in facts:
        raise DatabaseRefused(
            f"{file} is not a backup of a database of Oarlock.", hint="Name a file that `oarlock backup` made."
        )
    store.refuse_unknown_form(file, _table(file, "alembic_version").strip())
    return facts


def _rows(file: Path, name: str) -> int:
    rows = _table(file, name)
    return rows.count("\n") + 1 if rows else 0
