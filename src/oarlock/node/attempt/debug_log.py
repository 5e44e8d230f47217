"""The log of a supervisor on its node, for an administrator who looks for the cause of a failed launch.

It is kept while OAREXEC_DEBUG_MODE is 1: one file an attempt, `<job>.<attempt>.log` in the spool, which only the user
of the node program (as a rule, root) can enter. It holds no command, no environment and no secret. A log never costs a
job: what cannot be written is left out.
"""

from __future__ import annotations

import json
import os
import re
import time

from oarlock.node.attempt import spool

_NAME = re.compile(r"\d+\.\d+\.log")
_MOST_BYTES = 256 << 10
_MOST_FILES = 200
_MOST_SECONDS = 7 * 86400


class DebugLog:
    """The log of the attempt that a supervisor runs; without `enabled` nothing is written."""

    def __init__(self, directory: str, *, enabled: bool) -> None:
        self._directory, self._enabled = directory, enabled
        self._fd, self._room = -1, 0

    def begin(self, key: spool.Key) -> None:
        """Open the log of an attempt, and remove old logs."""
        if not self._enabled:
            return
        self.end()  # a supervisor that failed left it open
        prune(self._directory, most=_MOST_FILES - 1)
        path = os.path.join(self._directory, f"{spool.entry_name(key)}.log")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(path, flags, 0o600)
            self._room = _MOST_BYTES - os.fstat(self._fd).st_size
        except OSError:
            self.end()

    def write(self, what: str, **about: object) -> None:
        """Write a line; a log that is full says so once."""
        if self._fd < 0:
            return
        at = time.time()
        date = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))},{int(at % 1 * 1000):03d}"
        details = "".join(f" {name}={json.dumps(value, default=str)}" for name, value in about.items())
        line = f"{date} {what}{details}\n".encode()
        self._room -= len(line)
        try:
            spool.write_all(self._fd, line if self._room > 0 else f"{date} the log is full\n".encode())
        except OSError:
            self._room = 0
        if self._room <= 0:
            self.end()

    def end(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def prune(directory: str, *, most: int = _MOST_FILES) -> None:
    """Remove logs that are a week old, and the oldest ones if there are more than so many."""
    logs = []
    for entry in os.scandir(directory):
        if _NAME.fullmatch(entry.name):
            try:
                logs.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
            except FileNotFoundError:  # another supervisor removed it
                continue
    logs.sort(reverse=True)
    oldest = time.time() - _MOST_SECONDS
    for place, (at, path) in enumerate(logs):
        if place >= most or at < oldest:
            spool.remove(path)
