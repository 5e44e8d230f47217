"""The collector's process: takes messages from its socket in their order, and ends with its server."""

import contextlib
import gc
import logging
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from oarlock.measure.batch import JobFacts
from oarlock.measure.collect import jobs
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.files.steps import Steps
from oarlock.measure.collect.questions import answer_in_steps
from oarlock.measure.collect.retention import Retention
from oarlock.measure.energy.controllers import ControllerFile
from oarlock.measure.energy.division import DAY
from oarlock.measure.remote.target import RemoteTarget
from oarlock.model.errors import DatabaseAway, OarlockError
from oarlock.model.summary import MeasuredJob
from oarlock.server.collecting.messages import (
    LENGTH,
    PROGRESS_SECONDS,
    Answered,
    ArchiveShortage,
    Asked,
    Begin,
    BookedEnergy,
    MeasuredJobs,
    MissingSamples,
    Progress,
    StoredSummaries,
    TakenSample,
    ToWorker,
    encode,
)
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import parse_address
from oarlock.store.queries.usage import energy, pins

if TYPE_CHECKING:
    from oarlock.measure.remote.remote_write import RemoteWriter

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_AGAIN_SECONDS = 60.0  # until the summary of a job that is over is sent again, if the server has not stored it
_MOST_WARNINGS = 20  # between two messages
_END_SECONDS = 2.0
_MARK_DAYS = 7  # what was booked last before is not looked for


_decoder = msgspec.msgpack.Decoder(ToWorker)


class WarningKeeper(logging.Handler):
    """Keeps warnings until they are sent to the server, whose log they belong into; a flood of them is cut."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the sentence, and what it is about."""
        about = " ".join(
            f"{name}={getattr(record, name)}" for name in ("file", "node", "url", "why") if hasattr(record, name)
        )
        if len(self.lines) < _MOST_WARNINGS:
            self.lines.append(f"{record.getMessage()} {about}{_failure(record)}".strip())

    def take(self) -> list[str]:
        """Return what was kept, and forget it."""
        lines, self.lines = self.lines, []
        return lines


def _failure(record: logging.LogRecord) -> str:
    return f" ({record.exc_info[1]!r})" if record.exc_info else ""


class SummarySender:
    """Hands summaries to the server: those of jobs that run now and then, that of a job that is over until stored.

    What was booked of energy goes before them, so that a summary has all of its job's.
    """

    def __init__(self, line: socket.socket, collector: Collector, seconds: float) -> None:
        self._line, self._collector, self._seconds = line, collector, seconds
        self._number = 0
        self._due = time.monotonic() + seconds
        self._final: dict[int, tuple[int, float]] = {}  # by job: the message with its last summary, and when
        self._stored: set[int] = set()

    def keep_up(self, now: float) -> None:
        """Send what is due."""
        if now < self._due:
            return
        self._due = now + self._seconds
        self._send(self._collector.sums.hand_over())
        self._collector.sums.store()

    def are_stored(self, jobs: Collection[int]) -> list[int]:
        """Return those of these jobs that are over whose summary the server has stored; send those it lacks."""
        now = time.monotonic()
        self._final = {job: sent for job, sent in self._final.items() if job in jobs}
        self._stored &= set(jobs)
        missing = [job for job in jobs if job not in self._stored and self._sent_at(job) <= now - _AGAIN_SECONDS]
        measured = {job: last for job in missing if (last := self._collector.sums.measured(job)) is not None}
        self._stored.update(set(missing) - measured.keys())
        if measured:
            self._send(measured)
            self._final.update(dict.fromkeys(measured, (self._number, now)))
        return [job for job in jobs if job in self._stored]

    def stored(self, number: int) -> None:
        """Note that the server has stored the summaries of a message."""
        self._stored.update(job for job, (sent, _) in self._final.items() if sent == number)

    def send_energy(self) -> None:
        """Hand over what was booked of energy."""
        ledger = self._collector.energy
        if ledger is not None and (bookings := list(ledger.hand_over().items())):
            self._line.sendall(encode(BookedEnergy(bookings)))

    def _sent_at(self, job: int) -> float:
        return self._final[job][1] if job in self._final else float("-inf")

    def _send(self, measured: Mapping[int, MeasuredJob]) -> None:
        if measured:
            self._number += 1
            self.send_energy()
            self._line.sendall(encode(MeasuredJobs(self._number, time.time(), msgspec.msgpack.encode(measured))))


