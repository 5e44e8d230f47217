"""Samples as bytes: version 2, which sends names once a connection, and version 1, which is still read.

A frame of version 2 is a head (magic, boot id, sequence number, instant, how many tables and subjects follow), then
tables of names that the receiver does not have yet, then for the node and each job the number of its table, a count and
that many doubles. Names of a table are joined by line feeds; table 0 makes the receiver forget all others. The sequence
number grows from sample to sample and over restarts of the node program, so that a frame that comes twice, or late, is
recognised by it together with the boot id.

A frame of version 1 has all its names in a head of JSON. Its first four bytes are the length of that head, which is
below 2^24; as such a length, the magic of version 2 would be more.

Whoever reads believes nothing: `SampleDecoder` refuses what is malformed or too large.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

MAGIC = b"oar\xf2"
NODE = 0
"""The number of the subject that is the node itself; others are jobs."""

MOST_SERIES = 200_000
"""Values in one sample; users choose the names of executables, so a node may send any number."""

_MOST_TABLES, _MOST_NAMES, _MOST_SUBJECTS = 10_000, 400_000, 100_000
_AFRESH = 360  # samples after which all tables are sent again: a receiver that lost one is whole then
_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<4s16sQdII")
_TABLE = struct.Struct("<II")
_SUBJECT = struct.Struct("<qII")
_DOUBLE = 8
_NO_BOOT = bytes(16)  # of a sender that does not know its boot id: what it repeats is not recognised
_LABEL = r'[A-Za-z_]\w*="(?:[^"\\\n]|\\["\\n])*"'
_SERIES = re.compile(rf"[A-Za-z_]\w*(?:\{{{_LABEL}(?:,{_LABEL})*\}})?", re.ASCII)


class UnreadableSample(ValueError):
    """Samples that cannot be read."""


class RepeatedSample(UnreadableSample):
    """A sample that came before, or is older than one that came."""


class RawSubject(NamedTuple):
    """The values of a job, or of the node, as packed doubles. The same table is the same tuple of names."""

    job: int
    names: tuple[str, ...]
    values: bytes


class RawSample(NamedTuple):
    """A sample whose values are still packed. `at` is by the node's clock, epoch seconds."""

    at: float
    subjects: list[RawSubject]


class ReceivedSample(NamedTuple):
    """A sample as it arrived. `at` is by the node's clock, epoch seconds."""

    at: float
    node: dict[str, float]
    jobs: dict[int, dict[str, float]]


class FrameHead(NamedTuple):
    """What tells a frame of version 2 from all others of its node, and its instant by the node's clock."""

    boot: bytes
    sequence: int
    at: float


class SampleEncoder:
    """Encodes the samples of one connection. `first` is above all sequence numbers that this boot has used."""

    def __init__(self, boot: str = "", first: int = 1) -> None:
        self._boot = bytes.fromhex(boot.replace("-", "")).ljust(16, b"\0")[:16]
        self._sequence = first - 1
        self._tables: dict[tuple[str, ...], int] = {}
        self._names = self._sent = 0

    def forget_tables(self) -> None:
        """Send all tables again, since a frame was dropped that may have had some. May be called in another thread."""
        self._tables = {}

    def encode(self, at: float, node: Mapping[str, float], jobs: Mapping[int, Mapping[str, float]]) -> bytes:
        """Encode a sample, with the tables that were not sent yet."""
        tables = self._tables  # another thread may replace it meanwhile: this frame goes by the old one
        if len(tables) + len(jobs) >= _MOST_TABLES or self._names > _MOST_NAMES // 2 or self._sent % _AFRESH == 0:
            tables = self._tables = {}
        if not tables:
            self._names = 0
        self._sequence += 1
        self._sent += 1
        new: list[bytes] = []
        body: list[bytes] = []
        for job, values in ((NODE, node), *jobs.items()):
            names = tuple(values)
            number = tables.get(names)
            if number is None:
                number = tables[names] = len(tables)
                self._names += len(names)
                new.append(_encode_table(number, names))
            body.append(_SUBJECT.pack(job, number, len(names)) + struct.pack(f"<{len(names)}d", *values.values()))
        head = _HEAD.pack(MAGIC, self._boot, self._sequence, at, len(new), len(body))
        return b"".join([head, *new, *body])


