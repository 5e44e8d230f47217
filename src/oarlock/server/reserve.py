"""A reserve on the disk of the database: given up when the disk is full and jobs have to end all the same.

Whoever makes room on a full disk often does it by ending the job that fills it.
"""

import contextlib
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

SIZE = 16 << 20
_SHARE = 4  # it is made only where so many times as much is free


class DiskReserve:
    """A file that holds nothing but room."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self) -> None:
        """Make it, unless it is there or there is little room. Blocks for a moment."""
        if self._path.exists() or _free(self._path.parent) < _SHARE * SIZE:
            return
        try:
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, SIZE)
        except OSError as problem:
            self._path.unlink(missing_ok=True)
            log.info("no reserve is kept", extra={"why": str(problem)})

    def give_up(self) -> bool:
        """Give the room free if it is needed; say whether there is room now that was not there."""
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
