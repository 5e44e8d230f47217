"""The body of a POST of samples: frames, each behind its length, all of it deflated (zlib).

A frame is a sample of version 2 (`node/measure/wire.py`) or a notice in JSON. In samples, jobs have numbers that the
agent chose; a notice says which job of which manager each stands for, and whose it is, before the first sample that
has it. The first notice of a connection is `fresh`: what was said before is forgotten.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from oarlock.model.errors import BadRequest, TooLong
from oarlock.node.measure.wire import MAGIC

MEDIA_TYPE = "application/vnd.oarlock.samples"
LARGEST_BODY = 4 << 20
"""Bytes of the largest body."""

LARGEST_INFLATED = 32 << 20
"""Bytes of the largest body once it is inflated: a few bytes can be deflated from gigabytes of zeros."""

MOST_FRAMES = 2000
_LENGTH = struct.Struct("<I")

_Word = Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x20\x7f]*$")]
_Text = Annotated[str, Meta(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Number = Annotated[int, Meta(ge=1, le=2**62)]


class NotedJob(Struct, frozen=True):
    """The job that a number of samples stands for; what the agent does not know is empty."""

    number: _Number
    job: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.\[\]-]+$")]
    manager: _Word = ""
    user: _Word = ""
    uid: Annotated[int, Meta(ge=0, le=2**32)] | None = None
    account: _Text = ""
    name: _Text = ""


class NotedGap(Struct, frozen=True):
    """Samples that the agent had to drop, by its clock (epoch seconds)."""

    since: float
    until: float
    why: _Text
    jobs: Annotated[list[_Number], Meta(max_length=100_000)] = []


class AgentNotice(Struct, frozen=True):
    """What an agent says besides samples. `period`: seconds between two of them."""

    fresh: bool = False
    period: Annotated[float, Meta(gt=0, le=3600)] | None = None
    jobs: Annotated[list[NotedJob], Meta(max_length=100_000)] = []
    gaps: Annotated[list[NotedGap], Meta(max_length=1000)] = []


_decoder = msgspec.json.Decoder(AgentNotice)


def encode_notice(notice: AgentNotice) -> bytes:
    """Encode a notice as a frame."""
    return msgspec.json.encode(notice)


def pack(frames: Iterable[bytes]) -> bytes:
    """Make a body of frames."""
    return zlib.compress(b"".join(part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)), 1)


def unpack(body: bytes) -> list[bytes | AgentNotice]:
    """Return the frames of a body, notices decoded; refuse what is too large or malformed."""
    data = _inflate(body)
    try:
        frames = list(_cut(data))
        return [frame if frame[:4] == MAGIC else _decoder.decode(frame) for frame in frames]
    except (struct.error, ValueError) as error:
        raise BadRequest(
            f"The body is not one of samples: {str(error)[:200]}.", hint="`oarlock agent --send` makes such bodies."
        ) from None


def _inflate(body: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(body, LARGEST_INFLATED + 1)
    except zlib.error as error:
        raise BadRequest(f"The body is not deflated: {error}.", hint="Send what zlib.compress makes.") from None
    if len(data) > LARGEST_INFLATED:
        raise TooLong(f"The body inflates to more than {LARGEST_INFLATED} bytes.", hint="Send fewer samples at once.")
    if not inflating.eof or inflating.unused_data:
        raise BadRequest("The body ends before its end, or goes on behind it.", hint="Send it whole.")
    return data


def _cut(data: bytes) -> Iterator[bytes]:
    place, count = 0, 0
    while place < len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size + length
        count += 1
        if place > len(data) or count > MOST_FRAMES:
            raise ValueError(f"frame {count} of {length} bytes does not fit")
        yield data[place - length : place]