def _encode_table(number: int, names: Sequence[str]) -> bytes:
    text = "\n".join(names).encode()
    return _TABLE.pack(number, len(text)) + text


def encode_sample(at: float, node: Mapping[str, float], jobs: Mapping[int, Mapping[str, float]]) -> bytes:
    """Encode a sample that needs no other frame to be read: version 2, with all its tables."""
    return SampleEncoder().encode(at, node, jobs)


class SampleDecoder:
    """Reads the frames of one node, of any version, over all its connections.

    `share` may return a tuple of names that is equal, and the same one for many nodes.
    """

    def __init__(self, share: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda names: names) -> None:
        self._share = share
        self._tables: list[tuple[str, ...]] = []
        self._boot, self._sequence = b"", 0

    def parse(self, data: bytes) -> RawSample:
        """Parse a frame; raise `UnreadableSample` if it is malformed, `RepeatedSample` if it came before."""
        try:
            sample = self._parse_version_2(data) if data[:4] == MAGIC else _parse_version_1(data, self._share)
        except UnreadableSample:
            raise
        except (struct.error, ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise UnreadableSample(f"{len(data)} bytes are no sample: {error}") from error
        if sum(len(subject.names) for subject in sample.subjects) > MOST_SERIES:
            raise UnreadableSample("there are too many values")
        return sample

    def decode(self, data: bytes) -> ReceivedSample:
        """Decode a frame; raise as `parse` does. What is not a finite number is absent."""
        at, subjects = self.parse(data)
        node: dict[str, float] = {}
        jobs: dict[int, dict[str, float]] = {}
        for job, names, packed in subjects:
            values = dict(zip(names, struct.unpack(f"<{len(names)}d", packed)))
            if not all(map(math.isfinite, values.values())):
                values = {name: value for name, value in values.items() if math.isfinite(value)}
            if job == NODE:
                node = values
            else:
                jobs[job] = values
        return ReceivedSample(at, node, jobs)

    def tables_frame(self) -> bytes:
        """Return a frame with all tables that are known and no values, for a decoder that joins later."""
        tables = [_encode_table(number, names) for number, names in enumerate(self._tables)]
        return b"".join([_HEAD.pack(MAGIC, _NO_BOOT, 0, 0.0, len(tables), 0), *tables])

    def _parse_version_2(self, data: bytes) -> RawSample:
        _, boot, sequence, at, tables, subjects = _HEAD.unpack_from(data)
        if subjects and boot == self._boot != _NO_BOOT and sequence <= self._sequence:
            raise RepeatedSample(f"sample {sequence} came after {self._sequence}")
        if tables > _MOST_TABLES or subjects > _MOST_SUBJECTS or not math.isfinite(at):
            raise ValueError(f"{tables} tables, {subjects} subjects, instant {at}")
        place = self._take_tables(data, _HEAD.size, tables)
        parsed = self._subjects(data, place, subjects)
        if subjects:
            self._boot, self._sequence = boot, sequence
        return RawSample(at, parsed)

    def _take_tables(self, data: bytes, place: int, count: int) -> int:
        tables = list(self._tables) if count else self._tables
        for _ in range(count):
            number, length = _TABLE.unpack_from(data, place)
            place += _TABLE.size + length
            if number == 0:
                tables = []
            if number != len(tables) or number >= _MOST_TABLES or place > len(data):
                raise ValueError(f"table {number} of {length} bytes after {len(tables)} others")
            text = data[place - length : place].decode()
            if text.count("\n") >= MOST_SERIES:
                raise ValueError("there are too many names")
            names = tuple(text.split("\n")) if text else ()
            _check_series(names)
            tables.append(self._share(names))
        if count and sum(map(len, tables)) > _MOST_NAMES:
            raise ValueError("too many names")
        # Only now: of a frame that cannot be read to its end, nothing is believed.
        self._tables = tables
        return place

    def _subjects(self, data: bytes, place: int, count: int) -> list[RawSubject]:
        parsed: list[RawSubject] = []
        seen: set[int] = set()
        for _ in range(count):
            job, number, values = _SUBJECT.unpack_from(data, place)
            begin = place + _SUBJECT.size
            place = begin + values * _DOUBLE
            names = self._tables[number]
            if values != len(names) or place > len(data) or job < 0 or job in seen:
                raise ValueError(f"{values} values of subject {job} by a table of {len(names)}")
            seen.add(job)
            parsed.append(RawSubject(job, names, data[begin:place]))
        if place != len(data):
            raise ValueError("it is too long")
        return parsed


def read_head(data: bytes) -> FrameHead:
    """Read the head of a frame of version 2; raise `UnreadableSample` if it has none."""
    if data[:4] != MAGIC or len(data) < _HEAD.size:
        raise UnreadableSample(f"{len(data)} bytes do not begin as a sample does")
    _, boot, sequence, at, _, _ = _HEAD.unpack_from(data)
    return FrameHead(boot, sequence, at)


def renumber(data: bytes, numbers: Mapping[int, int]) -> tuple[bytes, list[int]]:
    """Return a frame of version 2 with other numbers for its jobs, and these; `UnreadableSample` for one without."""
    renumbered, jobs = bytearray(data), []
    try:
        *_, tables, subjects = _HEAD.unpack_from(data)
        place = _HEAD.size
        for _ in range(min(tables, _MOST_TABLES)):
            place += _TABLE.size + _TABLE.unpack_from(data, place)[1]
        for _ in range(min(subjects, _MOST_SUBJECTS)):
            job, table, values = _SUBJECT.unpack_from(data, place)
            if job != NODE:
                jobs.append(numbers[job])
                _SUBJECT.pack_into(renumbered, place, numbers[job], table, values)
            place += _SUBJECT.size + values * _DOUBLE
    except KeyError as unknown:
        raise UnreadableSample(f"nothing was reported about job {unknown}") from None
    except struct.error as error:
        raise UnreadableSample(f"{len(data)} bytes are no sample: {error}") from error
    return bytes(renumbered), jobs


def decode_sample(data: bytes) -> ReceivedSample:
    """Decode a sample that needs no other frame to be read."""
    return SampleDecoder().decode(data)


def _parse_version_1(data: bytes, share: Callable[[tuple[str, ...]], tuple[str, ...]]) -> RawSample:
    (length,) = _COUNT.unpack_from(data)
    head = json.loads(data[_COUNT.size : _COUNT.size + length])
    at, jobs, names = float(head["at"]), head["jobs"], head["names"]
    _check_list(jobs, int)
    _check_list(names, str)
    _check_series(names)
    subjects = []
    place = _COUNT.size + length
    for job in (NODE, *jobs):
        (count,) = _COUNT.unpack_from(data, place)
        if count > len(names):
            raise ValueError("more values than names")
        which = struct.unpack_from(f"<{count}I", data, place + _COUNT.size)
        begin = place + _COUNT.size + count * _COUNT.size
        place = begin + count * _DOUBLE
        if place > len(data):
            raise ValueError("it is too short")
        subjects.append(RawSubject(job, share(tuple([names[at] for at in which])), data[begin:place]))
    return RawSample(at, subjects)


def _check_list(values: object, kind: type) -> None:
    if not (
        isinstance(values, list) and len(values) <= _MOST_SUBJECTS and all(type(value) is kind for value in values)
    ):
        raise ValueError(f"not a list of {kind.__name__}")


def is_series(text: str) -> bool:
    """Return whether a text is the name of a series: a metric, perhaps with labels."""
    return _SERIES.fullmatch(text) is not None


def _check_series(names: Sequence[str]) -> None:
    """Refuse names that would become something else on a page of text, and names that come twice."""
    strange = [name for name in names if not is_series(name)]
    if strange:
        raise ValueError(f"{strange[0][:80]!r} is no name of a series")
    if len(set(names)) != len(names):
        raise ValueError("a name stands twice in its table")
