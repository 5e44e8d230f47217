"""What a backup has beside the database: settings, secrets, keys and, if wanted, samples and archives of past jobs.

They are in one tar file beside the copy of the database, readable by its owner only. What stands there already is
never overwritten by a restore: a file that differs is written beside, under a name of its own.
"""

import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from oarlock.config import Loaded
from oarlock.model.errors import DatabaseRefused
from oarlock.settings.secret import Secret

_STATE, _ROOT = "state", "root"
_KEYS = ("keys",)
_SAMPLES = ("samples", "reports", "past")
_BESIDE_SETTINGS = ("id_ed25519", "id_ed25519.pub", "known_hosts")
_ENDING = ".site.tar"
_ASIDE = ".from-backup"


class SiteRestore(NamedTuple):
    """What a restore did: files that were put back, and those that were written beside ones that differ."""

    restored: list[str]
    aside: list[str]


def archive_of(backup: Path) -> Path:
    """Return the file beside a copy of the database."""
    return backup.with_name(backup.name + _ENDING)


def save(backup: Path, loaded: Loaded, state_dir: Path, *, samples: bool) -> int:
    """Write settings and keys beside a copy of the database; return how many files they are."""
    target = archive_of(backup)
    partial = target.with_name(f".{target.name}.partial")
    count = 0
    try:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        with tarfile.open(partial, "w", dereference=True) as archive:
            for name, path in _members(loaded, state_dir, samples=samples):
                count += _add(archive, name, path)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(target)
    except OSError as problem:
        raise DatabaseRefused(
            f"Settings and keys cannot be copied to {target}: {problem.strerror or problem}.",
            hint="The copy of the database is good. Make room, or name a place that can be written.",
        ) from problem
    finally:
        partial.unlink(missing_ok=True)
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


def restore(backup: Path, state_dir: Path, *, root: Path = Path("/")) -> SiteRestore:
    """Put back what is missing; nothing where there is no archive beside the copy."""
    done = SiteRestore([], [])
    file = archive_of(backup)
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
