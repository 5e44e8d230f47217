"""Measuring inside the node program: a sample each period, taken in a thread, sent in a form of few bytes.

The program's loop never waits for a sample: it starts one when it is due, looks again soon, and sends it once it is
there. A file system that hangs thus costs samples, never a launch.

A sample travels as three parts: the length of a head, the head (JSON: instant, jobs, names once for all), then for the
node and each job how many values it has, their names as places in the list, and the values as doubles. What a job does
not have takes no room. The other half is `decode_sample`, which believes nothing that it reads.
"""

from __future__ import annotations

import json
import logging
import math
import re
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oarlock.node.measure.sampler import Sample, Sampler

log = logging.getLogger(__name__)

_FIRST_LOOK, _LAST_LOOK = 0.02, 1.0  # seconds between two looks whether a sample is ready
_NEVER = float("inf")
_MOST_NAMES = 100_000
_COUNT = struct.Struct("<I")
_LABEL = r'[A-Za-z_]\w*="(?:[^"\\\n]|\\["\\n])*"'
_SERIES = re.compile(rf"[A-Za-z_]\w*(?:\{{{_LABEL}(?:,{_LABEL})*\}})?", re.ASCII)


class UnreadableSample(ValueError):
    """Samples that cannot be read."""


class ReceivedSample(NamedTuple):
    """A sample as it arrived. `at` is by the node's clock, epoch seconds."""

    at: float
    node: dict[str, float]
    jobs: dict[int, dict[str, float]]


def encode_sample(at: float, node: Mapping[str, float], jobs: Mapping[int, Mapping[str, float]]) -> bytes:
    """Encode a sample for the wire."""
    places: dict[str, int] = {}
    tables = [_table(values, places) for values in (node, *jobs.values())]
    head = json.dumps({"at": at, "jobs": list(jobs), "names": list(places)}, separators=(",", ":")).encode()
    return b"".join([_COUNT.pack(len(head)), head, *tables])


def _table(values: Mapping[str, float], places: dict[str, int]) -> bytes:
    count = len(values)
    which = [places.setdefault(name, len(places)) for name in values]
    return struct.pack(f"<I{count}I{count}d", count, *which, *values.values())


def decode_sample(data: bytes) -> ReceivedSample:
    """Decode a sample; raise `UnreadableSample` if it is malformed."""
    try:
        (length,) = _COUNT.unpack_from(data)
        head = json.loads(data[_COUNT.size : _COUNT.size + length])
        at, jobs, names = float(head["at"]), head["jobs"], head["names"]
        _check(jobs, int)
        _check(names, str)
        _check_series(names)
        tables = _tables(data, _COUNT.size + length, names, len(jobs) + 1)
    except (struct.error, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise UnreadableSample(f"{len(data)} bytes are no sample: {error}") from error
    return ReceivedSample(at, tables[0], dict(zip(jobs, tables[1:])))


def _check(values: object, kind: type) -> None:
    if not (isinstance(values, list) and len(values) <= _MOST_NAMES and all(type(value) is kind for value in values)):
        raise ValueError(f"not a list of {kind.__name__}")


def _check_series(names: Sequence[str]) -> None:
    """Refuse names that would become something else on a page of text."""
    strange = [name for name in names if not _SERIES.fullmatch(name)]
    if strange:
        raise ValueError(f"{strange[0][:80]!r} is no name of a series")


def _tables(data: bytes, at: int, names: Sequence[str], tables: int) -> list[dict[str, float]]:
    tables_read = []
    for _ in range(tables):
        (count,) = _COUNT.unpack_from(data, at)
        if count > len(names):
            raise ValueError("more values than names")
        numbers = struct.unpack_from(f"<{count}I{count}d", data, at + _COUNT.size)
        at += _COUNT.size + count * 12
        pairs = zip(numbers[:count], numbers[count:])
        tables_read.append({names[place]: value for place, value in pairs if math.isfinite(value)})
    return tables_read


class SamplingThread:
    """The program's `Sampling`, every `period` seconds; never if that is 0. `make` is called in the thread."""

    def __init__(self, period: float, make: Callable[[], Sampler]) -> None:
        self._period, self._make = period, make
        # Not at once: a node that was just reached has jobs to start, and what measures takes long to load.
        self._due = self._next = time.monotonic() + period if period else _NEVER
        self._look = _FIRST_LOOK
        self._under_way = False
        self._ready: bytes | None = None
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def due(self) -> float:
        """Return the instant at which `take` should be called."""
        return self._due

    def take(self) -> bytes:
        """Start a sample, or return the one that is ready; empty while there is none."""
        now = time.monotonic()
        if not self._under_way:
            self._begin(now)
            return b""
        data = self._ready
        if data is None:
            self._look = min(self._look * 2, _LAST_LOOK)
            self._due = now + self._look
            return b""
        self._under_way, self._ready = False, None
        self._due = self._next = max(self._next + self._period, now)
        return data

    def _begin(self, now: float) -> None:
        self._under_way, self._look = True, _FIRST_LOOK
        self._due = now + self._look
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="oarlock-sampling", daemon=True)
            self._thread.start()
        self._wanted.release()

    def _work(self) -> None:
        sampler: Sampler | None = None
        while True:
            self._wanted.acquire()
            data = b""
            try:
                sampler = sampler or self._make()
                data = _sent(sampler.sample(time.time()))
            except Exception:
                log.exception("a sample failed")
            # One assignment, which needs no lock: the loop sees either nothing or the whole sample.
            self._ready = data


def _sent(sample: Sample) -> bytes:
    jobs = {int(reading.identity.job): reading.values for reading in sample.jobs.values()}
    return encode_sample(sample.at, sample.node, jobs)


def make_node_sampler(node: str) -> Sampler:
    """Build the sampler of an Oarlock node: its own jobs only, cheap sources. Imports late, to keep launches fast."""
    from oarlock.node.measure import layout
    from oarlock.node.measure.discovery import CgroupFinder
    from oarlock.node.measure.sampler import Sampler
    from oarlock.node.sources.assemble import assemble
    from oarlock.node.sources.files import mounted_hierarchies

    sources = assemble()
    return Sampler(CgroupFinder([layout.layout_of_node(node)], mounted_hierarchies), sources.job, sources.node)
