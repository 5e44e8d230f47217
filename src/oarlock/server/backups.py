"""Backup and restore of an instance: its database, and what it has beside it.

SQLite is copied by itself, PostgreSQL by its own programs. Settings, secrets, keys and, if wanted, samples and archives
of past jobs are in one tar file beside the copy, readable by its owner only. What stands there already is never
overwritten by a restore: a file that differs is written beside, under a name of its own.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from oarlock.config import Config, Loaded
from oarlock.model.errors import DatabaseRefused
from oarlock.server.instance import database_address, prepare_state_dir
from oarlock.settings.secret import Secret
from oarlock.store.engine import backup as store
from oarlock.store.engine.backup import BackupCopy, PostgresAddress, PostgresExchange, ReportProgress
from oarlock.store.migrations import form_of

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


@dataclass(frozen=True, slots=True)
class WayBack:
    """A database that was brought back to the form of an older release."""

    release: str
    before: str
    form: str
    copy: str


def step_back(state_dir: Path, config: Config, release: str) -> WayBack:
    """Bring the tables back to those of an older release; refused while a server runs."""
    form = form_of(release)
    where = store.locate(database_address(state_dir, config))
    before, kept = store.step_back(where, form, now=int(time.time()))
    return WayBack(release, before, form, kept)


def _dump(where: PostgresAddress, file: Path) -> BackupCopy:
    command = [_program("pg_dump"), "--format=custom", "--exclude-schema=before_restore_*"]
    try:
        with store.written_whole(file) as partial:
            dumping = [*command, f"--file={partial}", f"--dbname={where.address}"]
            _run(dumping, where, f"The database cannot be copied to {file}")
            facts = _facts_of(partial)
    except OSError as problem:
        raise DatabaseRefused(
            f"The database cannot be copied to {file}: {problem.strerror}.", hint="Name a place that can be written."
        ) from problem
    return BackupCopy(str(file), file.stat().st_size, facts.get("identity", ""), _rows(file, "jobs"))


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise DatabaseRefused(
            f"`{name}` is not installed on this machine.",
            hint="Install PostgreSQL's client programs (Debian: postgresql-client), of the server's version or newer.",
        )
    return path


def unpack_dump(file: Path, into: Path) -> None:
    """Write a dump in PostgreSQL's own format as text."""
    _run([_program("pg_restore"), "--no-owner", f"--file={into}", str(file)], None, f"{file} cannot be unpacked")


_PR_SET_PDEATHSIG = 1  # of prctl(2)