class CollectorProcess:
    """Runs a collector on messages."""

    def __init__(self, line: socket.socket, begin: Begin) -> None:
        self._line = line
        self._warnings = WarningKeeper()
        logging.getLogger().addHandler(self._warnings)
        self._database = Database(parse_address(begin.database))
        self._remote = None if begin.remote is None else self._remote_writer(begin.remote)
        forward = None if self._remote is None else self._remote.put
        self._collector = Collector(Path(begin.root), begin.energy, forward)
        self._look_seconds = begin.look_seconds
        self._controllers = ControllerFile(Path(begin.redfish)) if begin.redfish else None
        self._readings = 0  # of controllers
        self._retention = Retention(
            self._collector.places, begin.policy, pinned=self._pinned, on_shortage=self._tell_shortage
        )
        self._last = 0
        self._look_at = self._progress_at = time.monotonic()
        self._told = -1, dict[str, int]()
        self._booking_seconds, self._booked = begin.booking_seconds, begin.booked
        self._book_at = time.monotonic() + self._booking_seconds
        self._summaries = SummarySender(line, self._collector, begin.summary_seconds)
        self._is_archiving = self._is_loaded = False
        self._works: deque[Steps[None]] = deque()  # what takes longer; samples are taken between its steps

    def run(self, messages: "MessageReader") -> None:
        """Serve until the other end closes."""
        self._collector.start()
        self._begin_energy()
        while True:
            wait = 0.0 if self._works else max(0.0, self._look_at - time.monotonic())
            ready = messages.pending or select.select([self._line], [], [], min(wait, PROGRESS_SECONDS))[0]
            if ready and not self._take(messages):
                break
            self._keep_up()
            if self._works:
                self._step(self._works.popleft())
        if self._controllers is not None:
            self._controllers.pool.close(seconds=1.0)
        if self._remote is not None:
            self._remote.close()

    def _begin_energy(self) -> None:
        """Book energy from where it is booked already; while the database does not say where, samples are logged."""
        now = time.time()
        try:
            with self._database.read() as tx:
                booked = energy.booked_until(tx, since=int(now - _MARK_DAYS * DAY))
        except OarlockError as away:
            log.info("the database does not answer", extra={"why": str(away)})
            return
        for node, until in self._booked.items():
            booked[node] = max(until, booked.get(node, 0))
        self._collector.begin_energy(booked, now=now)

    def _take(self, messages: "MessageReader") -> bool:
        for message in messages.read():
            match message:
                case TakenSample():
                    expected, at = message.expected, message.at
                    self._collector.take(
                        message.node, message.data, expected, at=at, posted=message.posted, cluster=message.cluster
                    )
                    self._last = message.number
                case MissingSamples():
                    self._collector.mark_gap(
                        message.node, message.jobs, since=message.since, until=message.until, why=message.why
                    )
                case Asked():
                    self._step(self._answer(message))
                case StoredSummaries():
                    self._summaries.stored(message.number)
        return not messages.ended

    def _step(self, work: Steps[None]) -> None:
        """Do a step of some work; what is left of it is done after other messages and other work."""
        with contextlib.suppress(StopIteration):
            next(work)
            self._works.append(work)

    def _answer(self, message: Asked) -> Steps[None]:
        try:
            content = yield from answer_in_steps(self._collector, message.question, self._describe)
            answered = Answered(message.number, content)
        except OarlockError as error:
            answered = Answered(message.number, refusal=(type(error).__name__, str(error), error.hint or ""))
        except Exception as error:  # one question that fails must not stop what is logged
            log.exception("a question could not be answered")
            answered = Answered(message.number, refusal=("Failed", f"The collector failed: {error}.", ""))
        self._line.sendall(encode(answered))

    def _load(self) -> None:
        """Load what writes files, once: not in a moment in which one is due, and not to be looked through for garbage.

        It is not done at the start, since many a process of a test or of a small site ends before it has a file.
        """
        if not self._is_loaded and hdf5.is_available():
            hdf5.load()
            gc.freeze()
        self._is_loaded = True

    def _archive(self) -> Steps[None]:
        """Make files of jobs that are over."""
        try:
            yield from self._collector.archive_in_steps(self._ended, self._summaries.are_stored)
        except DatabaseAway as away:
            log.info("the database does not answer", extra={"why": str(away)})
        except Exception:  # what could not be looked up now is looked up again
            log.exception("jobs could not be archived")
        finally:
            self._is_archiving = False

    def _remote_writer(self, target: RemoteTarget) -> "RemoteWriter":
        from oarlock.measure.remote.remote_write import RemoteWriter  # few sites have an engine

        return RemoteWriter(target, self._facts)

    def _facts(self, ids: Collection[int]) -> Mapping[int, JobFacts]:
        return {
            job: JobFacts(about.owner, about.project, about.name, about.label, about.manager)
            for job, about in self._describe(ids).items()
        }

    def _pinned(self) -> frozenset[int]:
        with self._database.read() as tx:
            return pins.jobs(tx)

    def _tell_shortage(self, description: str) -> None:
        self._line.sendall(encode(ArchiveShortage(int(time.time()), description)))

    def _describe(self, ids: Collection[int]) -> Mapping[int, ArchivedJob]:
        with self._database.read() as tx:
            return jobs.describe_jobs(tx, ids)

    def _ended(self, ids: Collection[int]) -> Mapping[int, ArchivedJob | None]:
        with self._database.read() as tx:
            return jobs.describe_ended(tx, ids)

    def _keep_up(self) -> None:
        """Make files of jobs that are over, and tell how far it is, when it is time."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + self._look_seconds
            try:
                if self._collector.energy is None:
                    self._begin_energy()
                if not self._is_archiving:
                    self._load()
                    self._is_archiving = True
                    self._step(self._archive())
                self._retention.step(now=time.time())
            except DatabaseAway as away:
                log.info("the database does not answer", extra={"why": str(away)})
            except Exception:  # what is kept too long is deleted another time
                log.exception("files could not be looked at")
        if now >= self._book_at:
            self._book_at = now + self._booking_seconds
            self._summaries.send_energy()
        self._summaries.keep_up(now)
        if now >= self._progress_at:
            self._progress_at = now + PROGRESS_SECONDS
            if self._controllers is not None:
                for reading in self._controllers.take():
                    self._readings += 1
                    self._collector.take_power(reading.node, reading.watts, at=reading.at)
            self._tell_progress()

    def _tell_progress(self) -> None:
        """Send how far it has come, if that changed."""
        figures = {} if self._remote is None else dict(self._remote.figures)
        if self._controllers is not None:
            figures["controllers_failing"] = self._controllers.pool.failing
            figures["readings"] = self._readings
        if (self._last, figures) == self._told and not self._warnings.lines:
            return
        self._told = self._last, figures
        counts = {**self._collector.counts, **figures}
        collector = self._collector
        warnings, refused = self._warnings.take(), dict(collector.refused)
        self._line.sendall(encode(Progress(self._last, counts, collector.trouble, warnings, refused)))


class MessageReader:
    """Cuts the bytes of a socket into messages."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._buffer = bytearray()
        self.ended = False

    @property
    def pending(self) -> bool:
        """Whether a whole message was read and not taken yet."""
        return len(self._buffer) >= LENGTH and len(self._buffer) >= LENGTH + self._length()

    def read(self) -> Iterator[ToWorker]:
        """Read once what is there, unless messages are left, and yield those that are complete."""
        if not self.pending:
            data = self._line.recv(_CHUNK)
            self.ended = not data
            self._buffer += data
        while self.pending:
            end = LENGTH + self._length()
            body = bytes(self._buffer[LENGTH:end])
            del self._buffer[:end]
            yield _decoder.decode(body)

    def _length(self) -> int:
        return int.from_bytes(self._buffer[:LENGTH], "big")


