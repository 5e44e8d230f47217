"""`oarx11`, on the node of a job: a display for the job's programs, passed on by its standard input and output.

Nobody else can use it: its socket is the user's alone, the kernel says who connects, and whoever does shows a cookie,
which the other end compares. There is no port. What is passed on is many connections over one stream each way.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
from typing import Any

OPENED, BYTES, CLOSED, READY = range(4)
"""Kinds of frames: a program connected, it sent bytes, it went; and, once, that the display is there."""

COOKIE_BYTES = 16
PROTOCOL = b"MIT-MAGIC-COOKIE-1"
SOCKETS = "/tmp/.X11-unix"  # noqa: S108  (where every program looks for displays)
_HEAD = struct.Struct(">BII")
_PIECE = 32 << 10
_MOST_QUEUED = 256 << 10  # bytes for the other end, before programs are read no more
_MOST_WAITING = 16 << 20  # bytes that a program may leave unread
_MOST_CONNECTIONS = 128
_ANY_HOST = 0xFFFF  # FamilyWild of Xauth.h
_CREDENTIALS = struct.Struct("iII")


class Multiplexer:
    """Passes the bytes of many connections on: `source` and `sink` lead to the other end."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._sockets: dict[int, socket.socket] = {}
        self._waiting: dict[int, bytearray] = {}
        self._received, self._queued = bytearray(), bytearray()
        os.set_blocking(sink, False)

    def add(self, number: int, connection: socket.socket) -> None:
        """Pass a connection on under a number."""
        connection.setblocking(False)
        self._sockets[number], self._waiting[number] = connection, bytearray()

    def send(self, kind: int, number: int = 0, data: bytes = b"") -> None:
        """Queue a frame for the other end."""
        self._queued += _HEAD.pack(kind, number, len(data)) + data

    def take(self, kind: int, number: int, data: bytes) -> None:
        """Act on a frame of the other end."""
        if kind == BYTES and number in self._sockets:
            self.write(number, data)
        elif kind == CLOSED:
            self.close(number)

    def write(self, number: int, data: bytes) -> None:
        """Write bytes to a connection, when it takes them."""
        self._waiting[number] += data
        if len(self._waiting[number]) > _MOST_WAITING:
            self.drop(number)

    def drop(self, number: int) -> None:
        """Close a connection, and tell the other end."""
        if number in self._sockets:
            self.close(number)
            self.send(CLOSED, number)

    def close(self, number: int) -> None:
        """Close a connection."""
        connection = self._sockets.pop(number, None)
        self._waiting.pop(number, None)
        if connection is not None:
            connection.close()

    def run(self, listening: list[socket.socket] | None = None) -> None:
        """Pass bytes on until the other end is gone; `listening` are where connections come in."""
        listeners = {listener.fileno(): listener for listener in listening or ()}
        while True:
            places = {connection.fileno(): number for number, connection in self._sockets.items()}
            reading = [self._source, *listeners, *(places if len(self._queued) < _MOST_QUEUED else ())]
            writing = [fd for fd, number in places.items() if self._waiting[number]]
            readable, writable, _ = select.select(reading, writing + ([self._sink] if self._queued else []), [])
            if self._sink in writable and not self._flush():
                return
            if self._source in readable and not self._receive():
                return
            for fd in readable:
                if fd in listeners:
                    self._accept(listeners[fd])
                elif fd in places:
                    self._read(places[fd])
            for fd in writable:
                if fd in places:
                    self._write_waiting(places[fd])

    def _flush(self) -> bool:
        try:
            del self._queued[: os.write(self._sink, memoryview(self._queued)[:_PIECE])]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def _receive(self) -> bool:
        try:
            data = os.read(self._source, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        while len(self._received) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._received)
            end = _HEAD.size + length
            if length > 2 * _PIECE:
                return False
            if len(self._received) < end:
                break
            frame = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            self.take(kind, number, frame)
        return data != b""

    def _read(self, number: int) -> None:
        if number not in self._sockets:
            return
        try:
            data = self._sockets[number].recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.send(BYTES, number, data)
        else:
            self.drop(number)

    def _write_waiting(self, number: int) -> None:
        if number not in self._sockets:
            return
        try:
            del self._waiting[number][: self._sockets[number].send(memoryview(self._waiting[number])[:_PIECE])]
        except BlockingIOError:
            return
        except OSError:
            self.drop(number)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.getuid() or len(self._sockets) >= _MOST_CONNECTIONS:
            connection.close()
            return
        number = next(number for number in range(1, _MOST_CONNECTIONS + 2) if number not in self._sockets)
        self.add(number, connection)
        self.send(OPENED, number)


def authority(number: int, cookie: bytes) -> bytes:
    """Return the content of an Xauthority file with one cookie, for a display of any host."""
    fields = (b"", str(number).encode(), PROTOCOL, cookie)
    return struct.pack(">H", _ANY_HOST) + b"".join(struct.pack(">H", len(field)) + field for field in fields)


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    return listener


def _leave(*_: Any) -> None:
    raise SystemExit(0)


def main() -> int:
    """Serve the display `oarx11 NUMBER FOLDER`; the cookie is the first of standard input."""
    number, folder = int(sys.argv[1]), sys.argv[2]
    for number_of_signal in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number_of_signal, _leave)
    cookie = b""
    while len(cookie) < COOKIE_BYTES:
        data = os.read(0, COOKIE_BYTES - len(cookie))
        if not data:
            return 1
        cookie += data
    os.umask(0o077)
    os.mkdir(folder)  # whoever made it before us would read what we write
    path = f"{SOCKETS}/X{number}"
    try:
        with open(f"{folder}/Xauthority", "xb") as file:
            file.write(authority(number, cookie))
        if not os.path.isdir(SOCKETS):
            os.mkdir(SOCKETS)
            os.chmod(SOCKETS, 0o1777)  # noqa: S103  (as every X server makes it)
        # Programs try the abstract name first, which anybody could take: it has to be ours as well.
        listeners = [_listen(path), _listen(f"\0{path}")]
        try:
            passing = Multiplexer(0, 1)
            passing.send(READY)
            passing.run(listeners)
        finally:
            os.unlink(path)
    finally:
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)
    return 0
