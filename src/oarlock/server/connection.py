"""One connection to the server: who is at its other end, and how long and how much it may keep us busy."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oarlock.model.errors import BadRequest, OarlockError, TooLong, TooManyAtOnce
from oarlock.settings.kinds import Network
from oarlock.web import telling
from oarlock.web.who import Peer

HEAD_SECONDS = 5.0
HEAD_BYTES = 65_536
UNWANTED_BYTES = 32 * 2**20
"""How much more somebody may send of a request that was answered already; hanging up earlier loses the answer."""

MOST_OF_ONE = 256

_CREDENTIALS = struct.Struct("iII")


@dataclass(slots=True)
class Limits:
    """What one server lets connections do, and how many each caller (a user id, or an address) has now."""

    networks: Collection[Network] = ()
    head_seconds: float = HEAD_SECONDS
    most_of_one: int = MOST_OF_ONE
    open: Counter[int | str] = field(default_factory=Counter)

    def admits(self, address: str) -> bool:
        """Whether an address may talk to the port."""
        ip = ip_address(address.partition("%")[0])
        mapped = getattr(ip, "ipv4_mapped", None) or ip
        return any(mapped in network for network in self.networks)


class Whole:
    """A transport that writes the head of an answer together with its body: one call of the system, not two.

    A head whose body does not come in the same breath is written alone, as soon as the loop turns.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write; what ends as a head does is kept for a moment."""
        head, self._head = self._head, b""
        if data.endswith(b"\r\n\r\n"):
            self._head = head + data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(head + data)

    def close(self) -> None:
        """Write what is left, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which also asks the kernel who calls and does not wait for ever.

    It leans on uvicorn's insides (`app_state`, the parser's callbacks); a test holds uvicorn to them.
    """

    def __init__(self, limits: Limits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._caller: int | str | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_began = False
        self._head_bytes = 0
        self._unwanted_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask who is there; turn away whom nobody wants."""
        super().connection_made(transport)
        self.transport = Whole(transport, self.loop)  # type: ignore[assignment]
        peer = _peer(transport)
        if peer is None and not self._limits.admits(self.client[0] if self.client else "::"):
            transport.abort()
            return
        # A dictionary of its own: all connections share the one that uvicorn hands out.
        self.app_state = {**self.app_state, "peer": peer}
        self._caller = peer.uid if peer is not None else self.client[0] if self.client else ""
        self._limits.open[self._caller] += 1
        if self._limits.open[self._caller] > self._limits.most_of_one:
            self._refuse(
                TooManyAtOnce(
                    f"There are already {self._limits.most_of_one} connections of yours.", hint="Close some first."
                )
            )
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out."""
        self._stop_timer()
        if self._caller is not None:
            self._limits.open[self._caller] -= 1
            if not self._limits.open[self._caller]:
                del self._limits.open[self._caller]
            self._caller = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that goes on and on is refused."""
        if self.transport.is_closing():
            return
        self._head_began = False
        super().data_received(data)
        if self._head_began:
            return
        if not self._in_head and self.cycle is not None and self.cycle.response_complete:
            self._unwanted_bytes += len(data)
            if self._unwanted_bytes > UNWANTED_BYTES:
                self.transport.abort()
        elif self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(TooLong(f"The head of the request is over {HEAD_BYTES} bytes."))

    def on_message_begin(self) -> None:
        """Begin to wait for a whole head."""
        super().on_message_begin()
        self._head_began = True
        self._head_bytes = 0
        self._await_head()

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is here."""
        self._stop_timer()
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in our own words."""
        self._refuse(BadRequest(msg, hint="Speak HTTP/1.1."))

    def _await_head(self) -> None:
        self._in_head = True
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_late)

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: OarlockError) -> None:
        status, content = telling.refusal(error)
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        self.transport.close()


def _peer(transport: asyncio.Transport) -> Peer | None:
    """Ask the kernel who opened the other end of a Unix socket; None: it is no such socket."""
    sock = transport.get_extra_info("socket")
    if sock.family != socket.AF_UNIX:
        return None
    return Peer(*_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))
