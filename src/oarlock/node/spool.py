"""What a node remembers: one directory an attempt, in a place that only the runner's user can enter.

The directory appears under its name whole and locked; its name is the gate through which an attempt passes once.
While a supervisor lives it holds the lock, which the kernel frees with it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re

from oarlock.node.channel import Body
from oarlock.node.messages import SEEN, Refused

LAUNCH, EXIT, CRASH, CONTROL = "launch.json", "exit.json", "crash.json", "control"
_NAME = re.compile(r"(\d+)\.(\d+)")

Key = tuple[int, int]
"""A job and its attempt."""


class Place:
    """The directory of one attempt, held open."""

    def __init__(self, spool: str, key: Key, fd: int) -> None:
        self.spool, self.key, self.fd = spool, key, fd

    @property
    def path(self) -> str:
        return os.path.join(self.spool, named(self.key))

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Put a file in whole, or not at all; on the disk before returning only if `durable`."""
        fd = os.open(name + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            write_all(fd, data)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(name + ".new", name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        if durable:
            os.fsync(self.fd)

    def read(self, name: str) -> Body | None:
        """Read a file; `None` if it is not there or makes no sense."""
        try:
            with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.fd), "rb") as file:
                found = json.loads(file.read())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def locked_elsewhere(self) -> bool:
        """Tell whether a living supervisor holds it. If none does, the lock is ours from now on."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        """Let go of it, and of the lock."""
        os.close(self.fd)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte."""
    while data:
        data = data[os.write(fd, data) :]


def named(key: Key) -> str:
    """Name the directory of an attempt."""
    return f"{key[0]}.{key[1]}"


def prepare(spool: str) -> None:
    """Make the spool, closed to everybody else, or refuse one that others could write."""
    os.makedirs(spool, mode=0o700, exist_ok=True)
    found = os.stat(spool)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.chmod(spool, 0o700)  # fails for a stranger's directory


def enter(spool: str, key: Key, asked: bytes) -> Place:
    """Pass the gate: make the directory of an attempt with its launch, locked. Refuse one that was here before."""
    making = os.path.join(spool, f"new.{os.getpid()}")
    os.mkdir(making, 0o700)
    fd = os.open(making, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    place = Place(spool, key, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place.write(LAUNCH, asked)
        # A directory that holds a launch is not empty, so it is never replaced.
        os.rename(making, place.path)
    except OSError as error:
        _remove(making, fd)
        place.close()
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            raise Refused(SEEN, f"attempt {named(key)} was here before") from error
        raise
    return place


def open_place(spool: str, key: Key) -> Place | None:
    """Open the directory of an attempt, if there is one."""
    try:
        fd = os.open(os.path.join(spool, named(key)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    return Place(spool, key, fd)


def listed(spool: str) -> list[Key]:
    """List the attempts, in order; clear away what a supervisor left before it passed the gate."""
    keys = []
    for name in os.listdir(spool):
        if match := _NAME.fullmatch(name):
            keys.append((int(match[1]), int(match[2])))
        elif name.startswith("new."):
            _clear_unfinished(os.path.join(spool, name))
    return sorted(keys)


def _clear_unfinished(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path, fd)
    except BlockingIOError:
        return
    finally:
        os.close(fd)


def forget(spool: str, key: Key) -> None:
    """Remove the directory of an attempt whose end the server has written down."""
    place = open_place(spool, key)
    if place is not None:
        _remove(place.path, place.fd)
        place.close()


def _remove(path: str, fd: int) -> None:
    """Remove one of our directories: files only, by descriptor; a directory that moved is left alone."""
    try:
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(path)
    except FileNotFoundError:
        return


def remove_runtime(path: str) -> None:
    """Remove what was written for a job; only we can have written there."""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except FileNotFoundError:
        return
