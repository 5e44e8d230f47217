"""The queue of attempts to start: no more start at once than the machine has processors.

More at once would only make each slower, and wake a supervisor for each. Jobs that are over in a moment come one after
the other instead, through supervisors that are warm; what takes longer keeps nobody waiting for more than that moment.
Users take turns: the first attempt of one does not wait behind hundreds of another.

Bookkeeping only; callers pass the time, in seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import deque

from oarlock.node.program.spool import Key
from oarlock.node.wire.channel import Frame

LONGEST = 1.0
"""Seconds for which an attempt counts at most: a prologue may take its time."""


class StartQueue:
    """The attempts that have just begun, and the line of those that will."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._starting: dict[Key, float] = {}  # until when each counts
        self._waiting: dict[
            str, deque[tuple[Key, Frame]]
        ] = {}  # by user; whose turn is next comes first, none is empty

    def queue(self, key: Key, frame: Frame, user: str = "") -> None:
        """Add an attempt to the queue of its user."""
        self._waiting.setdefault(user, deque()).append((key, frame))

    def next(self, now: float) -> tuple[Key, Frame] | None:
        """Return the attempt that may start now, if any."""
        if not self._waiting:
            return None
        if len(self._starting) >= self._most:
            self._starting = {key: until for key, until in self._starting.items() if until > now}
        if len(self._starting) >= self._most:
            return None
        user = next(iter(self._waiting))
        line = self._waiting.pop(user)
        key, frame = line.popleft()
        if line:
            self._waiting[user] = line  # behind the other users
        self._starting[key] = now + LONGEST
        return key, frame

    def settled(self, key: Key) -> None:
        """Stop counting an attempt: it is over, was refused, or has been running for a moment (`attempt/link.py`)."""
        self._starting.pop(key, None)

    def withdraw(self, key: Key) -> Frame | None:
        """Remove an attempt from the queue and return its request; `None` if it was not queued."""
        for user, line in self._waiting.items():
            for number, (other, frame) in enumerate(line):
                if other == key:
                    del line[number]
                    if not line:
                        del self._waiting[user]
                    return frame
        return None

    def wait(self, now: float) -> float | None:
        """Seconds until the next one may begin even if nothing is over before; none if nobody stands in line."""
        if not self._waiting:
            return None
        return max(min(self._starting.values(), default=now) - now, 0.0)
