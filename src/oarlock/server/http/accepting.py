"""Accepting connections: one too many is refused before anything is made for it, and after a moment.

To build a connection and its parser only to refuse it takes ten times as long as to accept it. Whoever is refused and
tries again at once is slowed down, since the refusal is sent when `refusal_seconds` have passed.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from oarlock.model.errors import TooManyAtOnce
from oarlock.server.http.connection import ConnectionLimits, caller_of, peer_of, refusal_text

_MOST_REFUSED_AT_ONCE = 64
"""So many are refused before the event loop does other work."""

_LEAST_TO_DELAY = 16


class CountedConnection(socket.socket):
    """A connection that counts as its caller's until its descriptor is closed, also while TLS is still agreed on."""

    leave: Callable[[], None] | None = None

    def close(self) -> None:
        """Close the connection, and count it as closed."""
        super().close()
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()


class AcceptGuard:
    """Decides which connections come in, and refuses the others when their time has come."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._refused: deque[tuple[float, socket.socket, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: socket.socket, address: Any, *, is_tls: bool) -> socket.socket | None:
        """Return a connection that may come in, counted; one that may not is closed, now or soon."""
        if connection.family == socket.AF_UNIX:
            caller: int | str = peer_of(connection).uid
        elif self._limits.admits(address[0]):
            caller = caller_of(address[0])
        else:
            connection.close()
            return None
        refusal = self._limits.refusal(caller)
        if refusal is not None:
            # Whoever speaks TLS could not read the refusal.
            self._refuse_later(connection, b"" if is_tls else _text(str(refusal), refusal.hint))
            return None
        self._limits.enter(caller)
        counted = CountedConnection(connection.family, connection.type, connection.proto, connection.detach())
        counted.leave = partial(self._limits.leave, caller)
        return counted

    def close(self) -> None:
        """Close the connections that wait for their refusal."""
        if self._timer is not None:
            self._timer.cancel()
        while self._refused:
            self._refused.popleft()[1].close()

    def _refuse_later(self, connection: socket.socket, text: bytes) -> None:
        if len(self._refused) >= max(self._limits.most // 4, _LEAST_TO_DELAY):  # they take descriptors, too
            _refuse(connection, text)
            return
        loop = asyncio.get_running_loop()
        self._refused.append((loop.time() + self._limits.refusal_seconds, connection, text))
        if self._timer is None:
            self._timer = loop.call_later(self._limits.refusal_seconds, self._refuse_due)

    def _refuse_due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for _ in range(_MOST_REFUSED_AT_ONCE):
            if not self._refused or self._refused[0][0] > loop.time():
                break
            _, connection, text = self._refused.popleft()
            _refuse(connection, text)
        if self._refused:
            self._timer = loop.call_later(max(0.0, self._refused[0][0] - loop.time()), self._refuse_due)


class GuardedSocket(socket.socket):
    """A listening socket whose guard, once there is one, looks at each connection first."""

    guard: AcceptGuard | None = None
    is_tls = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection that may come in; without one, do as if nobody had connected."""
        for _ in range(_MOST_REFUSED_AT_ONCE):
            connection, address = super().accept()
            if self.guard is None:
                return connection, address
            admitted = self.guard.admit(connection, address, is_tls=self.is_tls)
            if admitted is not None:
                return admitted, address
        raise BlockingIOError


@lru_cache(maxsize=16)
def _text(sentence: str, hint: str) -> bytes:
    return refusal_text(TooManyAtOnce(sentence, hint=hint))


def _refuse(connection: socket.socket, text: bytes) -> None:
    with contextlib.suppress(OSError):
        # What was sent is read first: a connection closed with unread bytes is reset, and the refusal lost.
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.recv(65_536)
        connection.send(text)
    connection.close()
