"""A progress bar on standard error: for people at a terminal, never for programs."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class ProgressBar:
    """A line on standard error that says how much of a total is done; only on a terminal, and if it is wanted."""

    _WIDTH = 30
    _PERIOD = 0.2

    def __init__(self, total: int, *, wanted: bool = True) -> None:
        self._total, self._shown_at, self._wanted = max(total, 1), 0.0, wanted and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            sys.stderr.write("\r\033[K")

    def show(self, what: str, done: int) -> None:
        """Print what is under way, and how much of it is done."""
        now = time.monotonic()
        if not self._wanted or now - self._shown_at < self._PERIOD:
            return
        self._shown_at = now
        filled = self._WIDTH * done // self._total
        bar = f"{'█' * filled}{'░' * (self._WIDTH - filled)}"
        sys.stderr.write(f"\r\033[K{bar} {100 * done // self._total:3} %  {what}")
        sys.stderr.flush()
