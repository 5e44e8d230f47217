"""The client of a session: a shell or a command in a job, here on this terminal, also across restarts of the server."""

from __future__ import annotations

import os
import select
import time

from oarlock.cli.sessions.terminal import INTERRUPT, EscapeFilter, Left, LocalTerminal, PipeEnds
from oarlock.client import RequestRefused
from oarlock.minimal_http import read, written
from oarlock.node.wire.stream import (
    ACKNOWLEDGE,
    CONTROL,
    CONTROL_ROOM,
    DATA,
    EOF,
    EXIT,
    LENGTH_BYTES,
    LONGEST_FRAME,
    PIECE,
    RESIZE,
    STDERR,
    STDIN,
    ResumableReceiver,
    ResumableSender,
    StreamBroken,
    acknowledged,
    decode_length,
    encode_frame,
    encode_message,
    encode_size,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence
    from typing import Any

    from oarlock.client import Client

AWAY_SECONDS = 120.0
"""How long a server that went away is given to come back."""

_PAUSE = 0.25
_CHUNK = 1 << 16


class SessionOutcome:
    """How a session ended: the raw wait status of its process, and why the job ended if that did."""

    def __init__(self, status: int | None, ended: str = "", says: str = "") -> None:
        self.status, self.ended, self.says = status, ended, says


class SessionDenied(RequestRefused):
    """A session that the server does not open. `servers` are those of other clusters that may have the node."""

    def __init__(self, sentence: str, *, kind: str, hint: str, servers: Sequence[str]) -> None:
        super().__init__(sentence, kind=kind, hint=hint)
        self.servers = tuple(map(str, servers))


class SessionClient:
    """One session. `request` is what is asked of the server; `on_event` is called with what happens before it begins.

    `on_leaving` is called when the user goes, while the server still sees the client. `is_patient`: a server that is
    away when the session is to begin is waited for as well. `sign` signs a challenge with the key of the job, where
    that is shown in the place of a name.
    """

    def __init__(
        self,
        client: Client,
        request: dict[str, Any],
        on_event: Callable[[dict[str, Any]], None],
        on_leaving: Callable[[], None],
        *,
        wants_terminal: bool = True,
        is_patient: bool = False,
        sign: Callable[[str], str] | None = None,
        terminal: LocalTerminal | PipeEnds | None = None,
    ) -> None:
        self._is_patient, self._sign = is_patient, sign
        self._client, self._on_event, self._on_leaving = client, on_event, on_leaving
        self._terminal = terminal or LocalTerminal(wanted=wants_terminal)
        self._request = {
            **request,
            "session": os.urandom(16).hex(),
            **self._terminal.describe(),
        }
        self._sender, self._receiver, self._escapes = ResumableSender(), ResumableReceiver(), EscapeFilter()
        self._began = False  # the session is open
        self._joined = False  # ... and this connection leads to it
        self._input_ended = False
        self._outcome: SessionOutcome | None = None

    def run(self) -> SessionOutcome:
        """Open the session and stay until it ends; raise `RequestRefused`, or `Left` if the user goes before."""
        try:
            connection, rest = self._connect_again() if self._is_patient else self._connect()
            while True:
                try:
                    self._serve(connection, rest)
                except ConnectionError:
                    pass
                except (KeyboardInterrupt, Left):
                    self._terminal.restore()
                    self._on_leaving()
                    raise
                finally:
                    connection.close()
                if self._outcome is not None:
                    return self._outcome
                if not self._joined:
                    self._pause()  # whoever is there now is about to go
                connection, rest = self._connect_again()
        finally:
            self._terminal.close()

    def _connect(self, **how: float) -> tuple[_socket.socket, bytes]:
        return self._client.session(by_key=self._sign is not None, **how)

    def _connect_again(self) -> tuple[_socket.socket, bytes]:
        """Connect to a server that went away; a key (Ctrl-C) ends that."""
        self._joined = False
        end = time.monotonic() + AWAY_SECONDS
        announced = False
        while True:
            try:
                return self._connect(seconds=0.0)
            except RequestRefused as refused:
                if refused.kind not in {"ServerDown", "NoAnswer", "Stopping"} or time.monotonic() > end:
                    raise
            if not announced:
                self._terminal.tell(f"The server is away; trying for {AWAY_SECONDS:.0f} s (Ctrl-C leaves).")
                announced = True
            self._pause()

    def _pause(self) -> None:
        ready, _, _ = select.select(
            [self._terminal.input] if self._terminal.is_terminal and self._began else [], [], [], _PAUSE
        )
        if ready and INTERRUPT in os.read(self._terminal.input, _CHUNK):
            raise Left

    # One connection.

    def _serve(self, connection: _socket.socket, rest: bytes) -> None:
        self._connection = connection
        if self._sign is None:
            self._send_request()
        received = bytearray(rest)
        while not self._is_ended(received):
            ready, _, _ = select.select(self._watched(), [], [])
            if self._terminal.wake in ready:
                self._terminal.drain_wake()
                self._resize()
            if self._terminal.input in ready:
                self._read_input()
            if connection.fileno() in ready:
                received += self._received(connection)

    def _send_request(self, **proof: str) -> None:
        again = {"again": True, "received": self._receiver.received} if self._began else {}
        request = CONTROL + written({**self._request, **again, **proof}).encode()
        if len(request) > LONGEST_FRAME:
            sentence = f"The command is too long: {len(request)} bytes with its variables, of {LONGEST_FRAME} at most."
            raise RequestRefused(sentence, kind="BadOption", hint="Put it into a script.")
        self._send(request)

    def _received(self, connection: _socket.socket) -> bytes:
        data = connection.recv(_CHUNK)
        if not data:
            raise ConnectionError
        # TLS may have decrypted more than was asked for, of which `select` knows nothing.
        while waiting := getattr(connection, "pending", int)():
            data += connection.recv(waiting)
        return data

    def _is_ended(self, received: bytearray) -> bool:
        """Take the frames that are complete; return whether one of them was the end."""
        self._take_frames(received)
        return self._outcome is not None

    def _watched(self) -> list[int]:
        fds = [self._connection.fileno(), self._terminal.wake]
        if self._joined and not self._input_ended and self._sender.room >= PIECE + 2 * CONTROL_ROOM:
            fds.append(self._terminal.input)
        return fds

    def _send(self, payload: bytes) -> None:
        self._connection.sendall(encode_frame(payload))

    def _take_frames(self, received: bytearray) -> None:
        while len(received) >= LENGTH_BYTES:
            end = LENGTH_BYTES + decode_length(bytes(received[:LENGTH_BYTES]))
            if len(received) < end:
                return
            frame = bytes(received[LENGTH_BYTES:end])
            del received[:end]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if frame[:1] == DATA:
            for message in self._receiver.feed(frame[1:]):
                self._take_message(message.kind, message.data)
            if acknowledgement := self._receiver.acknowledge():
                self._send(acknowledgement)
        elif frame[:1] == ACKNOWLEDGE:
            self._sender.acknowledge(acknowledged(frame))
        elif frame[:1] == CONTROL:
            self._take_control(read(frame[1:].decode()))
        else:
            raise StreamBroken(f"a frame that begins with {frame[:1]!r}")

    def _take_control(self, event: dict[str, Any]) -> None:
        if "refused" in event:
            refused = event["refused"]
            hint = refused.get("hint") or ""
            raise SessionDenied(refused["error"], kind=refused["kind"], hint=hint, servers=refused.get("servers", ()))
        if "challenge" in event and self._sign is not None:
            self._send_request(proof=self._sign(str(event["challenge"])))
        elif event.get("event") == "session":
            self._begin(int(event["received"]), event)
        elif event.get("event") == "ended":
            self._outcome = SessionOutcome(None, str(event["state"]), str(event["says"]))
        elif event.get("event") == "away":
            self._terminal.tell(str(event["says"]))
        else:
            self._on_event(event)

    def _begin(self, received: int, event: dict[str, Any]) -> None:
        """Go on with the input where the node has it, and leave the keyboard to the session."""
        if self._began:
            self._terminal.tell("The connection is back.")
        else:
            self._on_event(event)
        self._began = self._joined = True
        self._sender.resume(received)
        self._send_queued()  # what was lost on the way; nothing else may follow it
        self._terminal.make_raw()
        self._resize()

    def _take_message(self, kind: int, data: bytes) -> None:
        if kind != EXIT:
            self._terminal.write(data, to=2 if kind == STDERR else 1)
            return
        end = read(data.decode())
        self._outcome = SessionOutcome(int(end["status"]), str(end["ended"]))
        self._send(self._receiver.acknowledge(at_once=True))
        self._send(CONTROL + b"{}")

    # The user's side.

    def _read_input(self) -> None:
        data = os.read(self._terminal.input, PIECE)
        if not data:
            self._input_ended = True
            self._queue(EOF)
            return
        if self._terminal.is_terminal:
            data = self._escapes.feed(data)
            if self._escapes.is_leaving:
                raise Left
        if data:
            self._queue(STDIN, data)

    def _resize(self) -> None:
        if self._terminal.is_terminal and self._joined and self._sender.room > CONTROL_ROOM // 2:
            self._queue(RESIZE, encode_size(*self._terminal.size()))

    def _queue(self, kind: int, data: bytes = b"") -> None:
        self._sender.queue(encode_message(kind, data))
        self._send_queued()

    def _send_queued(self) -> None:
        while piece := self._sender.take():
            self._send(DATA + piece)
