"""The series of nodes and jobs as an engine gets them: under the names and labels of the server's `/metrics`.

The labels of a series are encoded once; a sample then costs a few bytes joined a value. When a job is over, or a series
vanishes, a marker ends it, as a scrape would. The messages are those of Prometheus remote write 1.0:

    WriteRequest { repeated TimeSeries timeseries = 1; }
    TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    Label        { string name = 1; string value = 2; }
    Sample       { double value = 1; int64 timestamp = 2; }

Four messages of two fields each, which do not change any more: a library for them would be larger than they are. A
request is the concatenation of its series, so each is encoded alone.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from oarlock.measure import names
from oarlock.measure.batch import JOB, JobFacts, JobOwner, MeasuredSubject
from oarlock.measure.batch import NODE as NODE_SCOPE
from oarlock.measure.collect.collector import LoggedSample
from oarlock.measure.exposition import JOB_INFO, info_labels, labels
from oarlock.measure.live import FAMILIES, MANAGER, describe_job
from oarlock.measure.naming import Naming, OutputSeries, pairs
from oarlock.node.measure.wire import NODE, RawSubject

_JOBS = "jobs"  # how many there are on a node: counted here, as the server does for its page
_ALWAYS_ONE = struct.pack("<d", 1.0)
_DOUBLE = struct.Struct("<d")


class _Column(NamedTuple):
    """A series that a value is written to. `place` is the value's in its sample."""

    place: int
    labels: bytes
    times: float
    whole: bool


class _SubjectColumns(NamedTuple):
    """The series of a subject, and the table of names that they were made for; `constant` are always 1."""

    names: tuple[str, ...]
    columns: list[_Column]
    constant: list[bytes]

    @property
    def all_labels(self) -> set[bytes]:
        return {*(column.labels for column in self.columns), *self.constant}


class RemoteSeries:
    """Encodes samples. For one thread; remembers the series of what is measured now."""

    def __init__(self, cluster: str = "", families: Sequence[str] = FAMILIES) -> None:
        self._cluster = cluster
        self._naming = Naming(names.select_families(families))
        self._subjects: dict[str, dict[int, _SubjectColumns]] = {}

    def encode(self, sample: LoggedSample, facts: Mapping[int, JobFacts]) -> Iterator[bytes]:
        """Yield the series of a sample; a job is left out until facts about it are known."""
        timestamp = encode_timestamp(max(sample.at, 0))
        before, now = self._subjects.get(sample.node, {}), {}
        jobs = sum(subject.job != NODE for subject in sample.subjects)
        for subject in sample.subjects:
            if subject.job != NODE and subject.job not in facts:
                continue
            if subject.job == NODE:
                subject = _with_count(subject, jobs)  # noqa: PLW2901
            columns = before.get(subject.job)
            if columns is None or columns.names != subject.names:
                columns = self._columns(sample, subject, facts.get(subject.job))
            now[subject.job] = columns
            yield from _values(columns, subject, timestamp)
        self._subjects[sample.node] = now
        gone = _labels_of(before) - _labels_of(now) if before.keys() != now.keys() or _changed(before, now) else set()
        yield from (encode_series(ended, STALE, timestamp) for ended in sorted(gone))

    def _columns(self, sample: LoggedSample, subject: RawSubject, facts: JobFacts | None) -> _SubjectColumns:
        owner = JobOwner("") if facts is None else describe_job(subject.job, facts)
        constant = {"instance": sample.node, "cluster": sample.cluster or self._cluster}
        columns = []
        for place, name in enumerate(subject.names):
            for output in self._naming.outputs(NODE_SCOPE if facts is None else JOB, name):
                whole = {**_own_labels(output, owner, subject.job), **constant}
                columns.append(_Column(place, encode_labels(whole), output.name.times, output.name.whole))
        info = {"__name__": JOB_INFO, **dict(pairs(info_labels(owner, ""))), **constant}
        return _SubjectColumns(subject.names, columns, [] if facts is None else [encode_labels(info)])


def _with_count(subject: RawSubject, jobs: int) -> RawSubject:
    return subject._replace(names=(*subject.names, _JOBS), values=subject.values + _DOUBLE.pack(float(jobs)))


def _own_labels(output: OutputSeries, owner: JobOwner, job: int) -> dict[str, str]:
    """Return the name of a series, its own labels and those of the job."""
    subject = MeasuredSubject((MANAGER, "", owner.job), JOB, owner, {})
    of_owner = {} if job == NODE else labels(output.family, subject)
    return {"__name__": output.name.name, **dict(pairs(output.own)), **of_owner}


def _values(columns: _SubjectColumns, subject: RawSubject, timestamp: bytes) -> Iterator[bytes]:
    """Yield the values of a subject that are numbers."""
    values = struct.unpack(f"<{len(subject.names)}d", subject.values)
    pack, isfinite = _DOUBLE.pack, math.isfinite
    for place, encoded, times, whole in columns.columns:
        value = values[place]
        if isfinite(value):
            shown = round(value * times) if whole else value * times
            yield encode_series(encoded, pack(shown), timestamp)
    for encoded in columns.constant:
        yield encode_series(encoded, _ALWAYS_ONE, timestamp)


def _changed(before: Mapping[int, _SubjectColumns], now: Mapping[int, _SubjectColumns]) -> bool:
    return any(now[job] is not columns for job, columns in before.items() if job in now)


def _labels_of(subjects: Mapping[int, _SubjectColumns]) -> set[bytes]:
    return {encoded for columns in subjects.values() for encoded in columns.all_labels}


STALE = struct.pack("<Q", 0x7FF0000000000002)
"""The value that ends a series: without it an engine shows the last value for five more minutes."""

_SERIES, _LABEL, _SAMPLE = b"\x0a", b"\x0a", b"\x12"  # field 1, 1 and 2, each with a length
_NAME, _TEXT = b"\x0a", b"\x12"
_VALUE, _TIMESTAMP = b"\x09", b"\x10"  # field 1 as 8 bytes, field 2 as a varint
_DOUBLE_SIZE = 8
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
    size = len(_VALUE) + _DOUBLE_SIZE + len(timestamp)
    sample = _SAMPLE + varint(size) + _VALUE + value + timestamp
    return _SERIES + varint(len(labels) + len(sample)) + labels + sample
