"""Supervisors of the node program, and the attempts that wait for one.

No more start at once than the machine has processors: more would only make each slower, and wake a supervisor for each.
Jobs that are over in a moment come one after the other instead, through supervisors that are warm; what takes longer
keeps nobody waiting for more than that moment. Users take turns: the first attempt of one does not wait behind hundreds
of another.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

from oarlock.node.attempt.spool import Key
from oarlock.node.program.event_loop import EndpointLoop
from oarlock.node.wire.channel import Endpoint, Frame
from oarlock.node.wire.messages import NodeSettings


class Worker:
    """A supervisor as the program sees it."""

    def __init__(self, line: Endpoint) -> None:
        self.line = line
        self.key: Key | None = None
        self.rested = 0.0  # when it last became idle, in seconds of `time.monotonic`


class WorkerPool:
    """The supervisors of this node: made when none is idle, kept for the next job, and ended when idle for long."""

    def __init__(
        self,
        settings: NodeSettings,
        loop: EndpointLoop,
        launcher: socket.socket,
        on_frame: Callable[[Worker, Frame], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        self._settings, self._loop, self._launcher = settings, loop, launcher
        self._on_frame, self._on_end = on_frame, on_end
        self._idle: list[Worker] = []

    def take(self) -> Worker:
        """Return a supervisor without work: the one that rests since the shortest time, or a new one."""
        if self._idle:
            return self._idle.pop()
        ours, theirs = socket.socketpair()
        socket.send_fds(self._launcher, [b"+"], [theirs.fileno()])
        theirs.close()
        return self.add(ours)

    def add(self, line: socket.socket) -> Worker:
        """Add the supervisor at the other end of a line."""
        worker = Worker(Endpoint(line.fileno(), line.detach()))
        self._loop.watch(worker.line, lambda frame: self._on_frame(worker, frame), lambda: self._on_end(worker))
        return worker

    def mark_idle(self, worker: Worker, now: float) -> None:
        """Keep a supervisor for the next job. Only the program retires one: it alone knows what it is about to send."""
        worker.key, worker.rested = None, now
        self._idle.append(worker)

    def retire_idle(self, now: float) -> None:
        """End supervisors that were idle for long, but keep a few: jobs of the same width often follow each other."""
        longest_ago = now - self._settings.rest
        while len(self._idle) > self._settings.idle and self._idle[0].rested < longest_ago:
            self.dismiss(self._idle[0])

    def dismiss(self, worker: Worker) -> None:
        """Close the line to a supervisor, which then ends, or is gone already."""
        if worker in self._idle:
            self._idle.remove(worker)
        self._loop.unwatch(worker.line)
        worker.line.close()


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
