"""The collector: logs what nodes measure, and makes a file of each job that is over.

It runs in a process of its own: a disk that hangs, or HDF5, must not hold up a launch. Nothing here waits for the
server. Jobs are followed by the logs that lie in the folder, so that whatever ended while nobody collected is found at
the next start.
"""

import contextlib
import errno
import logging
import os
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import ArchivedJob, Gap
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import Names, RowLog, recent_instants, survey_in_steps
from oarlock.measure.collect.files.steps import Steps, finish
from oarlock.measure.collect.series_names import NodeSeries, SharedNames
from oarlock.measure.collect.sums import energy_log
from oarlock.measure.collect.sums.running_sums import RunningSums
from oarlock.measure.energy.division import CPU, EnergyColumns, EnergyRules, NodeState, read_state
from oarlock.measure.energy.ledger import EnergyLedger, PowerReading
from oarlock.node.measure.wire import NODE, RawSubject, SampleDecoder, UnreadableSample

log = logging.getLogger(__name__)

CLOCK_SECONDS = 30.0
"""By how much a node's clock may differ; above it the instant of arrival counts."""

LEAST_SAMPLES = 12
"""A job with fewer samples on each of its nodes gets no file: its summary is enough."""

_DAY_MS = 86_400_000
_ROOM_SECONDS = 1.0  # between two looks at how full the disk is
_MOST_OPEN = 256  # descriptors of logs

ExpectedJobs = Set[int] | Mapping[int, int]
"""The jobs that are on a node, with the number of their attempt where that is known."""

EndedJobs = Callable[[Collection[int]], Mapping[int, ArchivedJob | None]]
"""Looks up jobs: those that are over with what is to be said about them, those that the database lacks with None.

A database that was restored lacks jobs that ran after its backup; their numbers are not used again.
"""


StoredJobs = Callable[[Collection[int]], Collection[int]]
"""Returns those of some jobs that are over whose summary is stored."""

_NOTHING_NOTED: tuple[int, list[int], energy_log.Holdings] = (0, [], {})


class LoggedSample(NamedTuple):
    """A sample of a node as it was logged, for an engine elsewhere. `at` is in milliseconds.

    `cluster` is that of an agent; empty: of the server itself.
    """

    node: str
    at: int
    subjects: Sequence[RawSubject]
    cluster: str = ""

    @property
    def values(self) -> int:
        """How many values it has."""
        return sum(len(subject.names) for subject in self.subjects)


