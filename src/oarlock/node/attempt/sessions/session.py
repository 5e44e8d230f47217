"""One session: its process, its terminal or pipes, and the two streams to and from the user's client.

Nothing here blocks. What the client does not take waits in the window of the stream, then in the terminal, where it
stops whoever prints; so a session costs its supervisor two windows of memory at most, whatever it prints.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from typing import Callable

from oarlock.node.attempt.sessions.session_child import StartedSession, set_size
from oarlock.node.wire.channel import encode_body
from oarlock.node.wire.stream import (
    ACKNOWLEDGE,
    CONTROL_ROOM,
    DATA,
    EOF,
    EXIT,
    PIECE,
    RESIZE,
    SIGNAL,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW,
    ResumableReceiver,
    ResumableSender,
    StreamBroken,
    StreamMessage,
    acknowledged,
    decode_size,
    encode_message,
)

_END_OF_INPUT = b"\x04"  # what a terminal turns into an end of file
_LAST_OUTPUT = 2 * WINDOW  # bytes that are read after the end of a shell; what still prints is cut off there

_TIOCSIG = 0x40045436  # of ioctl_tty(2): the kernel knows who is in the foreground; Python has no name for it
_TERMINAL_SIGNALS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}  # those that TIOCSIG takes

SendFrame = Callable[[int, bytes], None]
"""Sends a frame of a session: the number of its stream on the channel, and its bytes."""


class Session:
    """A session. `stream` is its number on the channel; `None` while nobody is connected to it."""

    def __init__(self, name: str, started: StartedSession, *, is_terminal: bool) -> None:
        self.name, self.pid, self.is_terminal = name, started.pid, is_terminal
        self._stdin, self._stdout, self._stderr = started.pipes
        self._sender, self._receiver = ResumableSender(), ResumableReceiver()
        self._to_write = bytearray()
        self._input_ended = False
        self._exit: int | None = None
        self._why = ""
        self.stream: int | None = None
        self.unclaimed_since: float | None = None  # when nobody was connected any more, though the server could be
        self.is_over = False  # the exit status is in the stream

    @property
    def is_delivered(self) -> bool:
        """Return whether the client has got everything, the exit status included."""
        return self.is_over and self._sender.is_empty

    def watched(self) -> list[tuple[int, int]]:
        """Return the descriptors to poll, each with what it is waited for."""
        masks: dict[int, int] = {}
        if self._sender.room >= PIECE + CONTROL_ROOM:
            for fd in (self._stdout, self._stderr):
                if fd >= 0:
                    masks[fd] = select.POLLIN
        if self._to_write and self._stdin >= 0:
            masks[self._stdin] = masks.get(self._stdin, 0) | select.POLLOUT
        return list(masks.items())

    # The client's side.

    def attach(self, stream: int, received: int) -> int:
        """Connect a client that has received so many bytes; return how many were received from it."""
        self._sender.resume(received)
        self.stream, self.unclaimed_since = stream, None
        return self._receiver.received

    def detach(self) -> None:
        """Go on without a client, as far as the window reaches."""
        self.stream = None

    def receive(self, frame: bytes) -> None:
        """Take a frame of the client; raise `StreamBroken` if it cannot be one."""
        kind = frame[:1]
        if kind == ACKNOWLEDGE:
            self._sender.acknowledge(acknowledged(frame))
        elif kind == DATA:
            if len(self._to_write) + len(frame) > 2 * WINDOW:
                raise StreamBroken(f"{len(self._to_write)} bytes wait for the session already")
            for message in self._receiver.feed(frame[1:]):
                self._take(message)
        else:
            raise StreamBroken(f"a frame that begins with {kind!r}")

    def _take(self, message: StreamMessage) -> None:
        if message.kind == STDIN:
            self._to_write += message.data
        elif message.kind == EOF:
            self._input_ended = True
        elif message.kind == RESIZE and self.is_terminal and self._stdin >= 0:
            set_size(self._stdin, *decode_size(message.data))
        elif message.kind == SIGNAL and message.data and 0 < message.data[0] < signal.NSIG:
            self.signal(message.data[0])

    def send(self, send: SendFrame) -> None:
        """Send what the client may have now."""
        if self.stream is None:
            return
        while data := self._sender.take(PIECE):
            send(self.stream, DATA + data)
        if acknowledgement := self._receiver.acknowledge(len(self._to_write)):
            send(self.stream, acknowledgement)

    # The side of the process.

    def pump(self) -> None:
        """Move what can be moved now between the streams and the process."""
        self._write()
        for fd, kind in ((self._stdout, STDOUT), (self._stderr, STDERR)):
            if fd >= 0:
                self._read(fd, kind)

    def _write(self) -> None:
        if self._stdin < 0:
            self._to_write.clear()
            return
        if self._input_ended and self.is_terminal:
            self._to_write += _END_OF_INPUT
            self._input_ended = False
        while self._to_write:
            try:
                written = os.write(self._stdin, memoryview(self._to_write)[:PIECE])
            except BlockingIOError:
                return
            except OSError:  # nobody reads any more
                self._to_write.clear()
                self._close_stdin()
                return
            del self._to_write[:written]
        if self._input_ended:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if not self.is_terminal and self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def _read(self, fd: int, kind: int, *, beyond: int = 0) -> None:
        """Read what is there; `beyond`: so many bytes more than the window allows."""
        while self._sender.room + beyond >= PIECE + CONTROL_ROOM:
            try:
                data = os.read(fd, PIECE)
            except BlockingIOError:
                return
            except OSError:  # EIO: nobody has the terminal open any more
                data = b""
            if not data:
                self._close_output(fd)
                return
            self._sender.queue(encode_message(kind, data))

    def _close_output(self, fd: int) -> None:
        if self.is_terminal:
            self._stdout = -1  # the descriptor is closed with the session: it is that of the input as well
            return
        os.close(fd)
        self._stdout, self._stderr = (-1 if end == fd else end for end in (self._stdout, self._stderr))

    def signal(self, number: int) -> None:
        """Send a signal as a key of the terminal would, where it has one; else to the process group of the session."""
        if self._exit is not None:
            return  # its number may be another's by now
        try:
            if self.is_terminal and self._stdin >= 0 and number in _TERMINAL_SIGNALS:
                fcntl.ioctl(self._stdin, _TIOCSIG, number)
            else:
                os.killpg(self.pid, number)  # it was not waited for: the number is still its own
        except OSError:
            return

    def hang_up(self) -> None:
        """Note that the user is gone: SIGHUP and the end of its input."""
        if self._exit is None:
            try:
                os.killpg(self.pid, signal.SIGHUP)
            except ProcessLookupError:
                pass
        self.close()

    def ended(self, status: int, why: str) -> None:
        """Take the raw wait status of the session's process; `why` names what ended the job, if that did."""
        self._exit = status
        self._why = why
        self._conclude(left_open=self.is_terminal)

    def _conclude(self, *, left_open: bool) -> None:
        """Put the exit status behind the last output.

        A terminal is over with its shell. Pipes are over when nobody has them open any more, as with ssh.
        """
        if self.is_over or self._exit is None:
            return
        for fd, kind in ((self._stdout, STDOUT), (self._stderr, STDERR)):
            if fd >= 0:
                self._read(fd, kind, beyond=_LAST_OUTPUT if left_open else 0)
        if not left_open and (self._stdout >= 0 or self._stderr >= 0):
            return
        self.is_over = True
        self._sender.queue(encode_message(EXIT, encode_body({"status": self._exit, "ended": self._why}).encode()))
        self.close()

    def conclude(self, *, at_once: bool = False) -> None:
        """Finish the streams of a process that ended; `at_once`: whoever still has its pipes open."""
        self._conclude(left_open=at_once or self.is_terminal)

    def undelivered(self) -> tuple[int, bytes, int]:
        """Return what the client has not consumed, the place of its first byte before it, and what came from it."""
        begin, data = self._sender.kept
        return begin, data, self._receiver.received

    def close(self) -> None:
        """Close the terminal or the pipes; what was read stays in the stream."""
        for fd in {self._stdin, self._stdout, self._stderr} - {-1}:
            os.close(fd)
        self._stdin = self._stdout = self._stderr = -1
