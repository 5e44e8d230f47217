"""The messages of Prometheus remote write 1.0, as protocol buffers lay them out.

    WriteRequest { repeated TimeSeries timeseries = 1; }
    TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    Label        { string name = 1; string value = 2; }
    Sample       { double value = 1; int64 timestamp = 2; }

Four messages of two fields each, which do not change any more: a library for them would be larger than they are. A
request is the concatenation of its series, so each is encoded alone.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache

STALE = struct.pack("<Q", 0x7FF0000000000002)
"""The value that ends a series: without it an engine shows the last value for five more minutes."""

_SERIES, _LABEL, _SAMPLE = b"\x0a", b"\x0a", b"\x12"  # field 1, 1 and 2, each with a length
_NAME, _TEXT = b"\x0a", b"\x12"
_VALUE, _TIMESTAMP = b"\x09", b"\x10"  # field 1 as 8 bytes, field 2 as a varint
_DOUBLE = 8
_MORE = 0x80


@lru_cache(maxsize=8192)
def varint(number: int) -> bytes:
    """Encode a whole number that is not negative, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number % _MORE | _MORE)
        number //= _MORE
    encoded.append(number)
    return bytes(encoded)


def encode_labels(labels: Mapping[str, str]) -> bytes:
    """Encode the labels of a series, sorted by name as the protocol wants it; empty ones are left out."""
    return b"".join(_label(name.encode(), text.encode()) for name, text in sorted(labels.items()) if text)


def _label(name: bytes, text: bytes) -> bytes:
    body = _NAME + varint(len(name)) + name + _TEXT + varint(len(text)) + text
    return _LABEL + varint(len(body)) + body


def encode_timestamp(milliseconds: int) -> bytes:
    """Encode the instant of a sample; all samples of one instant share it."""
    return _TIMESTAMP + varint(milliseconds)


def encode_series(labels: bytes, value: bytes, timestamp: bytes) -> bytes:
    """Encode a series with one sample, whose value is a packed double, as a part of a request."""
    size = len(_VALUE) + _DOUBLE + len(timestamp)
    sample = _SAMPLE + varint(size) + _VALUE + value + timestamp
    return _SERIES + varint(len(labels) + len(sample)) + labels + sample
