"""Watch directories for subdirectories that appear and vanish (inotify, by ctypes)."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

# Numbers of <sys/inotify.h>.
_CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x100, 0x200, 0x40, 0x80
_ONLY_DIRECTORIES, _IS_DIRECTORY = 0x01000000, 0x40000000
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_WANTED = _CREATE | _MOVED_TO | _DELETE | _MOVED_FROM | _ONLY_DIRECTORIES
# struct inotify_event: watch, mask, cookie, length of the name that follows, padded with NULs.
_HEAD = struct.Struct("iIII")
_BUFFER_BYTES = 1 << 16


APPEARED, VANISHED, UNWATCHED, OVERFLOWN = "appeared", "vanished", "unwatched", "overflown"


class InotifyEvent(NamedTuple):
    """What happened in the directory with this watch: APPEARED and VANISHED name a directory in it.

    UNWATCHED: the watched directory itself is gone. OVERFLOWN (no watch): changes were lost, look everywhere.
    """

    watch: int
    name: str
    what: str


class Inotify:
    """A set of watched directories. Reading never waits."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")

    def fileno(self) -> int:
        """Return the descriptor, which becomes readable with the next change."""
        return self._fd

    def watch(self, path: str) -> int:
        """Watch a directory and return the number of the watch; the same directory has the same number."""
        number: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _WANTED)
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        return number

    def changes(self) -> Iterator[InotifyEvent]:
        """Yield the events since the last call, in order."""
        while True:
            try:
                data = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                return
            yield from parse(data)

    def close(self) -> None:
        """End all watches."""
        os.close(self._fd)


def parse(data: bytes) -> Iterator[InotifyEvent]:
    """Read the kernel's event records; those about plain files are passed over."""
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
        what = _meaning(mask)
        if what:
            yield InotifyEvent(watch, name, what)


def _meaning(mask: int) -> str | None:
    if mask & _OVERFLOW:
        return OVERFLOWN
    # Comes last for a directory that was removed; nothing follows under its number.
    if mask & _IGNORED:
        return UNWATCHED
    if not mask & _IS_DIRECTORY:
        return None
    return APPEARED if mask & (_CREATE | _MOVED_TO) else VANISHED


def is_exhausted(error: OSError) -> bool:
    """Return whether an error means that there are no more watches (`fs.inotify.max_user_watches`)."""
    return error.errno in {errno.ENOSPC, errno.ENOMEM}
