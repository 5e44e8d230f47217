"""Framed messages between a node program, its supervisors and the server.

A frame is a length, a kind, a number and a body. The number ties an answer to its request, or names the stream that
raw bytes belong to. Bodies are JSON objects, except those of RAW frames.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, NamedTuple

PROTOCOL = 1
"""Spoken by both ends; the server refuses a node program that speaks another."""

REQUEST, ANSWER, EVENT, RAW = 1, 2, 3, 4
SAMPLES = 1
"""The number of RAW frames that carry samples; those of sessions have higher ones."""

LONGEST = 16 << 20
"""Bytes in a body. Whoever announces more is not one of us."""

_HEAD = struct.Struct(">IBI")
_CHUNK = 1 << 16

Body = dict[str, Any]

encode_body = json.JSONEncoder(separators=(",", ":")).encode
"""JSON without spaces; `json.dumps` would make an encoder for each call."""


class ChannelClosed(Exception):
    """The other end went away."""


class BadFrame(Exception):
    """Bytes that are not a frame of ours; nothing after them can be trusted."""


class Frame(NamedTuple):
    """One message as it came: the body is still bytes."""

    kind: int
    number: int
    data: bytes

    def body(self) -> Body:
        """Decode the JSON object inside; raise `BadFrame` if it is none."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise BadFrame(f"a body that is not JSON: {self.data[:60]!r}") from error
        if not isinstance(value, dict):
            raise BadFrame(f"a body that is not an object: {self.data[:60]!r}")
        return value


def encode_frame(kind: int, number: int, body: Body | bytes) -> bytes:
    """Encode one frame."""
    data = body if isinstance(body, bytes) else encode_body(body).encode()
    if len(data) > LONGEST:
        raise BadFrame(f"a body of {len(data)} bytes; at most {LONGEST} travel in one frame")
    return _HEAD.pack(len(data), kind, number) + data


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; return the frames that are complete now."""
        self._buffer += data
        frames, at = [], 0
        while len(self._buffer) - at >= _HEAD.size:
            length, kind, number = _HEAD.unpack_from(self._buffer, at)
            if length > LONGEST or not REQUEST <= kind <= RAW:
                raise BadFrame(f"a frame of kind {kind} with {length} bytes")
            end = at + _HEAD.size + length
            if len(self._buffer) < end:
                break
            frames.append(Frame(kind, number, bytes(self._buffer[at + _HEAD.size : end])))
            at = end
        # Once for all frames: each cut moves what is left.
        del self._buffer[:at]
        return frames


class Endpoint:
    """One end of a stream of frames on descriptors that never block.

    What cannot be written at once waits in memory; `pending` says how many bytes do, so that whoever sends things
    that may be dropped (samples) can stop in time.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self.read_fd, self.write_fd = read_fd, write_fd
        self._reader, self._out = FrameReader(), bytearray()

    @property
    def pending(self) -> int:
        """Bytes that wait for the other end to read."""
        return len(self._out)

    def queue(self, kind: int, number: int, body: Body | bytes) -> None:
        """Keep one frame for the next `flush`."""
        self._out += encode_frame(kind, number, body)

    def send(self, kind: int, number: int, body: Body | bytes) -> None:
        """Queue one frame and write what the other end takes now."""
        self.queue(kind, number, body)
        self.flush()

    def flush(self) -> None:
        """Write as much as the other end takes. `ChannelClosed` if it is gone."""
        write_some(self.write_fd, self._out)

    def receive(self) -> list[Frame]:
        """Read what is there. `ChannelClosed` at the end of the stream."""
        return self._reader.feed(read_some(self.read_fd))

    def close(self) -> None:
        """Close both descriptors."""
        for fd in {self.read_fd, self.write_fd}:
            os.close(fd)


def write_some(fd: int, out: bytearray) -> None:
    """Write as much as the other end takes now, and remove it from `out`. `ChannelClosed` if it is gone."""
    while out:
        try:
            written = os.write(fd, memoryview(out)[:_CHUNK])
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        del out[:written]


def read_some(fd: int) -> bytes:
    """Read what is there, perhaps nothing. `ChannelClosed` at the end of the stream."""
    try:
        data = os.read(fd, _CHUNK)
    except BlockingIOError:
        return b""
    except OSError as error:
        raise ChannelClosed(str(error)) from error
    if not data:
        raise ChannelClosed("end of stream")
    return data
