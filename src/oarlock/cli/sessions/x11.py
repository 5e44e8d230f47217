"""X11 forwarding: the user's display for the programs of a job, by a session of its own beside the shell.

The job never sees the cookie of the display: it has one that is made for it, and which counts for nothing elsewhere.
Here, at the user's end, it is compared and replaced, as ssh does. Programs that may use the display see all of it.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
import threading

from oarlock.cli.sessions.session import SessionClient
from oarlock.cli.sessions.terminal import PipeEnds
from oarlock.client import RequestRefused
from oarlock.node.oarx11 import BYTES, COOKIE_BYTES, OPENED, PROTOCOL, READY, SOCKETS, Multiplexer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.client import Client

_FIRST_PORT = 6000
_READY_SECONDS = 15.0
_NUMBERS = range(1_000_000, 100_000_000)
_LENGTH = struct.Struct(">H")
_LONGEST_HEAD = 4096


class LocalDisplay:
    """The display that $DISPLAY names, and its cookie if it has one."""

    def __init__(self, name: str, home: str, authority: str) -> None:
        self._host, _, number = name.rpartition(":")
        self._number = number.partition(".")[0]
        if not self._number.isdecimal() or not self._number.isascii() or len(self._number) > 6:
            raise RequestRefused(f"$DISPLAY is `{name}`, which is not a display.", kind="BadOption", hint="DISPLAY=:0")
        self.cookie = self._find_cookie(authority or f"{home}/.Xauthority")

    def connect(self) -> socket.socket:
        """Connect to the display; raise `OSError` if it is not there."""
        if self._host in {"", "unix"}:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(f"{SOCKETS}/X{self._number}")
            return connection
        return socket.create_connection((self._host, _FIRST_PORT + int(self._number)), timeout=10)

    def _find_cookie(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                data = file.read(1 << 20)
        except OSError:
            return b""
        at = 0
        while len(data) >= at + 2:
            at, fields = at + 2, []
            for _ in range(4):
                length = _LENGTH.unpack(data[at : at + 2].rjust(2, b"\0"))[0]
                fields.append(data[at + 2 : at + 2 + length])
                at += 2 + length
            _, number, protocol, cookie = fields
            if protocol == PROTOCOL and number in {b"", self._number.encode()}:
                return cookie
        return b""


class _DisplayEnd(Multiplexer):
    """The end at the display: lets connections in that show the job's cookie, and puts the display's in its place."""

    def __init__(self, display: LocalDisplay, cookie: bytes, source: int, sink: int, ready: threading.Event) -> None:
        super().__init__(source, sink)
        self._display, self._cookie, self._ready = display, cookie, ready
        self._heads: dict[int, bytearray] = {}

    def take(self, kind: int, number: int, data: bytes) -> None:
        """Act on a frame of the node."""
        if kind == READY:
            self._ready.set()
        elif kind == OPENED:
            self._heads[number] = bytearray()
        elif kind == BYTES and number in self._heads:
            self._heads[number] += data
            self._look_at_head(number)
        else:
            self._heads.pop(number, None)
            super().take(kind, number, data)

    def _look_at_head(self, number: int) -> None:
        head = bytes(self._heads[number])
        replaced = replace_cookie(head, self._cookie, self._display.cookie)
        if replaced is None and len(head) < _LONGEST_HEAD:
            return
        del self._heads[number]
        if not replaced:
            self.refuse(number)
            return
        try:
            self.add(number, self._display.connect())
        except OSError:
            self.refuse(number)
            return
        self.write(number, replaced)

    def refuse(self, number: int) -> None:
        """Close a connection that was not let in."""
        from oarlock.node.oarx11 import CLOSED

        self.send(CLOSED, number)


def replace_cookie(head: bytes, expected: bytes, own: bytes) -> bytes | None:
    """Return what a program sends first with the display's own cookie in it.

    None: it is not complete. Nothing (no bytes): it does not show the cookie that was expected.
    """
    if len(head) < 12:
        return None
    order = {b"B": ">", b"l": "<"}.get(head[:1])
    if order is None:
        return b""
    names, cookies = struct.unpack(f"{order}HH", head[6:10])
    begin = 12 + _padded(names)
    end = begin + _padded(cookies)
    if end > _LONGEST_HEAD:
        return b""
    if len(head) < end:
        return None
    name, cookie = head[12 : 12 + names], head[begin : begin + cookies]
    if name != PROTOCOL or not hmac.compare_digest(cookie, expected):
        return b""
    name = PROTOCOL if own else b""
    new = head[:6] + struct.pack(f"{order}HHH", len(name), len(own), 0)
    return new + name.ljust(_padded(len(name)), b"\0") + own.ljust(_padded(len(own)), b"\0") + head[end:]


def _padded(length: int) -> int:
    return (length + 3) & ~3


class DisplayForwarding:
    """The display of this user for one session of a job. `environment` are the variables of that session."""

    def __init__(self, client: Client) -> None:
        name = os.environ.get("DISPLAY", "")
        if not name:
            hint = "Log in with ssh -Y, or leave the option out."
            raise RequestRefused("There is no display here: $DISPLAY is not set.", kind="BadOption", hint=hint)
        home = os.environ.get("HOME", "/")
        self._display = LocalDisplay(name, home, os.environ.get("XAUTHORITY", ""))
        self._client = client
        self._cookie, secret = os.urandom(COOKIE_BYTES), os.urandom(16)
        self._number = _NUMBERS[int.from_bytes(secret[:8], "big") % len(_NUMBERS)]
        self._folder = f"/tmp/.oarlock-x11-{secret.hex()}"  # noqa: S108  (nobody can guess it)
        self._ready = threading.Event()
        self.environment = {"DISPLAY": f":{self._number}", "XAUTHORITY": f"{self._folder}/Xauthority"}

    def start(self, job: int, node: str) -> None:
        """Begin to forward the display to a node of a job; `wait` says when it is there."""
        to_node, ours = os.pipe()
        theirs, from_node = os.pipe()
        os.write(ours, self._cookie)
        request = {"job": job, "node": node, "command": f"exec oarx11 {self._number} {self._folder}"}
        session = SessionClient(
            self._client, request, lambda _event: None, lambda: None, terminal=PipeEnds(to_node, from_node)
        )
        end = _DisplayEnd(self._display, self._cookie, theirs, ours, self._ready)
        for function in (session.run, end.run):
            threading.Thread(target=_quietly, args=(function,), daemon=True).start()

    def wait(self) -> bool:
        """Wait until programs can use the display; return whether they can."""
        return self._ready.wait(_READY_SECONDS)


def _quietly(function: Any) -> None:
    """Run one half of the forwarding; the shell goes on without it."""
    try:
        function()
    except (RequestRefused, OSError, ValueError):
        return
