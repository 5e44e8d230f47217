"""Stage-out: pack what a job wrote on a desktop, as its user, in a process of its own; then take its directory away.

Only plain files and directories are packed; what was brought to the job and is as it was is left out. The archive lies
in the spool until the server has it.
"""

from __future__ import annotations

import io
import json
import os
import socket
import stat
from typing import Any, NamedTuple

from oarlock.node import trust
from oarlock.node.archive import MOST_ENTRIES, BadArchive
from oarlock.node.attempt.spool import Key, out_path, write_all
from oarlock.node.attempt.staging.work_folder import Files
from oarlock.node.attempt.user import user_process
from oarlock.node.attempt.user.command import CommandSpec, StartedCommand

EVENT = "STAGE_OUT_ERROR"
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PackedFiles(NamedTuple):
    """An archive in the spool: its SHA-256 and its size, in bytes; an empty sum if the job wrote nothing."""

    sha256: str
    size: int


class JobDirectory(NamedTuple):
    """The directory of a job that is over: what was in it before the job began, and how many bytes may be packed."""

    path: str
    before: Files
    most: int


def start(spec: CommandSpec, directory: JobDirectory, spool: str, key: Key) -> StartedCommand:
    """Fork the process that packs what the job wrote into the spool; without `most` it only clears the directory."""
    path = out_path(spool, key)
    trust.prepare(os.path.dirname(path), 0o700)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def work(status: socket.socket) -> None:
        if directory.most:
            packed = pack(directory, fd)
            status.send(json.dumps(["", f"{packed.sha256} {packed.size}"]).encode())
        clear(directory.path)

    failed = f"what the job wrote is kept in {directory.path} on this machine"
    try:
        return user_process.start(spec, _stay, work, keep=fd, event=EVENT, failed=failed)
    finally:
        os.close(fd)


def _stay() -> None:
    """Join no cgroup: that of the job is gone."""


def parse_packed(text: str) -> PackedFiles:
    """Parse what the process says when it has packed."""
    sha256, _, size = text.partition(" ")
    return PackedFiles(sha256, int(size))


class _Writer(io.RawIOBase):
    """The file of an archive, with its digest, and a bound."""

    def __init__(self, fd: int, most: int) -> None:
        from hashlib import sha256

        super().__init__()
        self._fd, self._most, self._digest, self._size = fd, most, sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._size += len(data)
        if self._size > self._most:
            raise _too_much(self._most)
        write_all(self._fd, bytes(data))
        self._digest.update(data)
        return len(data)

    def packed(self) -> PackedFiles:
        return PackedFiles(self._digest.hexdigest(), self._size)


def pack(directory: JobDirectory, fd: int) -> PackedFiles:
    """Write an archive (tar compressed with gzip) of what is new or changed; raise `BadArchive` if it is too much."""
    import gzip
    import tarfile

    chosen = _chosen(directory)
    if not chosen:
        return PackedFiles("", 0)
    writer = _Writer(fd, directory.most)
    compressed = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=writer, mtime=0)
    with compressed, tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in chosen:
            _add(archive, tarfile.TarInfo(name), os.path.join(directory.path, name))
    return writer.packed()


def _chosen(directory: JobDirectory) -> list[str]:
    """Return the plain files that are not as they were, and directories, by their paths; all of them are bounded."""
    names: list[str] = []
    total, has_files = 0, False
    for path, folders, files in os.walk(directory.path, onerror=_raise):
        for name in sorted(folders) + sorted(files):
            whole = os.path.join(path, name)
            about, inner = os.lstat(whole), os.path.relpath(whole, directory.path)
            same = (about.st_ino, about.st_size, about.st_ctime_ns) == directory.before.get(inner)
            if stat.S_ISDIR(about.st_mode) or (stat.S_ISREG(about.st_mode) and not same):
                names.append(inner)
                has_files = has_files or stat.S_ISREG(about.st_mode)
                total += about.st_size if stat.S_ISREG(about.st_mode) else 0
        if total > directory.most:
            raise _too_much(directory.most)
        if len(names) > MOST_ENTRIES:
            raise BadArchive(f"it has more than {MOST_ENTRIES} files, and no more are brought back")
    return names if has_files else []


def _too_much(most: int) -> BadArchive:
    return BadArchive(f"it has more than the {most >> 20} MiB that are brought back")


def _raise(problem: OSError) -> None:
    raise problem


def _add(archive: Any, entry: Any, path: str) -> None:
    """Add a file or a directory; what became something else meanwhile is left out."""
    about = os.lstat(path)
    entry.mode, entry.mtime = stat.S_IMODE(about.st_mode) & 0o777, int(about.st_mtime)
    if stat.S_ISDIR(about.st_mode):
        entry.type = b"5"
        archive.addfile(entry)
        return
    with os.fdopen(os.open(path, _PLAIN), "rb") as file:
        about = os.fstat(file.fileno())
        if stat.S_ISREG(about.st_mode):
            entry.size = about.st_size
            archive.addfile(entry, file)


def clear(directory: str) -> None:
    """Remove all that is in a directory, which itself is in one that is not the user's."""
    for path, folders, _ in os.walk(directory):
        for name in folders:
            whole = os.path.join(path, name)
            if not os.path.islink(whole):
                os.chmod(whole, 0o700)  # a directory that its owner had closed
    for path, folders, files in os.walk(directory, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in folders:
            whole = os.path.join(path, name)
            os.unlink(whole) if os.path.islink(whole) else os.rmdir(whole)
