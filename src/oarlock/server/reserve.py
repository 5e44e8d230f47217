"""A reserve on the disk of the database: deleted when the disk is full, so that kills can still be written.

Users often free a full disk by killing the job that fills it.
"""

import contextlib
import logging
import os
from pathlib import Path

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
