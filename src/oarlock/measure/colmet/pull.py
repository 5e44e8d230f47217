"""A ZeroMQ socket that receives from those who may send, and from nobody else.

Who connects is asked for by ZeroMQ's own protocol (ZAP, in this process): by address, or with CURVE by key, before a
message is taken. Whoever is refused is disconnected. One thread does it all, so nothing here needs a lock.

pyzmq comes with the extra `colmet` and is loaded when it is needed.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock.measure.colmet.senders import Senders
from oarlock.model.errors import ConfigRefused

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)

_ZAP = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_ZAP_PARTS = 6  # version, request, domain, address, identity, mechanism; then credentials
_HANDSHAKE_MS = 5_000
_MOST_CONNECTIONS = 4_096
_MOST_COUNTED = 1_000
OTHERS = "others"
"""What refused senders are counted under when there are too many of them."""


class ReceivedMessage(NamedTuple):
    """A message, and the address or key it came from."""

    sender: str
    data: bytes


class PullSocket:
    """Receives at an address. `most_bytes` is the size of the largest message, `queued` how many of a sender wait."""

    def __init__(self, address: str, senders: Senders, *, most_bytes: int, queued: int) -> None:
        self._zmq = _load()
        self._senders = senders
        self._most_bytes = most_bytes
        self.refused: Counter[str] = Counter()
        """How much was refused, by sender. Read it from any thread."""
        self._logged: set[str] = set()
        self._context: zmq.Context[Any] = self._zmq.Context()
        self._context.max_sockets = _MOST_CONNECTIONS
        try:
            self._door = self._context.socket(self._zmq.REP)
            self._door.bind(_ZAP)
            self._socket = self._open(bind_address(address), queued)
            self._woken, self._waker = self._pair()
        except BaseException:
            self._context.destroy(linger=0)
            raise

    @property
    def address(self) -> str:
        """Where it listens, with the port that it was given for port 0."""
        return self._socket.getsockopt_string(self._zmq.LAST_ENDPOINT).rstrip("\0")

    def messages(self) -> Iterator[ReceivedMessage]:
        """Yield what comes, until `stop`."""
        poller = self._zmq.Poller()
        for watched in (self._door, self._socket, self._woken):
            poller.register(watched, self._zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._woken in ready:
                return
            if self._door in ready:
                self._admit()
            if self._socket in ready and (message := self._receive()) is not None:
                yield message

    def stop(self) -> None:
        """End `messages`. May be called from one other thread, once."""
        self._waker.send(b"")

    def close(self) -> None:
        """Close all sockets; not while another thread is in `messages`."""
        self._context.destroy(linger=0)

    def refuse(self, sender: str, why: str) -> None:
        """Count that something of a sender was refused; log the first time."""
        if sender not in self.refused and len(self.refused) >= _MOST_COUNTED:
            sender = OTHERS
        self.refused[sender] += 1
        if sender not in self._logged:
            self._logged.add(sender)
            log.warning("a message by ZeroMQ was refused", extra={"sender": sender, "why": why})

    def _open(self, address: str, queued: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._context.socket(self._zmq.PULL)
        socket.setsockopt(self._zmq.RCVHWM, queued)
        # Twice what is believed: what is a little too large is counted, what is far too large is cut off unread.
        socket.setsockopt(self._zmq.MAXMSGSIZE, 2 * self._most_bytes)
        socket.setsockopt(self._zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        socket.setsockopt(self._zmq.IPV6, int("[" in address))
        socket.setsockopt_string(self._zmq.ZAP_DOMAIN, "oarlock")
        if self._senders.curve:
            socket.curve_server = True
            try:
                socket.curve_secretkey = self._senders.curve.secret.encode()
            except (self._zmq.ZMQError, ValueError):
                raise ConfigRefused("The secret key is not a CURVE key in Z85.") from None
        try:
            socket.bind(address)
        except self._zmq.ZMQError as error:
            raise ConfigRefused(
                f"Nothing can be received at {address}: {error.strerror}.", hint="Give another address, or port 0."
            ) from None
        return socket

    def _pair(self) -> "tuple[zmq.Socket[bytes], zmq.Socket[bytes]]":
        ends = self._context.socket(self._zmq.PAIR), self._context.socket(self._zmq.PAIR)
        ends[0].bind("inproc://stop")
        ends[1].connect("inproc://stop")
        return ends

    def _admit(self) -> None:
        """Answer whether somebody who connects may send."""
        parts = self._door.recv_multipart()
        request = parts[1] if len(parts) > 1 else b""
        sender = self._authenticated(parts)
        if sender is None:
            self._door.send_multipart([_ZAP_VERSION, request, b"400", b"refused", b"", b""])
        else:
            self._door.send_multipart([_ZAP_VERSION, request, b"200", b"", sender.encode(), b""])

    def _authenticated(self, parts: list[bytes]) -> str | None:
        """Return the address or key of one who may send; None, counted, for others."""
        if len(parts) < _ZAP_PARTS:
            return None
        address, mechanism = parts[3].decode("ascii", "replace"), parts[5]
        if self._senders.curve:
            key = _z85(parts[_ZAP_PARTS:]) if mechanism == b"CURVE" else ""
            if self._senders.admit_key(key):
                return key
        elif mechanism == b"NULL" and self._senders.admit_address(address):
            return address
        self.refuse(address, "it is not among those who may send")
        return None

    def _receive(self) -> ReceivedMessage | None:
        frames = self._socket.recv_multipart(copy=False)
        sender = str(frames[0].get("User-Id"))
        if len(frames) > 1 or len(frames[0]) > self._most_bytes:
            what = "a message of several parts" if len(frames) > 1 else f"a message of {len(frames[0])} bytes"
            self.refuse(sender, what)
            return None
        return ReceivedMessage(sender, frames[0].bytes)


def bind_address(text: str) -> str:
    """Parse `HOST:PORT`, with or without `tcp://` before it; `*` is every address of this machine."""
    plain = text.removeprefix("tcp://")
    host, colon, port = plain.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) >= 1 << 16 or "/" in host:
        raise ConfigRefused(f"`{text}` is not an address for ZeroMQ.", hint="Write tcp://0.0.0.0:5556.")
    return f"tcp://{host}:{port}"


def _z85(credentials: list[bytes]) -> str:
    key_bytes = 32
    if len(credentials) != 1 or len(credentials[0]) != key_bytes:
        return ""
    from zmq.utils import z85

    return str(z85.encode(credentials[0]).decode())


def _load() -> Any:
    try:
        import zmq
    except ImportError:
        raise ConfigRefused(
            "ZeroMQ cannot be spoken here: pyzmq is not installed.", hint="Install `oarlock[colmet]`."
        ) from None
    return zmq
