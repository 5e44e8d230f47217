"""The server's end of the collector: a bounded queue of samples, and questions.

To hand a sample over is one append. A task writes what is queued to the collector's socket; while the collector is
behind, up to 64 MB wait, and what comes then is dropped, counted, and marked as a gap in the curves it is missing from.
The process is started with the first sample, and again when it dies.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from oarlock.measure.collect.collector import ExpectedJobs
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.questions import REFUSALS, Question
from oarlock.measure.collect.retention import RetentionPolicy
from oarlock.measure.collect.series import NoSamples
from oarlock.measure.energy.division import EnergyRules
from oarlock.measure.remote.target import RemoteTarget
from oarlock.model.errors import OarlockError, Unavailable
from oarlock.server.collecting.elsewhere import MeasurementsElsewhere
from oarlock.server.collecting.messages import (
    BOOKING_SECONDS,
    LENGTH,
    SUMMARY_SECONDS,
    Answered,
    ArchiveShortage,
    Asked,
    Begin,
    BookedEnergy,
    FromWorker,
    MeasuredJobs,
    MissingSamples,
    Progress,
    StoredSummaries,
    TakenSample,
    encode,
)
from oarlock.server.collecting.worker import CollectorHandle, spawn

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Bytes of samples that may wait for the collector."""

BEHIND_SECONDS = 120.0
"""A sample that was not logged for so long means that the collector, or its disk, does not keep up."""

ANSWER_SECONDS = 60.0
_CAUGHT_UP_SECONDS = 10.0
_PATIENCE = 2.0  # for a killed process, when the server ends
_MOST_QUESTIONS = 4  # at once: samples are logged between them
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_FAILING = 2
_GATHER_SECONDS = 0.05  # what comes meanwhile is written at once
_AT_ONCE = 1 << 20
_REMOTE_COUNTS = ("written", "dropped", "refused", "retries")
_decoder = msgspec.msgpack.Decoder(FromWorker)


