"""One connection to the server: the identity of its peer, and its limits in time and bytes."""

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oarlock.model.errors import BadRequest, OarlockError, TooLong, TooManyAtOnce
from oarlock.node.wire.stream import LENGTH_BYTES, SWITCHED, StreamBroken, decode_length, encode_frame
from oarlock.settings.kinds import Network
from oarlock.web import refusals
from oarlock.web.identity import SocketPeer

_PARTING_SECONDS = 5.0  # for the last frames to be read
_BUFFER = 1 << 16


PROXY_SOCKET = "portal.sock"
"""The socket in the state directory at which a proxy is believed who names users (PORTAL_USER_HEADER)."""

PROXY = "the proxy"
"""Whose all connections at that socket are."""


class UpgradedConnection:
    """Frames in both directions. `lost` is set when the connection is closed, whichever side did it."""

    def __init__(self, transport: asyncio.Transport, *, is_local: bool) -> None:
        self._transport, self.is_local = transport, is_local
        self._reader = asyncio.StreamReader(limit=_BUFFER)
        self._reader.set_transport(transport)  # it stops reading of the socket while its buffer is full
        self.lost = asyncio.Event()
        if not is_local:
            _keep_alive(transport.get_extra_info("socket"))
        transport.write(SWITCHED)

    def feed(self, data: bytes) -> None:
        """Take received bytes."""
        self._reader.feed_data(data)

    def end(self) -> None:
        """Note that the connection is closed."""
        self._reader.feed_eof()
        self.lost.set()

    async def receive(self) -> bytes | None:
        """Return the next frame; None at the end. Raise `StreamBroken` for what cannot be a frame."""
        try:
            return await self._reader.readexactly(decode_length(await self._reader.readexactly(LENGTH_BYTES)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except struct.error as error:
            raise StreamBroken(str(error)) from error

    def send(self, payload: bytes) -> None:
        """Send a frame; what the client does not read waits in memory, so callers bound what is under way."""
        if not self._transport.is_closing():
            self._transport.write(encode_frame(payload))

    async def close(self) -> None:
        """Close the connection once the client has read everything, or after a moment."""
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.lost.wait(), _PARTING_SECONDS)
        if not self.lost.is_set():
            self._transport.abort()
            await self.lost.wait()


def _keep_alive(sock: socket.socket) -> None:
    """Make the kernel notice a client's machine that is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


HEAD_SECONDS = 5.0
HEAD_BYTES = 65_536
UNWANTED_BYTES = 32 * 2**20
"""Bytes that a client may still send after its response; closing earlier would lose the response."""

ANSWER_SECONDS = 30.0
ANSWER_BYTES = 2**18
"""A client that reads less of its response than this in `ANSWER_SECONDS` is disconnected."""

MOST_OF_ONE = 256
MOST_OF_RELAY = 2048
"""Connections of a proven relay, which speaks for all users of its login host."""

REFUSAL_SECONDS = 1.0
"""After so long a connection too many is refused."""

_CREDENTIALS = struct.Struct("iII")


@dataclass(slots=True)
class ConnectionLimits:
    """Limits of all connections, and how many each caller (a uid, or an address) has now.

    There may be `most` in all, at the port `most_at_port`: what is between them is kept for the socket.
    """

    networks: Collection[Network] = ()
    head_seconds: float = HEAD_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    refusal_seconds: float = REFUSAL_SECONDS
    most_of_one: int = MOST_OF_ONE
    most_of_relay: int = MOST_OF_RELAY
    most_of_address: int | None = None  # where it is not the same as of a user at the socket
    most: int = 4096
    most_at_port: int = 3072
    open: Counter[int | str] = field(default_factory=Counter)
    at_port: int = 0
    in_all: int = 0

    def admits(self, address: str) -> bool:
        """Whether an address may talk to the port."""
        ip = _plain(address)
        return any(ip in network for network in self.networks)

    def enter(self, caller: int | str) -> None:
        """Count a new connection."""
        self.open[caller] += 1
        self.in_all += 1
        self.at_port += isinstance(caller, str)

    def refusal(self, caller: int | str) -> TooManyAtOnce | None:
        """Return the error if one more connection of the caller is one too many."""
        most = self.most_of_address if isinstance(caller, str) and self.most_of_address else self.most_of_one
        if caller == PROXY:
            most = self.most_at_port
        if self.open[caller] >= most:
            return TooManyAtOnce(f"There are already {most} connections of yours.", hint="Close some first.")
        if self.in_all >= self.most or (isinstance(caller, str) and self.at_port >= self.most_at_port):
            return TooManyAtOnce("The server has as many connections as it can take.", hint="Try again in a moment.")
        return None

    def move(self, caller: int | str, host: str) -> str:
        """Count a connection as one of the relay of a login host, no longer as one of its address.

        Until then it is one of the few that an address may have: whoever proves nothing takes none of a relay's.
        """
        relay = f"relay of {host}"
        if self.open[relay] >= self.most_of_relay:
            raise TooManyAtOnce(
                f"There are already {self.most_of_relay} connections of the {relay}.", hint="Try again in a moment."
            )
        self.leave(caller)
        self.enter(relay)
        return relay

    def leave(self, caller: int | str) -> None:
        """Count a closed connection."""
        self.open[caller] -= 1
        if not self.open[caller]:
            del self.open[caller]
        self.in_all -= 1
        self.at_port -= isinstance(caller, str)


def caller_of(address: str) -> str:
    """Return the caller behind an address, for limits: one with many addresses is one caller.

    That is this machine (127.0.0.0/8 and ::1), and a network of IPv6 (/64), which is what a single host is given.
    """
    ip = _plain(address)
    if ip.is_loopback:
        return "this machine"
    return str(ip) if isinstance(ip, IPv4Address) else str(IPv6Network((int(ip) >> 64 << 64, 64)))


@lru_cache(maxsize=4096)
def _plain(address: str) -> IPv4Address | IPv6Address:
    """Parse an address; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    ip = ip_address(address.partition("%")[0])
    return (isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip


class CountedConnection(socket.socket):
    """A connection that counts as its caller's until its descriptor is closed, also while TLS is still agreed on."""

    limits: ConnectionLimits | None = None
    caller: int | str = ""

    def count(self, limits: ConnectionLimits, caller: int | str) -> None:
        """Count it as one of a caller."""
        self.limits, self.caller = limits, caller
        limits.enter(caller)

    def count_as_relay(self, host: str) -> None:
        """Count it as one of the relay of a host from now on."""
        if self.limits is not None and not str(self.caller).startswith("relay of "):
            self.caller = self.limits.move(self.caller, host)

    def close(self) -> None:
        """Close the connection, and count it as closed."""
        super().close()
        limits, self.limits = self.limits, None
        if limits is not None:
            limits.leave(self.caller)


class WholeResponseTransport:
    """A transport that writes the head of a response together with its body: one system call, not two.

    A head whose body does not follow in the same iteration of the event loop is written alone in the next.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write data; a response head is held back until its body follows."""
        head, self._head = self._head, b""
        if data.endswith(b"\r\n\r\n"):
            self._head = head + data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(head + data)

    def close(self) -> None:
        """Flush the head that is held back, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with the peer's identity from the kernel and with timeouts.

    It relies on internals of uvicorn (`app_state`, the parser's callbacks); a test checks that they exist.
    """

    def __init__(self, limits: ConnectionLimits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_began = False
        self._head_bytes = 0
        self._unwanted_bytes = 0
        self._answer_timer: asyncio.TimerHandle | None = None
        self._upgraded: UpgradedConnection | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Identify the caller. Who may connect, and how often, was decided when it was accepted (`listen`)."""
        super().connection_made(transport)
        # So that `pause_writing` is called for every unread byte. TLS pauses from `high` bytes on, also from none.
        transport.set_write_buffer_limits(high=0 if transport.get_extra_info("ssl_object") is None else 1, low=0)
        self.transport = WholeResponseTransport(transport, self.loop)  # type: ignore[assignment]
        # A dictionary of its own: all connections share the one that uvicorn hands out.
        proxied = _is_proxied(transport)
        peer = None if proxied else _peer(transport)  # the proxy speaks for others, never for itself
        self.app_state = {**self.app_state, "peer": peer, "proxied": proxied, "connection": self}
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)
        if self._upgraded is not None:
            self._upgraded.end()
        self.app_state = {}  # it refers to this connection

    def upgrade(self) -> UpgradedConnection:
        """Answer 101 and return the connection of frames; whatever is received from now on goes there."""
        local = self.app_state["peer"] is not None
        self._upgraded = UpgradedConnection(self.transport, is_local=local)
        return self._upgraded

    def count_as_relay(self, host: str) -> None:
        """Count this connection as one of the relay of a host, which has just been proven."""
        sock = self.transport.get_extra_info("socket")
        counted = getattr(sock, "_sock", sock)  # asyncio hands out a wrapper
        if isinstance(counted, CountedConnection):
            counted.count_as_relay(host)

    def keep_open(self, seconds: float) -> None:
        """Keep the connection open for so long after each response: an agent comes back every few seconds."""
        self.timeout_keep_alive = seconds  # type: ignore[assignment]  # uvicorn passes it on to `call_later`

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a verb decides whether a connection is upgraded."""

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse a request head that is too long."""
        if self.transport.is_closing():
            return
        if self._upgraded is not None:
            self._upgraded.feed(data)
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
        """Start the timeout for the request head."""
        super().on_message_begin()
        self._head_began = True
        self._head_bytes = 0
        self._await_head()

    def on_headers_complete(self) -> None:
        """Stop the timeout: the head is complete."""
        self._stop_timer()
        self._in_head = False
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Start the timeout for a client that does not read its response."""
        super().pause_writing()
        if self._upgraded is not None:
            return  # a terminal may stand still for hours; the window of its session bounds what waits
        self._await_taken(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop the timeout: the client has read the response."""
        super().resume_writing()
        self._stop_answer_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with our own error."""
        self._refuse(BadRequest(msg, hint="Speak HTTP/1.1."))

    def _await_head(self) -> None:
        self._in_head = True
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_late)

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _await_taken(self, left: int) -> None:
        self._stop_answer_timer()
        self._answer_timer = self.loop.call_later(self._limits.answer_seconds, self._look_whether_taken, left)

    def _look_whether_taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if before - left < ANSWER_BYTES:
            self.transport.abort()
        else:
            self._await_taken(left)

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: OarlockError) -> None:
        self.transport.write(refusal_text(error))
        self.transport.close()


def refusal_text(error: OarlockError) -> bytes:
    """Return the response to a connection that is closed with an error."""
    status, content = refusals.refusal(error)
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def peer_of(sock: socket.socket) -> SocketPeer:
    """Return the credentials of the other end of a Unix socket, which the kernel vouches for."""
    return SocketPeer(*_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))


def _is_proxied(transport: asyncio.Transport) -> bool:
    """Return whether a connection came in at the proxy's socket; it listened before it was renamed to its path."""
    sock = transport.get_extra_info("socket")
    return sock.family == socket.AF_UNIX and str(sock.getsockname()).rpartition("/")[2].rstrip("~") == PROXY_SOCKET


def _peer(transport: asyncio.Transport) -> SocketPeer | None:
    """Return the credentials of the other end of a Unix socket; None for TCP."""
    sock = transport.get_extra_info("socket")
    return peer_of(sock) if sock.family == socket.AF_UNIX else None