class Collector:
    """Logs below one folder, and files of jobs that are over. For one thread."""

    def __init__(
        self, root: Path, energy: EnergyRules | None = None, forward: Callable[[LoggedSample], None] | None = None
    ) -> None:
        self.places = SamplePlaces(root)
        self._forward = forward  # receives what was logged, for an engine elsewhere
        self.energy: EnergyLedger | None = None
        """Books energy once it is clear how far that was done before (`begin_energy`)."""
        self._energy_rules = energy or EnergyRules()
        self._shared = SharedNames()
        self.sums = RunningSums(self.places, self._energy_rules.longest, self._shared)
        self._energy_columns = EnergyColumns()
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """By node: what could be read, and was refused here all the same: too many series, what came before or late."""
        self.trouble = ""
        """Why the disk did not take the last row, if it did not."""
        self._decoders: dict[str, SampleDecoder] = {}
        self._logs: dict[Path, RowLog] = {}
        self._of_job: dict[int, RowLog] = {}  # the same by job: a path takes longer to make than a row
        self._of_node: dict[str, tuple[int, RowLog]] = {}  # ... and by node, with the day (milliseconds) it is of
        self._open: OrderedDict[RowLog, None] = OrderedDict()
        self._series: dict[str, NodeSeries] = {}
        self._lost: dict[tuple[Path, str], int] = {}  # since when a log lacks rows of a node
        self._ahead: set[tuple[Path, str]] = set()  # logs in which a node's wrong clock is noted
        # The last notes of who is on a node and holds what, with the section of the log that they stand in.
        self._on_node: dict[str, tuple[int, list[int], energy_log.Holdings]] = {}
        self._number = 0
        self._earlier: dict[Path, frozenset[int]] = {}  # instants that logs had before this process was started
        self._room_at, self._is_full = 0.0, False
        self._leaving: set[int] = set()  # jobs that were over at the last look
        self._staying: set[int] = set()  # jobs that are over and keep their log, since no file can be made of it
        self._ending = 0  # the job of which a file is being made

    @property
    def written(self) -> Collection[Path]:
        """The logs that this process wrote to: their sums need not be checked."""
        return self._logs.keys()

    def next_number(self) -> int:
        """Return a number that no other file of this process has."""
        self._number += 1
        return self._number

    def start(self) -> None:
        """Delete logs whose file was made before a crash; read the others once, for their sums, and cut torn ends."""
        self.places.prepare()
        logged = self.places.logged_jobs()
        archived = {job for job in logged if self.places.kept(job)}
        for job in archived:
            self.places.log(job).unlink()
        for job, length in self.sums.restore(sorted(logged - archived)).items():
            path = self.places.log(job)
            if length < path.stat().st_size:
                os.truncate(path, length)

    def begin_energy(self, booked: Mapping[str, int], *, now: float) -> None:
        """Book energy from now on, and what is logged beyond the instants (milliseconds) up to which it is booked."""
        self.energy = EnergyLedger(self._energy_rules, booked)
        energy_log.replay(self.places, self.energy, booked, now=now)

    def take(
        self, node: str, data: bytes, expected: ExpectedJobs, *, at: float, posted: bool = False, cluster: str = ""
    ) -> None:
        """Log a sample of a node that arrived at an instant; jobs that are not expected there are left out.

        A `posted` one may have come before this process was started: its instant is looked for in the node's log.
        """
        decoder = self._decoders.get(node)
        if decoder is None:
            decoder = self._decoders[node] = SampleDecoder(self._shared.share)
        try:
            sample = decoder.parse(data)
        except UnreadableSample as error:
            self.counts["refused"] += 1
            log.info("a sample was refused", extra={"node": node, "why": str(error)})
            return
        ahead = sample.at - at
        believed = abs(ahead) <= CLOCK_SECONDS
        instant = int((sample.at if believed else at) * 1000)
        if posted and believed and sample.subjects and self._was_logged(node, instant):
            self._refuse(node)
            return
        day = self._series.get(node)
        if day is None:
            day = self._series[node] = NodeSeries()
        subjects = [
            subject
            for subject in sample.subjects
            if subject.names
            and (subject.job == NODE or subject.job in expected)
            and self._may_have(day, node, subject.names, instant)
        ]
        if not subjects:
            return
        state = self._state(instant / 1000, subjects)
        self._log_subjects(node, subjects, instant, 0.0 if believed else ahead, expected, state)
        if state is not None and self.energy is not None:
            self.energy.take(node, state)
        if self._forward is not None:
            self._forward(LoggedSample(node, instant, subjects, cluster))

    def _log_subjects(
        self,
        node: str,
        subjects: Sequence[RawSubject],
        instant: int,
        ahead: float,
        expected: ExpectedJobs,
        state: NodeState | None,
    ) -> None:
        attempts = expected if isinstance(expected, Mapping) else {}
        of_node = None
        for subject in subjects:
            if subject.job == NODE:
                of_node, row_log = subject, self._log_of_node(node, instant)
                self._note_jobs(row_log, node, instant, expected, state)
                self._append(row_log, node, subject, instant, ahead)
            elif (job_log := self._log_of_job(subject.job)) is not None:
                self._append(job_log, node, subject, instant, ahead, attempts.get(subject.job, 0))
            else:
                self._refuse(node)
        if of_node is not None:
            self.sums.take_node(node, instant / 1000, expected, of_node.names, of_node.values)

    def _was_logged(self, node: str, instant: int) -> bool:
        """Return whether an earlier process logged a sample of that node and instant (milliseconds)."""
        path = self.places.node_log(node, instant / 1000)
        if path not in self._earlier and path not in self._logs:
            self._earlier[path] = recent_instants(path)
        if instant in self._earlier.get(path, ()):
            return True
        self._earlier[path] = frozenset()  # what follows is newer
        return False

    def _may_have(self, day: NodeSeries, node: str, names: Names, instant: int) -> bool:
        """Return whether a node may have these series; what is above the limit of a day is refused and counted."""
        if day.admit(names, instant):
            return True
        self._refuse(node)
        if not day.is_noted:
            day.is_noted = True
            log.warning("a node has too many series: those beyond are left out", extra={"node": node})
        return False

    def _refuse(self, node: str) -> None:
        self.counts["refused"] += 1
        self.refused[node] += 1

    def take_power(self, node: str, watts: float, *, at: float) -> None:
        """Log what the management controller of a node said, and book the energy since it said something last."""
        instant = int(at * 1000)
        values = energy_log.controller_row(watts)
        names = self._shared.share(tuple(values))
        subject = RawSubject(NODE, names, struct.pack(f"<{len(values)}d", *values.values()))
        self._append(self._log_of_node(node, instant), node, subject, instant, 0.0)
        if self.energy is not None:
            self.energy.take_reading(node, PowerReading(instant / 1000, watts))

    def _state(self, at: float, subjects: Iterable[RawSubject]) -> NodeState | None:
        """Return what the ledger wants to know of a sample; None if it says nothing about its node."""
        columns = self._energy_columns
        values = {job: columns.read(names, packed, of_node=job == NODE) for job, names, packed in subjects}
        of_node = values.pop(NODE, None)
        return None if of_node is None else read_state(at, of_node, values)

    def mark_gap(self, node: str, jobs: Iterable[int], *, since: float, until: float, why: str) -> None:
        """Note in the logs of jobs, and of their node, that samples are missing between two instants."""
        first, last = int(since * 1000), int(until * 1000)
        jobs = [job for job in jobs if job != self._ending]
        paths = [*(self.places.log(job) for job in jobs), self.places.node_log(node, until)]
        for path in [path for path in paths if path in self._logs or path.exists()]:
            row_log = self._log(path)
            row_log.note(last, node, {"since": first, "until": last, "why": why})
            self._write(row_log, node, first)
        for job in jobs:
            if self.places.log(job) in self._logs:
                self.sums.note_gap(job, Gap(node, first, last, why))

    def archive_ended(self, look_up: EndedJobs, are_stored: StoredJobs = lambda jobs: jobs) -> list[int]:
        """Make files of the jobs that are over since the last call at least, so that late samples are in them.

        `are_stored` gets these jobs, and returns those of which the summary is stored; the others keep their log.
        """
        return finish(self.archive_in_steps(look_up, are_stored))

    def archive_in_steps(self, look_up: EndedJobs, are_stored: StoredJobs) -> Steps[list[int]]:
        """Make files as `archive_ended` does, some megabytes at a time: rows of other jobs can be taken in between."""
        logged = self.places.logged_jobs() - self._staying
        ended = look_up(logged) if logged else {}
        due = sorted(are_stored(sorted(job for job in ended if job in self._leaving)))
        self._leaving = set(ended) - set(due)
        for job in due:
            yield from self._end(job, ended[job])
        return due

    def close(self) -> None:
        """Release all descriptors."""
        for row_log in self._open:
            row_log.close()
        self._open.clear()

    def _end(self, job: int, about: ArchivedJob | None) -> Steps[None]:
        """Make the file of a job and delete its log; without h5py, or on a full disk, the log stays."""
        path = self.places.log(job)
        self._ending = job
        self._of_job.pop(job, None)
        self._forget(path)
        try:
            content = yield from survey_in_steps(path)
            if samples_a_node(content.rows, len(content.nodes)) >= LEAST_SAMPLES:
                if not hdf5.is_available():
                    self._keep_log(job)
                    return
                archived, temporary = self.places.archived(job), self.places.temporary
                yield from hdf5.write_in_steps(archived, temporary, about or ArchivedJob(job), content)
                self.counts["archived"] += 1
            path.unlink()
            self.sums.forget(job)
        except OSError as error:
            self._fail(path, error)
            self._leaving.add(job)
        except Exception:  # the others become files all the same
            log.exception("a job cannot be archived; its log stays", extra={"file": str(path)})
            self._keep_log(job)
        finally:
            self._ending = 0

    def _keep_log(self, job: int) -> None:
        """Leave the log of a job that is over as it is, until another process looks at it."""
        self._staying.add(job)
        self.sums.forget(job)

    def _log_of_node(self, node: str, instant: int) -> RowLog:
        """Return the log of a node for the day of an instant (milliseconds); the one of the day before is let go."""
        day = instant // _DAY_MS
        entry = self._of_node.get(node)
        if entry is not None:
            if entry[0] == day:
                return self._opened(entry[1])
            self._forget(entry[1].path)
        row_log = self._log(self.places.node_log(node, instant / 1000))
        self._of_node[node] = day, row_log
        return row_log

    def _log_of_job(self, job: int) -> RowLog | None:
        """Return the log of a job; None if it has a file, or one is being made: what comes now comes too late."""
        row_log = self._of_job.get(job)
        if row_log is not None:
            return self._opened(row_log)
        path = self.places.log(job)
        if job == self._ending or (path not in self._logs and self.places.kept(job)):
            return None
        row_log = self._of_job[job] = self._log(path)
        return row_log

    def _note_jobs(self, row_log: RowLog, node: str, at: int, expected: ExpectedJobs, state: NodeState | None) -> None:
        """Note which jobs are on a node, and what they hold, where that changed or the log begins afresh."""
        with_time = self._energy_rules.split == CPU
        held = {} if state is None else energy_log.noted_holdings(state.jobs, with_time=with_time)
        row_log.refresh()
        # A row of the node's controller may have begun the section, at midnight say: then nothing is noted in it yet.
        section, jobs_before, held_before = self._on_node.get(node, _NOTHING_NOTED)
        is_new, jobs = section != row_log.section, sorted(expected)
        if is_new or jobs != jobs_before:
            row_log.note(at, node, {"jobs": jobs})
        if is_new or held != held_before:
            row_log.note(at, node, energy_log.note_of(held))
        self._on_node[node] = row_log.section, jobs, held

    def _append(self, row_log: RowLog, node: str, subject: RawSubject, at: int, ahead: float, attempt: int = 0) -> None:
        if not self._has_room():
            row_log.discard()
            self._lose(row_log, node, at, OSError(errno.ENOSPC, "what is left of the disk is the server's"))
            return
        job, names, packed = subject
        if self._lost or ahead:
            self._note_trouble(row_log, node, job, at, ahead)
        begins = bool(attempt) and self.sums.attempt_of(job, node) != attempt
        if begins:
            row_log.note(at, node, {"attempt": attempt})
        row_log.row(at, node, names, packed)
        if not self._write(row_log, node, at):
            return
        if self._lost:
            self._lost.pop((row_log.path, node), None)
        self.counts["rows"] += 1
        self.counts["values"] += len(names)
        if begins:
            self.sums.begin_attempt(job, node, attempt)
        if job != NODE:
            self.sums.take(job, node, at / 1000, names, packed)

    def _note_trouble(self, row_log: RowLog, node: str, job: int, at: int, ahead: float) -> None:
        """Note that rows before this one are missing, and, once, that the clock of a node is wrong."""
        key = row_log.path, node
        if key in self._lost:
            gap = Gap(node, self._lost[key], at, "the disk took nothing")
            row_log.note(at, node, {"since": gap.since, "until": gap.until, "why": gap.why})
            if job != NODE:
                self.sums.note_gap(job, gap)
        if ahead and key not in self._ahead:
            self._ahead.add(key)
            row_log.note(at, node, {"ahead": round(ahead, 3)})

    def _write(self, row_log: RowLog, node: str, at: int) -> bool:
        try:
            self.counts["bytes"] += row_log.write()
        except OSError as error:
            self._open.pop(row_log, None)
            self._lose(row_log, node, at, error)
            return False
        self.trouble = ""
        return True

    def _has_room(self) -> bool:
        """Return whether there was room within the last second: measurements never take the end of a disk."""
        now = time.monotonic()
        if now >= self._room_at:
            self._room_at = now + _ROOM_SECONDS
            with contextlib.suppress(OSError):  # the write says what is wrong
                self._is_full = self.places.room().is_left_to_server
        return not self._is_full

    def _lose(self, row_log: RowLog, node: str, at: int, error: OSError) -> None:
        self.counts["dropped"] += 1
        self._lost.setdefault((row_log.path, node), at)
        self._fail(row_log.path, error)

    def _fail(self, path: Path, error: OSError) -> None:
        """Remember why the disk takes nothing; log it once until it takes something again."""
        if not self.trouble:
            log.warning("measurements cannot be written", extra={"file": str(path), "why": str(error)})
        self.trouble = str(error)

    def _log(self, path: Path) -> RowLog:
        row_log = self._logs.get(path)
        if row_log is None:
            row_log = self._logs[path] = RowLog(path)
        return self._opened(row_log)

    def _opened(self, row_log: RowLog) -> RowLog:
        """Count a log as used; if many are open, the one that was not used for longest is closed."""
        self._open[row_log] = None
        self._open.move_to_end(row_log)
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[0].close()
        return row_log

    def _forget(self, path: Path) -> None:
        row_log = self._logs.pop(path, None)
        if row_log is not None:
            row_log.close()
            self._open.pop(row_log, None)
        self._earlier.pop(path, None)
        self._lost = {key: since for key, since in self._lost.items() if key[0] != path}
        self._ahead = {key for key in self._ahead if key[0] != path}


def samples_a_node(rows: int, nodes: int) -> int:
    """Return how many samples each node has on average."""
    return rows // max(nodes, 1)
