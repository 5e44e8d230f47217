"""Resumable byte streams with a window, and the messages in them: what a user's client and a supervisor share.

Each direction of a session is one stream. The sender keeps what the receiver has not acknowledged, at most a window of
it. After a broken connection each side says how many bytes it received, and the other goes on from there: nothing is
lost or doubled, whichever of the processes in between was restarted. Those in between only pass bytes on.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

WINDOW = 128 << 10
"""Bytes of one direction that may be under way, or wait for the receiver."""

PIECE = 16 << 10
"""Bytes of data in one message."""

LONGEST_FRAME = WINDOW + 64
"""Bytes of one frame of a session."""

CONTROL_ROOM = 4 << 10
"""Bytes of the window that are kept for resizes and signals: data does not fill it."""

STDIN, STDOUT, STDERR, EOF, RESIZE, SIGNAL, EXIT = range(7)
"""Kinds of messages: to the node STDIN, EOF, RESIZE, SIGNAL; from it STDOUT, STDERR, EXIT."""

DATA, ACKNOWLEDGE = b"d", b"a"
"""The first byte of a frame of a session: bytes of the stream, or how many were consumed so far."""

_HEAD = struct.Struct(">BI")
_TOTAL = struct.Struct(">Q")
_SIZE = struct.Struct(">HH")


class StreamBroken(Exception):
    """The other side cannot be right: it acknowledges what was never sent, or sends what no window allows."""


class StreamMessage(NamedTuple):
    """One message of a stream."""

    kind: int
    data: bytes


def encode_message(kind: int, data: bytes = b"") -> bytes:
    """Encode one message."""
    return _HEAD.pack(kind, len(data)) + data


def encode_size(rows: int, columns: int) -> bytes:
    """Encode the size of a terminal."""
    return _SIZE.pack(rows & 0xFFFF, columns & 0xFFFF)


def decode_size(data: bytes) -> tuple[int, int]:
    """Decode the size of a terminal: rows and columns."""
    try:
        rows, columns = _SIZE.unpack(data)
    except struct.error as error:
        raise StreamBroken(f"a size of {len(data)} bytes") from error
    return rows, columns


def acknowledgement(total: int) -> bytes:
    """Encode how many bytes of a stream were consumed so far, as a frame."""
    return ACKNOWLEDGE + _TOTAL.pack(total)


def acknowledged(frame: bytes) -> int:
    """Decode the number of an acknowledgement."""
    try:
        return int(_TOTAL.unpack(frame[1:])[0])
    except struct.error as error:
        raise StreamBroken(f"an acknowledgement of {len(frame)} bytes") from error


class ResumableSender:
    """The sending end of a stream."""

    def __init__(self) -> None:
        self._unacknowledged = bytearray()
        self._begin = 0  # place in the stream of the first byte that is kept
        self._sent = 0  # place of the first byte that was not sent

    @property
    def room(self) -> int:
        """Bytes that may be queued now."""
        return WINDOW - len(self._unacknowledged)

    @property
    def is_empty(self) -> bool:
        """Return whether the receiver has consumed everything."""
        return not self._unacknowledged

    @property
    def kept(self) -> tuple[int, bytes]:
        """What the receiver has not consumed, and the place in the stream of its first byte."""
        return self._begin, bytes(self._unacknowledged)

    def queue(self, data: bytes) -> None:
        """Add bytes to the stream."""
        self._unacknowledged += data

    def take(self, most: int = WINDOW) -> bytes:
        """Return bytes that were not sent yet, and count them as sent."""
        at = self._sent - self._begin
        data = bytes(self._unacknowledged[at : at + most])
        self._sent += len(data)
        return data

    def acknowledge(self, total: int) -> None:
        """Forget what the receiver has consumed: so many bytes since the beginning of the stream."""
        if total > self._sent:
            raise StreamBroken(f"{total} bytes are acknowledged, but {self._sent} were sent")
        if total > self._begin:
            del self._unacknowledged[: total - self._begin]
            self._begin = total

    def resume(self, received: int) -> None:
        """Go on with the byte after those that the receiver got."""
        if not self._begin <= received <= self._begin + len(self._unacknowledged):
            raise StreamBroken(f"{received} bytes were received of a stream kept from byte {self._begin} on")
        self._sent = received


class ResumableReceiver:
    """The receiving end of a stream: cuts it into messages, and counts."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._acknowledged = 0
        self.received = 0

    def feed(self, data: bytes) -> list[StreamMessage]:
        """Add received bytes; return the messages that are complete now."""
        self.received += len(data)
        self._buffer += data
        messages, at = [], 0
        while len(self._buffer) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer, at)
            if length > WINDOW or kind > EXIT:
                raise StreamBroken(f"a message of kind {kind} with {length} bytes")
            end = at + _HEAD.size + length
            if len(self._buffer) < end:
                break
            messages.append(StreamMessage(kind, bytes(self._buffer[at + _HEAD.size : end])))
            at = end
        del self._buffer[:at]
        return messages

    def acknowledge(self, unconsumed: int = 0, *, at_once: bool = False) -> bytes:
        """Return the frame that acknowledges what was consumed, or nothing while that is little.

        `unconsumed` bytes of the messages still wait for whoever reads them. Every key typed would otherwise cost an
        acknowledgement; a quarter of the window leaves the sender room enough.
        """
        total = self.received - len(self._buffer) - unconsumed
        least = 1 if at_once else WINDOW // 4
        if total - self._acknowledged < least:
            return b""
        self._acknowledged = total
        return acknowledgement(total)


CONTROL = b"j"
"""The first byte of a frame between client and server that holds JSON; nodes get none of these."""

PROTOCOL_NAME = "oarlock-session"
"""What an HTTP connection is upgraded to."""

SWITCHED = f"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {PROTOCOL_NAME}\r\n\r\n".encode()
"""The answer after which nothing of HTTP follows."""

KEY_SCHEME = "JobKey"
"""In the header `Authorization`: the client will show the private key of a job, by a signature of a challenge."""

PROOF_NAMESPACE = "oarlock-session"
"""What `ssh-keygen -Y sign` is told that the signature is for, so that one for something else is no proof."""

FIRST_CLIENT_STREAM = 1 << 31
"""On the channel of a node, streams from this number on are connections of clients there; the server begins others."""

_LENGTH = struct.Struct(">I")


def encode_frame(payload: bytes) -> bytes:
    """Encode one frame of the connection between client and server: its length, then the payload."""
    return _LENGTH.pack(len(payload)) + payload


def decode_length(data: bytes) -> int:
    """Decode the length of a frame from its first `LENGTH_BYTES`; raise `StreamBroken` if it is too long."""
    length = int(_LENGTH.unpack(data)[0])
    if not 0 < length <= LONGEST_FRAME:
        raise StreamBroken(f"a frame of {length} bytes")
    return length


LENGTH_BYTES = _LENGTH.size
