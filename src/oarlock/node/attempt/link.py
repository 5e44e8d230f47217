"""The connection of a supervisor to the node program that gave it work, or to the next program.

When the program goes away the supervisor waits for its successor on a socket beside the file of the attempt, where
nobody else can enter. The work goes on in between.

Each write wakes the program, which wakes the server. A "started" event may therefore wait a moment: if the job
is over by then, both events are one write.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterable
from typing import Callable

from oarlock.node.attempt.spool import SpoolEntry, open_directory, remove
from oarlock.node.wire.channel import ANSWER, EVENT, RAW, REQUEST, Body, ChannelClosed, Endpoint, Frame
from oarlock.node.wire.messages import NodeRequestRefused

MOMENT = 0.1
"""Seconds for which a frame sent with `may_wait` may stay queued."""


class ProgramLink:
    """The line to a node program."""

    def __init__(self, line: socket.socket) -> None:
        self._line: Endpoint | None = Endpoint(line.fileno(), line.detach())
        self._listener: socket.socket | None = None
        self._entry: SpoolEntry | None = None
        self._describe: Callable[[], Body] = dict
        self._flush_at: float | None = None  # when queued frames are written, in seconds of `time.monotonic`

    @property
    def connected(self) -> bool:
        """Return whether a node program is connected."""
        return self._line is not None

    def serve(self, entry: SpoolEntry | None, describe: Callable[[], Body] = dict) -> None:
        """Set the spool entry where a later program connects, and what describes the work; `None`: the work is done."""
        self._close_listener()
        self._entry, self._describe = entry, describe

    def _close_listener(self) -> None:
        if self._listener is not None and self._entry is not None:
            remove(f"{self._entry.spool}/{self._entry.socket_name}")
            self._listener.close()
            self._listener = None

    def wait(self, others: list[int], milliseconds: float, *, sessions: Iterable[tuple[int, int]] = ()) -> list[Frame]:
        """Wait for a request, for one of the other descriptors, or until queued frames are due.

        Return the requests, and the frames of sessions. `sessions` are descriptors with what they are waited for.
        """
        if self._flush_at is not None:
            left = max(self._flush_at - time.monotonic(), 0.0) * 1000
            milliseconds = left if milliseconds < 0 else min(milliseconds, left)
        watch = select.poll()
        for fd in others:
            watch.register(fd, select.POLLIN)
        for fd, mask in (*self._watched(), *sessions):
            watch.register(fd, mask)
        ready = {fd for fd, _ in watch.poll(milliseconds)}
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept_program()
        if self._line is not None and ready & {self._line.read_fd, self._line.write_fd}:
            return self._read(self._line)
        if self._flush_at is not None and time.monotonic() >= self._flush_at:
            self.flush_now()
        return []

    def _watched(self) -> list[tuple[int, int]]:
        if self._line is not None:
            stuck = self._line.pending and self._flush_at is None
            return [(self._line.read_fd, select.POLLIN | (select.POLLOUT if stuck else 0))]
        return [(self._listener.fileno(), select.POLLIN)] if self._listener is not None else []

    def _read(self, line: Endpoint) -> list[Frame]:
        self._flush_at = None
        try:
            line.flush()
            return [frame for frame in line.receive() if frame.kind in {REQUEST, RAW}]
        except ChannelClosed:
            self._lost()
            return []

    def _lost(self) -> None:
        """Listen on the entry's socket for the next program; exit if there is no attempt to go on with."""
        self._flush_at = None
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._entry is None:
            raise SystemExit(0)
        try:
            self._listener = _listen_at(self._entry)
        except FileNotFoundError:  # the spool was removed: no program will look for us there
            self._listener = None

    def _accept_program(self) -> None:
        if self._listener is not None:
            caller, _ = self._listener.accept()
            self._close_listener()
            self._line = Endpoint(caller.fileno(), caller.detach())
            # The new program learns what it missed: events sent while nobody was connected are not repeated.
            self.send_event({"event": "here", **self._describe()})

    def send_event(self, event: Body | bytes, *, may_wait: bool = False) -> None:
        """Send an event, if a program is connected."""
        self._send(EVENT, 0, event, may_wait=may_wait)

    def queue_raw(self, number: int, data: bytes) -> None:
        """Queue bytes of a session, if a program is connected; `flush_now` writes them."""
        if self._line is not None:
            self._line.queue(RAW, number, data)

    def answer(self, number: int, body: Body, *, may_wait: bool = False) -> None:
        """Answer a request."""
        self._send(ANSWER, number, body, may_wait=may_wait)

    def refuse(self, number: int, refusal: NodeRequestRefused) -> None:
        """Answer a request with a refusal."""
        self._send(ANSWER, number, refusal.body())

    def _send(self, kind: int, number: int, body: Body | bytes, *, may_wait: bool = False) -> None:
        if self._line is None:
            return
        self._line.queue(kind, number, body)
        if not may_wait:
            self.flush_now()
        elif self._flush_at is None:
            self._flush_at = time.monotonic() + MOMENT

    def flush_now(self) -> None:
        """Write queued frames now; call this before anything that takes long."""
        self._flush_at = None
        if self._line is None:
            return
        try:
            self._line.flush()
        except ChannelClosed:
            self._lost()


def _listen_at(entry: SpoolEntry) -> socket.socket:
    remove(f"{entry.spool}/{entry.socket_name}")
    directory = open_directory(entry.spool)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A socket's address has room for 107 bytes; through the directory's descriptor any spool fits.
        listener.bind(f"/proc/self/fd/{directory}/{entry.socket_name}")
        listener.listen(1)
    finally:
        os.close(directory)
    return listener


def receive_with_fd(line: socket.socket, longest: int) -> tuple[bytes, int]:
    """Receive bytes and the descriptor that came with them, or -1; the descriptor closes at exec."""
    data, fds, _, _ = socket.recv_fds(
        line, longest, 1
    )  # Python 3.11 ignores the flags argument, so MSG_CMSG_CLOEXEC cannot be passed
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds[0] if fds else -1


def drain(fd: int) -> None:
    """Empty a pipe that only wakes us."""
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return
