"""The accumulators of all jobs that are logged: fed with every row that is in a log, stored now and then, read again.

After a crash they are what their logs say: the stored ones go on from the byte of the log that they had come to, and
without a stored one the whole log is read. Only the traffic of nodes is not in the logs of jobs, so of that the time
since it was stored is missing.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct, field

from oarlock.measure.collect.files.hdf5 import Gap
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import LogNote, Names, replay_log
from oarlock.measure.collect.series_names import SharedNames
from oarlock.measure.collect.sums.accumulate import NodeAccumulator
from oarlock.measure.collect.sums.row_values import NodeValues, RowValues, sum_at
from oarlock.measure.collect.sums.thinned_copy import CopiedCurves, JobCopy, ThinnedCopies
from oarlock.model.summary import DayUsage, MeasuredJob

log = logging.getLogger(__name__)

_FORM = 2  # of what is stored; another one is not read
_LENGTH = 4  # bytes before each record of it
_MOST_NAMES = 10_000
_COUNTING_SECONDS = 30.0
_MUCH = 1 << 26  # bytes of logs: whoever reads so many again stores at once what they say
_SUMS = (
    "core_busy_seconds",
    "memory_asked_byte_seconds",
    "memory_used_byte_seconds",
    "gpu_seconds",
    "gpu_busy_seconds",
)


class _JobSums(Struct):
    """The accumulators of a job by attempt and node, which attempt each node is at, and a thinned copy of its log."""

    nodes: dict[int, dict[str, NodeAccumulator]] = {}
    attempts: dict[str, int] = {}
    copy: JobCopy = field(default_factory=JobCopy)


class _StoredJob(Struct, array_like=True):
    """A job as it is stored, and how many bytes of its log are in it."""

    job: int
    length: int
    sums: _JobSums


class RunningSums:
    """What samples said so far of every job that has a log. `longest` seconds without a sample are a hole.

    `shared` are the tables of names of whoever feeds it: those of logs that are read again become the same.
    """

    def __init__(self, places: SamplePlaces, longest: float, shared: SharedNames | None = None) -> None:
        self._places, self._longest = places, longest
        self._shared = SharedNames() if shared is None else shared
        self._jobs: dict[int, _JobSums] = {}
        self._changed: set[int] = set()
        self._rows: dict[int, tuple[Names, RowValues]] = {}
        self._nodes: dict[int, tuple[Names, NodeValues]] = {}
        self._copies = ThinnedCopies()
        self._cpu_time: dict[str, tuple[float, float]] = {}  # of nodes: when it was seen first, and what it was then

    def attempt_of(self, job: int, node: str) -> int | None:
        """Return which attempt the last row of a job on a node was of; None if there was none."""
        sums = self._jobs.get(job)
        return None if sums is None else sums.attempts.get(node)

    def begin_attempt(self, job: int, node: str, attempt: int) -> None:
        """Count what follows of a job on a node for another attempt."""
        self._jobs.setdefault(job, _JobSums()).attempts[node] = attempt

    def take(self, job: int, node: str, at: float, names: Names, packed: bytes | memoryview) -> None:
        """Take a row that was logged, at an instant in epoch seconds."""
        entry = self._rows.get(id(names))
        if entry is None:
            if len(self._rows) > _MOST_NAMES:
                self._rows = {}
            # The tuple is kept, since its id is its name here: to hash it takes longer than the rest of this.
            entry = self._rows[id(names)] = names, RowValues(names)
        sums = self._jobs.get(job)
        if sums is None:
            sums = self._jobs[job] = _JobSums()
        self._accumulator(sums, node).take(at, entry[1], packed, longest=self._longest)
        self._copies.take(sums.copy, node, round(at * 1000), names, packed)
        self._changed.add(job)

    def note_gap(self, job: int, gap: Gap) -> None:
        """Remember for the curves of a job that samples are missing."""
        self._copies.note_gap(self._jobs.setdefault(job, _JobSums()).copy, gap)

    def curves(self, job: int, choose: Callable[[str], bool]) -> CopiedCurves | None:
        """Return the curves of a job that are wanted, out of its thinned copy; None if that does not have them."""
        sums = self._jobs.get(job)
        return None if sums is None else self._copies.read(sums.copy, choose)

    @staticmethod
    def _accumulator(sums: _JobSums, node: str) -> NodeAccumulator:
        attempt = sums.attempts.get(node)
        if attempt is None:
            attempt = sums.attempts[node] = 0
        nodes = sums.nodes.get(attempt)
        if nodes is None:
            nodes = sums.nodes[attempt] = {}
        accumulator = nodes.get(node)
        if accumulator is None:
            accumulator = nodes[node] = NodeAccumulator()
        return accumulator

    def take_node(self, node: str, at: float, jobs: Collection[int], names: Names, packed: bytes) -> None:
        """Take what a node says of itself while these jobs, and no others, are on it."""
        present = [job for job in jobs if node in self._jobs.get(job, _NOTHING).attempts]
        if not present:
            return
        entry = self._nodes.get(id(names))
        if entry is None:
            if len(self._nodes) > _MOST_NAMES:
                self._nodes = {}
            entry = self._nodes[id(names)] = names, NodeValues(names)
        values = entry[1]
        row = values.unpack(packed)
        received, sent = sum_at(row, values.received), sum_at(row, values.sent)
        cores = values.cores or self._count_cores(node, at, sum_at(row, values.modes))
        for job in present:
            accumulator = self._accumulator(self._jobs[job], node)
            accumulator.node_cores = cores or accumulator.node_cores
            if received is not None and sent is not None:
                accumulator.take_traffic(received, sent, alone=len(jobs) == 1)

    def _count_cores(self, node: str, at: float, all_seconds: float | None) -> int | None:
        """Return how many cores a node has: by so much its CPU time of all modes grows in a second."""
        if all_seconds is None:
            return None
        since, first = self._cpu_time.setdefault(node, (at, all_seconds))
        if all_seconds < first:  # it was booted again
            self._cpu_time[node] = at, all_seconds
            return None
        # Instants and counters are not read at once, which a longer time makes up for.
        return max(round((all_seconds - first) / (at - since)), 1) if at - since >= _COUNTING_SECONDS else None

    def forget(self, job: int) -> None:
        """Forget a job: its log is gone."""
        sums = self._jobs.pop(job, None)
        if sums is not None:
            self._copies.forget(sums.copy)
        self._changed.discard(job)

    def measured(self, job: int) -> MeasuredJob | None:
        """Return what samples said of a job so far; None if there were none."""
        sums = self._jobs.get(job)
        return None if sums is None or not sums.nodes else _measured(sums)

    def hand_over(self) -> dict[int, MeasuredJob]:
        """Return what samples said of the jobs of which there are new ones since the last call."""
        changed, self._changed = self._changed, set()
        return {job: measured for job in sorted(changed) if (measured := self.measured(job)) is not None}

    # What survives this process.

    def store(self) -> None:
        """Write all of it to a file, so that the next process need not read whole logs; if the disk takes it."""
        try:
            self._store()
        except OSError as error:
            log.warning("sums of jobs cannot be stored", extra={"why": str(error)})

    def _store(self) -> None:
        path = self._path
        temporary = path.with_suffix(".new")
        encoder = msgspec.msgpack.Encoder()
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_record(encoder.encode(_FORM)))
            for job, sums in self._jobs.items():  # one at a time: together they would take much memory
                with contextlib.suppress(FileNotFoundError):
                    length = os.stat(self._places.log(job)).st_size  # noqa: PTH116 - thousands at once
                    file.write(_record(encoder.encode(_StoredJob(job, length, sums))))
        temporary.replace(path)

    def restore(self, jobs: Iterable[int]) -> dict[int, int]:
        """Read what was stored and the rest from the logs of these jobs; return how long each log is without torn end.

        All that was read counts as changed, since nobody knows what of it was handed over. After much of it the sums
        are stored at once: a process that lives shortly must not leave ever more to the next one.
        """
        stored = {record.job: record for record in self._read_stored()}
        lengths: dict[int, int] = {}
        read = 0
        for job in jobs:
            path = self._places.log(job)
            try:
                record = stored.pop(job, None)
                since = 0 if record is None else record.length
                if since > path.stat().st_size:  # not the log of which it was stored
                    since = 0
                if since and record is not None:
                    self._jobs[job] = record.sums
                    self._copies.count(record.sums.copy)
                lengths[job] = self._replay(job, path, since)
                read += lengths[job] - since
            except OSError as error:
                log.warning("a log cannot be read", extra={"file": str(path), "why": str(error)})
                self.forget(job)
                continue
            if self._jobs.get(job, _NOTHING).nodes:
                self._changed.add(job)
        if read > _MUCH:
            self.store()
        return lengths

    def _replay(self, job: int, path: Path, since: int) -> int:
        def take_note(note: LogNote) -> None:
            about = note.about
            if "attempt" in about:
                self.begin_attempt(job, note.node, int(about["attempt"]))
            if about.keys() >= {"since", "until"}:
                self.note_gap(job, Gap(note.node, about["since"], about["until"], str(about.get("why", ""))))

        def take_row(at: int, node: str, names: Names, packed: memoryview) -> None:
            self.take(job, node, at / 1000, names, packed)

        return replay_log(path, take_row, take_note, self._shared.share, since=since)

    @property
    def _path(self) -> Path:
        return self._places.root / "summaries.state"

    def _read_stored(self) -> Iterator[_StoredJob]:
        """Read what was stored; nothing if it is not there, torn, or of another form."""
        decoder = msgspec.msgpack.Decoder(_StoredJob)
        try:
            with self._path.open("rb") as file:
                records = _records(file)
                if msgspec.msgpack.decode(next(records, b"\xc0")) != _FORM:
                    return
                yield from map(decoder.decode, records)
        except (OSError, msgspec.MsgspecError):
            return


def _record(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH, "big") + data


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yield the whole records of a file."""
    while len(head := file.read(_LENGTH)) == _LENGTH:
        size = int.from_bytes(head, "big")
        data = file.read(size)
        if len(data) < size:
            return
        yield data


_NOTHING = _JobSums()


def _measured(sums: _JobSums) -> MeasuredJob:
    nodes = {
        str(attempt): {node: accumulator.measured() for node, accumulator in by_node.items()}
        for attempt, by_node in sums.nodes.items()
    }
    everywhere = (accumulator for by_node in sums.nodes.values() for accumulator in by_node.values())
    return MeasuredJob(nodes=nodes, days=added_days(everywhere))


def added_days(accumulators: Iterable[NodeAccumulator]) -> dict[int, DayUsage]:
    """Return the sums of days of all nodes together."""
    days: dict[int, DayUsage] = {}
    for accumulator in accumulators:
        _add_days(days, accumulator.days)
    return days


def _add_days(days: dict[int, DayUsage], more: Mapping[int, DayUsage]) -> None:
    for day, usage in more.items():
        sums = days.setdefault(day, DayUsage())
        for name in _SUMS:
            setattr(sums, name, round(getattr(sums, name) + getattr(usage, name), 3))