class CollectorAway(Unavailable):
    """The collector does not answer."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The collector does not answer: {why}.", hint="Ask again in a moment.")


class _Waiting(NamedTuple):
    node: str
    data: bytes
    expected: dict[int, int]
    at: float
    posted: bool = False
    cluster: str = ""
    queued: float = 0.0
    """When it was handed over, by the steady clock."""


@dataclass(slots=True)
class _Hole:
    """Samples of a node that were dropped: between which instants, of which jobs, how many, and why."""

    since: float
    until: float
    why: str
    jobs: set[int] = field(default_factory=set)


class CollectorClient:
    """Hands samples to a collector's process, and asks it. `tables` returns what a node's frames are read with."""

    def __init__(
        self, root: Path, database: str, tables: Callable[[str], bytes], *, policy: RetentionPolicy | None = None,
        look_seconds: float = 10.0, most_bytes: int = MOST_BYTES, energy: EnergyRules | None = None,
        on_booked: Callable[[BookedEnergy], None] = lambda _: None, booking_seconds: float = BOOKING_SECONDS,
        on_measured: Callable[[MeasuredJobs], Future[None]] | None = None, summary_seconds: float = SUMMARY_SECONDS,
        remote: RemoteTarget | None = None, booked: Mapping[str, int] | None = None, redfish: Path | None = None,
        elsewhere: MeasurementsElsewhere | None = None, on_shortage: Callable[[ArchiveShortage], None] = lambda _: None,
        on_trouble: Callable[[str], None] = lambda _: None, behind_seconds: float = BEHIND_SECONDS,
    ) -> None:  # fmt: skip
        self._begin = Begin(
            str(root), database, look_seconds, policy or RetentionPolicy(), energy or EnergyRules(), booking_seconds,
            summary_seconds, remote, redfish="" if redfish is None else str(redfish),
        )  # fmt: skip
        self._on_booked, self._booked = on_booked, {} if booked is None else booked
        self._elsewhere, self._on_shortage, self._on_trouble = elsewhere, on_shortage, on_trouble
        self._is_behind, self._behind_seconds = False, behind_seconds
        self._is_closing = False
        self._refused: Counter[str] = Counter()  # by node, in processes that ended
        self._failures = 0  # processes one after the other that ended before they took anything
        self._on_measured = on_measured
        self._root, self._tables, self._most_bytes = root, tables, most_bytes
        self.counts: Counter[str] = Counter()
        """What was dropped before the collector, and how often it had to be started again."""
        self.progress = Progress(0, {})
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._sent: deque[tuple[int, _Waiting]] = deque()  # not yet known to be logged; without their bytes
        self._holes: dict[str, _Hole] = {}
        self._introduced: set[str] = set()
        self._number = 0
        self._wake = asyncio.Event()
        self._written = asyncio.Event()  # nothing is queued
        self._task: asyncio.Task[None] | None = None
        self._handle: CollectorHandle | None = None
        self._messages: deque[Asked | StoredSummaries] = deque()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._asking = asyncio.Semaphore(_MOST_QUESTIONS)

    def begin(self) -> None:
        """Start the process if it has something to read, or jobs have logs from before: some may be over."""
        if self._begin.redfish or SamplePlaces(self._root).logged_jobs():
            self._start()

    def has_room(self, size: int) -> bool:
        """Return whether samples that can be sent again later fit; a quarter is kept for those that cannot."""
        return self._bytes + size <= self._most_bytes * 3 // 4

    def mark_missing(self, node: str, jobs: Set[int], *, since: float, until: float, why: str) -> None:
        """Mark samples that never came as a gap."""
        hole = self._holes.setdefault(node, _Hole(since, until, why))
        hole.since, hole.until = min(hole.since, since), max(hole.until, until)
        hole.jobs |= jobs
        self._start()
        self._wake.set()

    def put(
        self, node: str, data: bytes, expected: ExpectedJobs, *, at: float, posted: bool = False, cluster: str = ""
    ) -> None:
        """Queue a sample; never waits. Call it before the frame is decoded, so that `tables` is without it.

        `posted`: it comes from an agent of a cluster, which may have sent it to the server before this one.
        """
        now = time.monotonic()
        waits = self._oldest(now)
        if waits > self._behind_seconds:
            self._fall_behind(f"what came {waits:.0f} s ago is not logged yet; its disk may be slow, or hang")
        if self._bytes + len(data) > self._most_bytes:
            self._fall_behind(f"{self._bytes >> 20} MB wait for it, and what comes now is dropped")
            self._drop(node, set(expected), at, at, "the collector was behind")
            return
        if node not in self._introduced:
            self._introduced.add(node)
            tables = self._tables(node)
            self._queue.append(_Waiting(node, tables, {}, at, queued=now))
            self._bytes += len(tables)
        attempts = dict(expected) if isinstance(expected, Mapping) else dict.fromkeys(expected, 0)
        self._queue.append(_Waiting(node, data, attempts, at, posted, cluster, now))
        self._written.clear()
        self._bytes += len(data)
        if self._task is None:
            self._start()
        self._wake.set()

    @property
    def figures(self) -> dict[str, float]:
        """What was counted since the start of the collector, and what waits for it; nothing if there is none."""
        if self._task is None:
            return {}
        counts = Counter(self.progress.counts) + self.counts
        names = ("rows", "values", "refused", "dropped", "archived", "restarts")
        totals = {f"{name}_total": float(counts[name]) for name in names}
        more = {} if self._begin.remote is None else self._remote_figures
        if self._begin.redfish:
            more["controller_readings_total"] = float(counts["readings"])
            more["controllers_failing"] = float(counts["controllers_failing"])
        is_failing = self._is_behind or self._failures >= _FAILING or bool(self.progress.trouble)
        waiting = {"queue_bytes": float(self._bytes), "behind_seconds": self._oldest(time.monotonic())}
        return {**totals, **waiting, "failing": float(is_failing), **more}

    @property
    def refused(self) -> Mapping[str, int]:
        """Samples by node that could be read, and that the collector did not take."""
        return self._refused + Counter(self.progress.refused)

    def _oldest(self, now: float) -> float:
        """Return for how many seconds the sample has waited that is due to be logged next."""
        if self._sent:
            return now - self._sent[0][1].queued
        return now - self._queue[0].queued if self._queue else 0.0

    @property
    def _remote_figures(self) -> dict[str, float]:
        counts = self.progress.counts
        totals = {f"remote_{name}_total": float(counts.get(f"remote_{name}", 0)) for name in _REMOTE_COUNTS}
        return {
            **totals,
            "remote_queue_values": float(counts.get("remote_queue", 0)),
            "remote_failing": float(counts.get("remote_failing", 0)),
        }

    async def ask(self, question: Question) -> bytes:
        """Ask for what is kept here or, if nothing is, elsewhere; return the answer in JSON, or raise the refusal."""
        try:
            return await self._ask(question)
        except NoSamples:
            answer = None if self._elsewhere is None else await self._elsewhere.answer(question, self._ask)
            if answer is None:
                raise
            return answer

    async def _ask(self, question: Question) -> bytes:
        async with self._asking:
            self._number += 1
            number = self._number
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._answers[number] = future
            self._messages.append(Asked(number, question))
            self._start()
            self._wake.set()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await future
            except TimeoutError:
                raise CollectorAway(f"it has not answered within {ANSWER_SECONDS:g} s") from None
            finally:
                self._answers.pop(number, None)

    async def close(self) -> None:
        """Send what is queued, as far as the collector takes it within a second, and end the process."""
        if self._elsewhere is not None:
            self._elsewhere.close()
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._written.wait()
        self._is_closing = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _fall_behind(self, why: str) -> None:
        """Report once that the collector does not keep up, until it does again."""
        if not self._is_behind:
            self._is_behind = True
            log.error("measurements are not kept: the collector is behind", extra={"why": why, "bytes": self._bytes})
            self._on_trouble(f"the collector is behind: {why}")

    def _drop(self, node: str, jobs: Set[int], since: float, until: float, why: str) -> None:
        self.counts["dropped"] += 1
        hole = self._holes.setdefault(node, _Hole(since, until, why))
        hole.until = max(hole.until, until)
        hole.jobs |= jobs
        # The frame may have had tables that later ones need.
        self._introduced.discard(node)

    async def _run(self) -> None:
        """Keep a process running, with growing pauses between those that die."""
        pause = _FIRST_PAUSE
        while True:
            before = self.progress.number
            try:
                await self._serve()
            except (OSError, EOFError, asyncio.IncompleteReadError, msgspec.MsgspecError) as error:
                log.warning("the collector ended; it is started again", extra={"why": repr(error), "pause": pause})
            finally:
                self._lose()
            self.counts["restarts"] += 1
            self._note_end(progressed=self.progress.number > before)
            await asyncio.sleep(pause)
            pause = _FIRST_PAUSE if self.progress.number > before else min(pause * 2, _LONGEST_PAUSE)

    def _note_end(self, *, progressed: bool) -> None:
        """Report once that processes end before they took anything, until one does not."""
        self._failures = 0 if progressed else self._failures + 1
        if self._failures == _FAILING:
            self._on_trouble("the collector ends as soon as it is started; the log of the server says why")

    async def _serve(self) -> None:
        self._handle = spawn()  # not in a thread: a cancellation meanwhile would leak the process
        reader, writer = await asyncio.open_unix_connection(sock=self._handle.line)
        receiving = asyncio.create_task(self._receive(reader))
        sending = asyncio.create_task(self._send(writer))
        try:
            await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
            for task in (receiving, sending):
                if task.done():
                    task.result()
        finally:
            for task in (receiving, sending):
                task.cancel()
            await asyncio.gather(receiving, sending, return_exceptions=True)
            writer.close()
            await self._end()

    async def _end(self) -> None:
        """Wait for the process, which ends when its socket is closed; one that hangs in its disk is killed."""
        handle, self._handle = self._handle, None
        if handle is not None:
            # The next process must not write beside this one; without a next one nobody has to wait for the disk.
            await asyncio.to_thread(handle.end, patience=_PATIENCE if self._is_closing else None)

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(msgspec.structs.replace(self._begin, booked=dict(self._booked))))
        while True:
            self._wake.clear()
            while self._queue or self._holes or self._messages:
                writer.write(self._chunk())
                await writer.drain()
            self._written.set()
            await self._wake.wait()
            if not self._messages:
                await asyncio.sleep(_GATHER_SECONDS)

    def _chunk(self) -> bytes:
        """Take messages off the queue, about a megabyte of them."""
        parts = [encode(message) for message in self._messages]
        self._messages.clear()
        for node, hole in self._holes.items():
            parts.append(encode(MissingSamples(node, sorted(hole.jobs), hole.since, hole.until, hole.why)))
        self._holes.clear()
        size = 0
        while self._queue and size < _AT_ONCE:
            waiting = self._queue.popleft()
            size += len(waiting.data)
            self._bytes -= len(waiting.data)
            self._number += 1
            self._sent.append((self._number, waiting._replace(data=b"")))
            node, data, expected, at, posted, cluster, _ = waiting
            parts.append(encode(TakenSample(self._number, node, data, expected, at, posted, cluster)))
        return b"".join(parts)

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        while True:
            length = int.from_bytes(await reader.readexactly(LENGTH), "big")
            message = _decoder.decode(await reader.readexactly(length))
            match message:
                case Progress():
                    self._advance(message)
                case BookedEnergy():
                    self._on_booked(message)
                case ArchiveShortage():
                    self._on_shortage(message)
                case MeasuredJobs():
                    self._store(message)
                case Answered():
                    self._settle(message)

    def _store(self, message: MeasuredJobs) -> None:
        """Have summaries stored, and tell the process when they are."""
        if self._on_measured is None:
            self._acknowledge(message.number)
            return
        loop = asyncio.get_running_loop()

        def note(done: Future[None]) -> None:
            if not done.cancelled() and done.exception() is None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._acknowledge, message.number)

        self._on_measured(message).add_done_callback(note)

    def _acknowledge(self, number: int) -> None:
        self._messages.append(StoredSummaries(number))
        self._wake.set()

    def _advance(self, progress: Progress) -> None:
        if progress.trouble and not self.progress.trouble:
            log.error("measurements are not kept: the disk takes nothing", extra={"why": progress.trouble})
            self._on_trouble(f"the disk takes nothing: {progress.trouble}")
        for warning in progress.warnings:
            log.warning("the collector warns", extra={"why": warning})
        self.progress, self._failures = progress, 0
        while self._sent and self._sent[0][0] <= progress.number:
            self._sent.popleft()
        if self._is_behind and self._oldest(time.monotonic()) < _CAUGHT_UP_SECONDS:
            self._is_behind = False

    def _settle(self, answered: Answered) -> None:
        future = self._answers.get(answered.number)
        if future is None or future.done():
            return
        if answered.refusal is None:
            future.set_result(answered.content)
            return
        kind, sentence, hint = answered.refusal
        refusal = REFUSALS.get(kind)
        error: OarlockError = CollectorAway(sentence)
        if refusal is not None:
            error = refusal.__new__(refusal)
            OarlockError.__init__(error, sentence, hint=hint)
        future.set_exception(error)

    def _lose(self) -> None:
        """Mark as a gap what a process that ended may not have logged, and introduce all nodes to the next one.

        What is queued goes as well: the next process cannot read it without the tables that the last one had.
        """
        for waiting in (*(waiting for _, waiting in self._sent), *self._queue):
            if waiting.expected:
                self._drop(waiting.node, set(waiting.expected), waiting.at, waiting.at, "the collector ended")
        self._refused.update(self.progress.refused)
        self.progress = msgspec.structs.replace(self.progress, refused={})
        self._sent.clear()
        self._queue.clear()
        self._bytes = 0
        self._introduced.clear()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(CollectorAway("its process ended"))