def main(line: socket.socket) -> None:
    """Collect until the server closes the socket."""
    reader = MessageReader(line)
    begin: ToWorker | None = None
    while begin is None and not reader.ended:
        begin = next(reader.read(), None)
    if isinstance(begin, Begin):
        gc.freeze()  # modules live as long as this process: they are not looked through for garbage again and again
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server ended before it read an answer
            CollectorProcess(line, begin).run(reader)


class CollectorHandle(NamedTuple):
    """A collector's process: its socket, and its number."""

    line: socket.socket
    process: "subprocess.Popen[bytes]"

    def end(self, *, patience: float | None = None) -> None:
        """Wait for the process, whose socket was closed; kill it if it takes long.

        One that hangs in its disk dies when the disk answers. With `patience` that is waited for so many seconds.
        """
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self._wait(patience)

    def _wait(self, patience: float | None) -> None:
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            log.warning("the collector was killed and hangs in its disk", extra={"pid": self.process.pid})


def spawn() -> CollectorHandle:
    """Start a collector's process."""
    ours, theirs = socket.socketpair()
    command = (sys.executable, "-m", "oarlock.server.collecting.worker")
    # A session of its own: a Ctrl-C at the server is not meant for it; it ends when its socket does.
    process = subprocess.Popen(  # noqa: S603 - our own
        command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
    )
    theirs.close()
    return CollectorHandle(ours, process)


if __name__ == "__main__":
    main(socket.socket(fileno=0))
