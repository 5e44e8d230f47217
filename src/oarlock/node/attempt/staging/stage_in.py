"""Stage-in: unpack a job's archive below its working directory, as its user, in a process of its own.

Everything is unpacked beside its place first and moved there at the end: whatever goes wrong before leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Callable, NamedTuple

from oarlock.node.archive import ArchiveEntry, ArchiveReader, BadArchive
from oarlock.node.attempt.spool import write_all
from oarlock.node.attempt.user import user_process
from oarlock.node.attempt.user.command import CommandSpec, StartedCommand

EVENT = "STAGE_IN_ERROR"
_PIECE = 1 << 16


class Archive(NamedTuple):
    """An archive that is open here, and how much it may unpack to, in bytes. `name` is one that no other job uses."""

    fd: int
    most: int
    name: str


def start(spec: CommandSpec, join: Callable[[], None], archive: Archive) -> StartedCommand:
    """Fork the process that unpacks; it reports a failure on its socket."""
    return user_process.start(
        spec,
        join,
        lambda _status: unpack(archive, spec.directory),
        keep=archive.fd,
        event=EVENT,
        failed="the archive cannot be unpacked",
    )


def unpack(archive: Archive, directory: str) -> None:
    """Unpack an archive below a directory, which is made if it is missing; after a failure nothing of it is there.

    A file that is there already and is older is replaced, one with the same content is left, and a newer one is the
    reason of a `BadArchive`: somebody has worked on it since.
    """
    made = _make(directory)
    aside = os.path.join(directory, archive.name)
    try:
        os.mkdir(aside, 0o700)
        try:
            entries = _unpack_aside(archive, aside)
            for entry in entries:
                _check_place(entry, aside, directory)
            for entry in entries:
                _move(entry, aside, directory)
        finally:
            _remove(aside)
    except BaseException:
        with contextlib.suppress(OSError):
            for path in reversed(made):
                os.rmdir(path)
        raise


def _remove(folder: str) -> None:
    """Remove a folder with all that is in it."""
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in folders:
            os.rmdir(os.path.join(path, name))
    os.rmdir(folder)


def _make(directory: str) -> list[str]:
    """Make a directory and those above it; return those that are new, the highest first."""
    missing: list[str] = []
    path = directory
    while not os.path.isdir(path) and path != os.path.dirname(path):
        missing.append(path)
        path = os.path.dirname(path)
    made = []
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:  # nodes that share the directory unpack at the same time
            if not os.path.isdir(path):
                raise
        else:
            made.append(path)
    return made


def _unpack_aside(archive: Archive, aside: str) -> list[ArchiveEntry]:
    """Unpack into an empty directory that nobody else enters; return the entries in their order."""
    entries = []
    reader = ArchiveReader(lambda most: os.read(archive.fd, most), most=archive.most)
    for entry in reader.entries():
        path = os.path.join(aside, entry.path)
        os.makedirs(path if entry.is_directory else os.path.dirname(path), exist_ok=True)
        if not entry.is_directory:
            _write(path, entry, reader)
        entries.append(entry)
    return entries


def _write(path: str, entry: ArchiveEntry, reader: ArchiveReader) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for data in reader.content():
            write_all(fd, data)
        os.fchmod(fd, (entry.mode | 0o600) & 0o755)
        os.utime(fd, (entry.modified, entry.modified))
    finally:
        os.close(fd)


def _check_place(entry: ArchiveEntry, aside: str, directory: str) -> None:
    """Raise `BadArchive` if something is in the way of a file or directory, or would be lost."""
    parts = entry.path.split("/")
    for depth in range(1, len(parts) + 1):
        is_last = depth == len(parts)
        path = os.path.join(directory, *parts[:depth])
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return
        wants_directory = not is_last or entry.is_directory
        if not (stat.S_ISDIR if wants_directory else stat.S_ISREG)(there.st_mode):
            raise BadArchive(f"{path} is in the way: it is not a {'directory' if wants_directory else 'plain file'}")
    if not entry.is_directory and int(there.st_mtime) > entry.modified and not _is_same(path, aside, entry):
        raise BadArchive(f"{path} is there already, and is newer than the one in the archive")


def _is_same(path: str, aside: str, entry: ArchiveEntry) -> bool:
    """Return whether the file that is there has the content of the one that was unpacked."""
    if os.stat(path).st_size != entry.size:
        return False
    with open(path, "rb") as there, open(os.path.join(aside, entry.path), "rb") as unpacked:
        while data := there.read(_PIECE):
            if data != unpacked.read(_PIECE):
                return False
    return True


def _move(entry: ArchiveEntry, aside: str, directory: str) -> None:
    """Move a file to its place; one with the same content stays, since another job may read it now."""
    path = os.path.join(directory, entry.path)
    if entry.is_directory:
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or not _is_same(path, aside, entry):
        os.rename(os.path.join(aside, entry.path), path)
