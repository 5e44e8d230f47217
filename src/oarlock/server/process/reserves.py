"""What is held in reserve: file descriptors that connections never take, and room on the disk of the database.

The reserve on the disk is deleted when the disk is full, so that kills can still be written: users often free a full
disk by killing the job that fills it.
"""

import contextlib
import ctypes
import logging
import os
import resource
from pathlib import Path
from typing import NamedTuple

MOST = 65_536
"""Upper bound: more are of no use, and some systems allow a thousand times as many."""

_LIMITS_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)


class ConnectionShares(NamedTuple):
    """How many connections there may be in all, and how many of them at the port: the rest is the socket's."""

    most: int
    most_at_port: int


def descriptor_limit() -> int:
    """Return how many this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raise the soft limit of this process as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_M_MMAP_THRESHOLD = -3  # of mallopt(3)
_LARGE = 128 << 10


def return_large_blocks() -> None:
    """Have blocks of 128 KiB and more given back to the system as soon as they are free.

    By itself glibc moves this bound up to the size of what was freed last. A thousand nodes are sent half a gigabyte
    when they are started or get a wide job: what they waited for in would stay, in pieces, with the server.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


def lower_again(pid: int) -> None:
    """Set the limits of a child to those this process was started with: jobs inherit them, not the server's."""
    with contextlib.suppress(OSError):  # it has ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _LIMITS_AT_START)


def connection_shares(count: int) -> ConnectionShares:
    """Divide descriptors: half are left to nodes, the database and programs, an eighth to the socket alone."""
    most = MOST // 2 if count == resource.RLIM_INFINITY else count // 2
    return ConnectionShares(most, most * 3 // 4)


log = logging.getLogger(__name__)

SIZE = 16 << 20
_SHARE = 4  # it is created only where this many times its size is free


class DiskReserve:
    """A preallocated file without content."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self) -> None:
        """Create the file, unless it exists or there is little room. Blocks for a moment."""
        if self._path.exists() or _free(self._path.parent) < _SHARE * SIZE:
            return
        try:
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, SIZE)
        except OSError as problem:
            self._path.unlink(missing_ok=True)
            log.info("no reserve is kept", extra={"why": str(problem)})

    def give_up(self) -> bool:
        """Delete the file if the disk is full; return whether that freed any room."""
        if _free(self._path.parent) >= SIZE:
            return False
        with contextlib.suppress(OSError):
            self._path.unlink()
            log.warning("the disk of the database is full; its reserve was given up")
            return True
        return False


def _free(place: Path) -> int:
    about = os.statvfs(place)
    return about.f_bavail * about.f_frsize
