"""Processes of jobs that reach the server through this node: `oarsh` connects to a socket here.

The kernel tells whose process it is. Each connection becomes a stream of raw bytes on the channel to the server, which
decides what that user may do; here only the number of connections and what waits in memory are bounded.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections import Counter
from typing import Callable

from oarlock.node.program.event_loop import EndpointLoop
from oarlock.node.wire.channel import EVENT, RAW, Body, ChannelClosed, Frame, read_some, write_some
from oarlock.node.wire.stream import FIRST_CLIENT_STREAM, SWITCHED

MOST_OF_USER = 64
"""Connections of one user."""

MOST = 256
"""Connections of all users: a program has a limited number of descriptors, and its supervisors need theirs."""

_LAST_STREAM = (1 << 32) - 1
_LONGEST_HEAD = 8 << 10
_MOST_PENDING = 1 << 20  # bytes that a client does not read
_CREDENTIALS = struct.Struct("3i")
_REQUEST_LINE = b"GET /api/v1/sessions HTTP/1.1"


class JobClient:
    """One connection, as the event loop sees it: first the head of an HTTP request, then bytes that pass unchanged."""

    def __init__(self, connection: socket.socket, uid: int, stream: int) -> None:
        connection.setblocking(False)
        self.uid, self.stream = uid, stream
        self.read_fd = self.write_fd = connection.detach()
        self._head: bytearray | None = bytearray()
        self._out = bytearray()
        self._is_closing = False

    @property
    def pending(self) -> int:
        """Bytes that wait for the client to read."""
        return len(self._out)

    @property
    def is_announced(self) -> bool:
        """Return whether the server knows of it."""
        return self._head is None

    def queue(self, data: bytes) -> None:
        """Keep bytes for the client; nothing more after an empty one. `ChannelClosed` if it does not read."""
        self._out += data
        self._is_closing = self._is_closing or not data
        if len(self._out) > _MOST_PENDING:
            raise ChannelClosed("the client does not read")

    def flush(self) -> None:
        """Write as much as the client takes. `ChannelClosed` if it is gone, or has everything."""
        write_some(self.write_fd, self._out)
        if self._is_closing and not self._out:
            raise ChannelClosed("the server closed it")

    def receive(self) -> list[Frame]:
        """Read what is there, as frames for the server. `ChannelClosed` at the end."""
        data = read_some(self.read_fd)
        if self._is_closing or not data:
            return []
        return [Frame(RAW, self.stream, data)] if self._head is None else self._read_head(data)

    def _read_head(self, data: bytes) -> list[Frame]:
        """Read the head of the request; answer it and announce the client once it is complete."""
        head = self._head = (self._head or bytearray()) + data
        end = head.find(b"\r\n\r\n")
        if end < 0 and len(head) <= _LONGEST_HEAD:
            return []
        if end < 0 or not head.startswith(_REQUEST_LINE):
            self._refuse("404 Not Found", "NotFound", "Only sessions are opened on this socket of a node.")
            return []
        self._head = None
        self._out += SWITCHED
        announced = Frame(EVENT, 0, b'{"event":"client","stream":%d,"uid":%d}' % (self.stream, self.uid))
        rest = bytes(head[end + 4 :])
        return [announced, Frame(RAW, self.stream, rest)] if rest else [announced]

    def refuse_as_too_many(self) -> None:
        """Answer that there are too many connections, and close it."""
        sentence = f"Too many sessions are open on this node: {MOST_OF_USER} a user, {MOST} in all."
        self._refuse("503 Service Unavailable", "TooManyAtOnce", sentence)

    def _refuse(self, status: str, kind: str, sentence: str) -> None:
        body = f'{{"error":"{sentence}","kind":"{kind}","hint":"Leave some of them, or try again later."}}'
        self._out += f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        self._is_closing = True
        self.flush()

    def close(self) -> None:
        """Close the connection."""
        os.close(self.read_fd)


class _Listener:
    """The socket, as the event loop sees it."""

    pending = 0

    def __init__(self, path: str, on_connection: Callable[[socket.socket], None]) -> None:
        self._socket, self._on_connection = _bind(path), on_connection
        self.read_fd = self.write_fd = self._socket.fileno()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def flush(self) -> None:
        """Do nothing: nothing is written on it."""

    def receive(self) -> list[Frame]:
        """Accept one connection."""
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return []
        except OSError:  # no descriptor is left: the spare one takes the connection off the queue
            os.close(self._spare)
            try:
                self._socket.accept()[0].close()
            except OSError:
                pass
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            return []
        self._on_connection(connection)
        return []

    def close(self) -> None:
        """Accept no more. The path stays: the next program may have taken it already."""
        self._socket.close()
        os.close(self._spare)


def _bind(path: str) -> socket.socket:
    """Listen on a path, in the place of the program before this one; every user may connect."""
    new = f"{path}~"
    if os.path.lexists(new):
        os.unlink(new)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(new)
        os.chmod(new, 0o666)  # noqa: S103 - whoever connects, the kernel says who it is
        listener.listen(128)
        listener.setblocking(False)
        os.rename(new, path)
    except BaseException:
        listener.close()
        raise
    return listener


class JobClients:
    """All connections. `send` queues a frame for the server; `on_read` is called when a client was read."""

    def __init__(
        self, loop: EndpointLoop, send: Callable[[int, int, Body | bytes], None], on_read: Callable[[JobClient], None]
    ) -> None:
        self._loop, self._send, self._on_read = loop, send, on_read
        self._clients: dict[int, JobClient] = {}
        self._of_user: Counter[int] = Counter()
        self._last = FIRST_CLIENT_STREAM - 1
        self._listener: _Listener | None = None

    def listen(self, path: str) -> None:
        """Accept connections from now on. Where that cannot be, jobs run all the same, without `oarsh`."""
        try:
            self._listener = _Listener(path, self._accept)
        except OSError as error:
            sys.stderr.write(f"oarsh does not work on this node: {path}: {error}\n")
            return
        self._loop.watch(self._listener, lambda _frame: None, lambda: None)

    def close(self) -> None:
        """Close all connections; clients that live on connect to the next program."""
        for client in list(self._clients.values()):
            self._drop(client)
        if self._listener is not None:
            self._loop.unwatch(self._listener)
            self._listener.close()

    def _accept(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(credentials)
        client = JobClient(connection, uid, self._next_stream())
        if len(self._clients) >= MOST or self._of_user[uid] >= MOST_OF_USER:
            try:
                client.refuse_as_too_many()
            except ChannelClosed:
                pass
            client.close()
            return
        self._clients[client.stream] = client
        self._of_user[uid] += 1
        self._loop.watch(client, lambda frame: self._pass_on(client, frame), lambda: self._drop(client))

    def _next_stream(self) -> int:
        while True:
            self._last = FIRST_CLIENT_STREAM if self._last >= _LAST_STREAM else self._last + 1
            if self._last not in self._clients:
                return self._last

    def _pass_on(self, client: JobClient, frame: Frame) -> None:
        self._send(frame.kind, frame.number, frame.data)
        self._on_read(client)

    def take(self, frame: Frame) -> None:
        """Pass bytes of the server to a client; an empty frame closes it once it has everything."""
        client = self._clients.get(frame.number)
        if client is None:
            return
        self._loop.written(client)
        try:
            client.queue(frame.data)
            client.flush()
        except ChannelClosed:
            self._drop(client)

    def _drop(self, client: JobClient) -> None:
        if self._clients.pop(client.stream, None) is None:
            return
        self._of_user[client.uid] -= 1
        if not self._of_user[client.uid]:
            del self._of_user[client.uid]
        self._loop.unwatch(client)
        client.close()
        if client.is_announced:
            self._send(EVENT, 0, {"event": "client-ended", "stream": client.stream})