def end_with_parent() -> None:
    """Have the kernel end this process when its parent dies.

    A `pg_restore` that outlives a killed `oarlock restore`, which held the lock of the database, would put tables in
    place below a server that was started meanwhile. Without its client, the database takes all of it back.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _run(command: list[str], where: PostgresAddress | None, refused: str) -> str:
    """Run a program of PostgreSQL; the password goes by the environment, which others cannot read."""
    environment = {**os.environ, "PGPASSWORD": where.password} if where and where.password else None
    completed = subprocess.run(  # noqa: S603 - a list
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=end_with_parent,
    )
    if completed.returncode:
        says = " ".join(completed.stderr.split())[-400:] or f"exit {completed.returncode}"
        raise DatabaseRefused(f"{refused}: {says}", hint="Nothing was changed.")
    return completed.stdout


def _table(file: Path, name: str) -> str:
    """Return the rows of a table in a dump, as `COPY` writes them."""
    if not file.is_file():
        raise DatabaseRefused(f"There is no file {file}.", hint="Name a file that `oarlock backup` made.")
    command = [_program("pg_restore"), "--data-only", f"--table={name}", "--file=-", str(file)]
    rows = _run(command, None, f"{file} is not a whole backup").partition("FROM stdin;")[2]
    return rows.partition("\n\\.")[0].removeprefix("\n")  # of a table without rows only the end is left


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


_STATE, _ROOT = "state", "root"
_KEYS = ("keys",)
_SAMPLES = ("samples", "reports", "past")
_BESIDE_SETTINGS = ("id_ed25519", "id_ed25519.pub", "known_hosts")
_ENDING = ".site.tar"
_ASIDE = ".from-backup"


class SiteRestore(NamedTuple):
    """What a restore_site_files did: files that were put back, and those that were written beside ones that differ."""

    restored: list[str]
    aside: list[str]


def site_archive_of(backup: Path) -> Path:
    """Return the file beside a copy of the database."""
    return backup.with_name(backup.name + _ENDING)


def save_site_files(backup: Path, loaded: Loaded, state_dir: Path, *, samples: bool) -> int:
    """Write settings and keys beside a copy of the database; return how many files they are."""
    target = site_archive_of(backup)
    count = 0
    try:
        with store.written_whole(target) as partial, tarfile.open(partial, "w", dereference=True) as archive:
            for name, path in _members(loaded, state_dir, samples=samples):
                count += _add(archive, name, path)
    except OSError as problem:
        raise DatabaseRefused(
            f"Settings and keys cannot be copied to {target}: {problem.strerror or problem}.",
            hint="The copy of the database is good. Make room, or name a place that can be written.",
        ) from problem
    return count


def _members(loaded: Loaded, state_dir: Path, *, samples: bool) -> Iterator[tuple[str, Path]]:
    """Yield the files, each with its name in the archive: below the state directory, or below `/`."""
    for folder in (*_KEYS, *(_SAMPLES if samples else ())):
        for path in sorted((state_dir / folder).rglob("*")):
            yield f"{_STATE}/{path.relative_to(state_dir)}", path
    named = {path.absolute() for path in _named_by(loaded)}
    if loaded.file is not None:
        named |= {loaded.file.absolute(), *(loaded.file.absolute().with_name(name) for name in _BESIDE_SETTINGS)}
    for path in sorted(named):
        for file in sorted(path.rglob("*")) if path.is_dir() else (path,):
            if not file.is_relative_to(state_dir.absolute()):
                yield f"{_ROOT}{file}", file


def _named_by(loaded: Loaded) -> Iterator[Path]:
    """Yield the files and folders that the settings name: secrets, certificates, rules, quotas."""
    for setting in fields(loaded.config):
        value = getattr(loaded.config, setting.name)
        if isinstance(value, Secret) and value.file is not None:
            yield value.file
    config = loaded.config
    for path in (config.tls_certificate, config.tls_key, config.quotas_conf_file, config.admission_rules_dir,
                 config.findings_file):  # fmt: skip
        if path:
            yield Path(path)


def _add(archive: tarfile.TarFile, name: str, path: Path) -> bool:
    """Add a plain file as it is now; one that vanished meanwhile, or cannot be one, is left out."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            archive.addfile(
                archive.gettarinfo(arcname=name, fileobj=file), file
            )  # as long as it was when it was opened
    except FileNotFoundError:
        return False
    return True


def restore_site_files(backup: Path, state_dir: Path, *, root: Path = Path("/")) -> SiteRestore:
    """Put back what is missing; nothing where there is no archive beside the copy."""
    done = SiteRestore([], [])
    file = site_archive_of(backup)
    if not file.is_file():
        return done
    _refuse_of_others(file)
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                _put(archive, member, _target(member.name, state_dir, root), done)
    except (tarfile.TarError, OSError, EOFError) as problem:
        raise DatabaseRefused(f"{file} is not whole: {problem}.", hint="The database itself is in place.") from problem
    return done


def _refuse_of_others(file: Path) -> None:
    """Refuse an archive that somebody else could have written: its files are put where the settings are."""
    about = file.stat()
    if about.st_uid not in {0, os.geteuid()} or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DatabaseRefused(
            f"{file} belongs to somebody else, or others can write it.",
            hint="The database is in place. Look into the file, then give it to root with mode 0600.",
        )


def _target(name: str, state_dir: Path, root: Path) -> Path:
    kind, _, rest = name.partition("/")
    if ".." in Path(rest).parts or kind not in (_STATE, _ROOT) or not rest:
        raise tarfile.TarError(f"a file is called {name[:60]!r}")
    return (state_dir if kind == _STATE else root) / rest


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, done: SiteRestore) -> None:
    opened = archive.extractfile(member) if member.isfile() else None
    if opened is None:
        raise tarfile.TarError(f"{member.name[:60]!r} is not a plain file")
    content = opened.read()
    if target.exists():
        if target.read_bytes() == content:
            return
        target = target.with_name(target.name + _ASIDE)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, member.mode & 0o777)
    with os.fdopen(fd, "wb") as file:
        if os.geteuid() == 0:
            os.fchown(fd, member.uid, member.gid)
        file.write(content)
    (done.aside if target.name.endswith(_ASIDE) else done.restored).append(str(target))
