"""Simulated nodes: they do what real ones promise (run once, keep their report, survive the server) in simulated time.

And what real ones do besides: they fail, hang, answer late, lose messages, and reboot. Their clock is an
instant and a queue of wake-ups.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from oarlock.job.reactor.steps import Moment
from oarlock.job.run.reports import (
    AttemptMissing,
    Exited,
    Hello,
    IncomingReport,
    NodeReachable,
    Started,
    UnknownEnded,
)
from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.model.job import UnknownAttempt
from oarlock.node.wire.messages import (
    CLEANED,
    EXITED,
    FAILED,
    FIRST,
    KILLED,
    NOT_NOW,
    REBOOTED,
    SEEN,
    TAKEN,
    UNKNOWN,
    WALLTIME,
    Launch,
    Report,
    fingerprint,
)


class SimulatedClock:
    """The time goes from one wake-up to the next; work takes no time, or part of a second. Instants are in seconds."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._jumped = 0
        self._spent = 0.0  # of the present second
        self._calls: list[tuple[int, str]] = []

    @property
    def now(self) -> int:
        """What it shows."""
        return self._now

    @property
    def moment(self) -> Moment:
        """The present by both clocks; only the monotonic one does not jump."""
        return Moment(self._now + self._spent, self._now - self._jumped + self._spent)

    def go_to(self, instant: int) -> None:
        """Advance to an instant; one that is over changes nothing."""
        if instant > self._now:
            self._now, self._spent = instant, 0.0

    def spend(self, seconds: float) -> bool:
        """Advance within the present second; return False if not so much is left of it."""
        if self._spent + seconds >= 1:
            return False
        self._spent += seconds
        return True

    def call(self, who: str, at: int) -> None:
        """Request a wake-up at an instant; the same request twice is one wake-up."""
        heapq.heappush(self._calls, (at, who))

    def next(self) -> int | None:
        """Return when the next call is."""
        return self._calls[0][0] if self._calls else None

    def due(self) -> list[str]:
        """Return those whose time has come, in order, each once."""
        called: dict[str, None] = {}
        while self._calls and self._calls[0][0] <= self.now:
            called[heapq.heappop(self._calls)[1]] = None
        return list(called)

    def jump(self, seconds: int) -> None:
        """Change the time shown: requested wake-ups come after as long as before."""
        self._now += seconds
        self._jumped += seconds
        self._calls = [(at + seconds, who) for at, who in self._calls]


Key = tuple[int, int]
"""A job and its attempt."""


@dataclass(slots=True)
class SimulatedAttempt:
    """An attempt on a node: its launch message, when it ends by itself, and its report once it is over."""

    launch: Launch
    started: int | None = None
    ends: int | None = None
    report: Report | None = None
    stopped_at: int | None = None
    suspended: int = 0
    checkpointed: bool = False

    @property
    def deadline(self) -> int:
        """When its walltime is over."""
        return (self.started or 0) + self.launch.walltime + self.suspended

    @property
    def tag(self) -> str:
        """What tells this attempt from one of its number that another generation of the database began."""
        return fingerprint(self.launch.secret)

    @property
    def lives(self) -> bool:
        """Whether it runs: time brings it nearer to its end."""
        return self.report is None and self.started is not None and self.stopped_at is None

    @property
    def next(self) -> int:
        """When it ends, if nothing intervenes."""
        return self.deadline if self.ends is None else min(self.ends, self.deadline)


@dataclass
class SimulatedNode:
    """A node that understands `sleep N`, `exit N` after it, `fail EVENT`, and `deaf` (ignores kills).

    `fails` is the event with which every launch fails (`EVENT:CAUSE` for a program of the site); `lag` how many seconds
    late its reports come; `loses` how many of its next reports are lost with the connection (`cut`, until `catch_up` is
    called). While it `hangs` it accepts messages and does not act on them; what runs there goes on.
    """

    name: str
    clock: SimulatedClock
    on_connect: Callable[["SimulatedNode"], None] = lambda _node: None
    boot: int = 1
    up: bool = True
    connected: bool = False
    memory: int = 8 << 30
    runs: dict[Key, SimulatedAttempt] = field(default_factory=dict)
    ran: list[Key] = field(default_factory=list)
    seen: set[tuple[int, int, str]] = field(default_factory=set)
    unknown: set[Key] = field(default_factory=set)
    expected: set[Key] = field(default_factory=set)
    reported: set[tuple[Key, str]] = field(default_factory=set)
    fails: str = ""
    refuses_to_stop: bool = False
    lag: int = 0
    loses: int = 0
    cut: bool = False
    hangs: bool = False
    instance: str = ""
    highest_job: int = 0
    _inbox: list[Callable[[], None]] = field(default_factory=list)
    _outbox: list[tuple[int, IncomingReport]] = field(default_factory=list)

    # What a server asks.

    async def hello(self) -> Hello:
        """Answer who is here; the first answer after a time without a connection is an event."""
        self._reach()
        if not self.connected:
            self.on_connect(self)
        return self.greeting()

    def greeting(self) -> Hello:
        """Return who is here."""
        boot, instance, highest = f"{self.name}-{self.boot}", self.instance, self.highest_job
        return Hello(boot, "v2", (), 4, self.memory, "3.11", 0, 0.0, instance=instance, highest_job=highest)

    async def ping(self) -> None:
        """Answer."""
        self._reach()

    async def launch(self, launch: Launch) -> None:
        """Start an attempt, once; one that hangs may start it when it goes on."""
        if self.up and self.hangs:
            self.expected.add((launch.job, launch.attempt))
            self._inbox.append(partial(self._start, launch))
        self._reach()
        self._check(launch)
        self._start(launch)

    async def kill(self, job: int, attempt: int, *, grace: int | None = None) -> None:  # noqa: ARG002
        """End a job that is not deaf."""
        run = self._live(job, attempt)
        if "deaf" not in run.launch.command:
            self._end(run, KILLED, status=15)

    async def end(self, job: int, attempt: int) -> None:
        """End an attempt and free what it holds."""
        self._end(self._live(job, attempt), CLEANED)

    async def suspend(self, job: int, attempt: int) -> None:
        """Stop a job."""
        run = self._live(job, attempt)
        if self.refuses_to_stop:
            raise NodeRefused(self.name, "SUSPEND_ERROR", "the freezer is broken")
        if run.stopped_at is None:
            run.stopped_at = self.clock.now

    async def resume(self, job: int, attempt: int) -> None:
        """Resume a job."""
        run = self._live(job, attempt)
        if run.stopped_at is not None:
            waited = self.clock.now - run.stopped_at
            run.suspended += waited
            run.ends = None if run.ends is None else run.ends + waited
            run.stopped_at = None
            self.clock.call(self.name, run.next)

    async def walltime(self, job: int, attempt: int, seconds: int) -> None:
        """Set the walltime of a running job."""
        run = self._live(job, attempt)
        run.launch = run.launch._replace(walltime=seconds)
        self.clock.call(self.name, run.next)

    async def checkpoint(self, job: int, attempt: int) -> None:
        """Send a job its checkpoint signal; one that `saves` ends then."""
        run = self._live(job, attempt)
        run.checkpointed = True
        if "saves" in run.launch.command:
            self._end(run, EXITED, status=0)

    async def signal(self, job: int, attempt: int, number: int) -> None:
        """Ignore a signal: simulated commands mind none."""

    def expect(self, job: int, attempt: int, secret: str) -> None:  # noqa: ARG002
        """Note that the report of an attempt is awaited."""
        self.expected.add((job, attempt))

    async def discard(self, job: int, attempt: int, tag: str) -> None:
        """Forget an attempt that is over and that no database knows."""
        self._reach()
        run = self.runs.get((job, attempt))
        if run is not None and run.tag == tag and run.report is not None:
            del self.runs[job, attempt]

    async def end_unknown(self, job: int, attempt: int, tag: str) -> None:
        """End an attempt that no database knows."""
        if self._live(job, attempt).tag == tag:
            self._end(self.runs[job, attempt], CLEANED)

    async def forget(self, keys: Iterable[Key]) -> None:
        """Forget attempts whose end is written down elsewhere."""
        self._reach()
        for key in keys:
            self.runs.pop(key, None)
            self.expected.discard(key)
            self.reported -= {(key, "started"), (key, "exited")}

    # What it says.

    def reports(self) -> list[IncomingReport]:
        """Return the reports until now; none while it cannot be reached."""
        for key, run in self.runs.items():
            self._advance(key, run)
        if not self.up or self.hangs or self.cut:
            return []
        for key in sorted(self.expected & self.runs.keys()):
            run = self.runs[key]
            if run.started is not None and self._is_new(key, "started"):
                self._send(Started(self.name, *key, float(run.started)))
            if run.report is not None and self._is_new(key, "exited"):
                self._send(Exited(self.name, run.report))
        for key in sorted(self.unknown - self.expected):
            foreign = self.runs.get(key)
            if foreign is None or foreign.report is not None:
                self.unknown.discard(key)
                self._send(UnknownEnded(self.name, *key, "" if foreign is None else foreign.tag))
        now = self.clock.now
        due = [report for at, report in self._outbox if at <= now]
        self._outbox = [(at, report) for at, report in self._outbox if at > now]
        return due

    def catch_up(self) -> list[IncomingReport]:
        """Return the reports of a node whose connection is made again: everything once more."""
        self.cut = False
        self.reported.clear()
        self._outbox.clear()
        self.clock.call(self.name, self.clock.now)
        foreign = tuple(self._unknown(key) for key in sorted(self.runs.keys() - self.expected))
        self.unknown = {(attempt.job, attempt.attempt) for attempt in foreign if attempt.alive}
        reports: list[IncomingReport] = [NodeReachable(self.name, self.greeting(), foreign)]
        return [*reports, *(AttemptMissing(self.name, *key) for key in sorted(self.expected - self.runs.keys()))]

    def _unknown(self, key: Key) -> UnknownAttempt:
        """Describe an attempt that no step of the server awaits."""
        run = self.runs[key]
        launch = run.launch
        return UnknownAttempt(
            node=self.name,
            job=launch.job,
            attempt=launch.attempt,
            tag=run.tag,
            generation=launch.generation,
            user=launch.user,
            since=run.started or 0,
            walltime=launch.walltime,
            resources=tuple(
                int(line["resource_id"]) for line in launch.resources if line["network_address"] == self.name
            ),
            alive=run.report is None,
        )

    # What happens to it.

    def go_on(self, *, delivered: bool) -> None:
        """End the hang; messages of meanwhile are acted on now (`delivered`), or are lost."""
        self.hangs = False
        waiting, self._inbox = self._inbox, []
        if delivered:
            for message in waiting:
                message()

    def reboot(self) -> None:
        """Lose everything that was in memory."""
        self.boot += 1
        self.runs.clear()
        self.seen.clear()
        self._inbox.clear()
        self._outbox.clear()

    def clock_jumped(self, seconds: int) -> None:
        """Follow a clock that shows another time: what runs goes on for as long as it would have."""
        for run in self.runs.values():
            run.started = None if run.started is None else run.started + seconds
            run.ends = None if run.ends is None else run.ends + seconds
            run.stopped_at = None if run.stopped_at is None else run.stopped_at + seconds
        self._outbox = [(at + seconds, report) for at, report in self._outbox]

    def _check(self, launch: Launch) -> None:
        if launch.boot != f"{self.name}-{self.boot}":
            raise NodeRefused(self.name, REBOOTED, "another boot")
        there = self.runs.get((launch.job, launch.attempt))
        if there is not None and there.launch.secret != launch.secret:
            raise NodeRefused(self.name, TAKEN, "another generation began it")
        if (launch.job, launch.attempt, launch.secret) in self.seen:
            raise NodeRefused(self.name, SEEN, "seen before")

    def _start(self, launch: Launch) -> None:
        key = (launch.job, launch.attempt)
        if (*key, launch.secret) in self.seen:
            return
        self.seen.add((*key, launch.secret))
        self.highest_job = max(self.highest_job, launch.job)
        self.expected.add(key)
        words = launch.command.split()
        run = self.runs[key] = SimulatedAttempt(launch)
        event, _, cause = (self.fails or (words[1] if words[:1] == ["fail"] else "")).partition(":")
        if event:
            self._end(run, FAILED, event=event, says=f"{event} on purpose")
            if cause and run.report is not None:
                run.report = run.report._replace(causes={event: cause})
            return
        run.started = self.clock.now
        if launch.role == FIRST:
            self.ran.append(key)
            run.ends = self.clock.now + (int(words[1]) if words[:1] == ["sleep"] else 0)
        self.clock.call(self.name, self.clock.now)
        self.clock.call(self.name, run.next)

    def _advance(self, key: Key, run: SimulatedAttempt) -> None:
        if not run.lives or run.next > self.clock.now:
            return
        if run.ends is not None and run.ends <= run.deadline:
            words = run.launch.command.split()
            status = int(words[words.index("exit") + 1]) << 8 if "exit" in words else 0
            run.report = self._report(key, run, EXITED, run.ends, status=status)
        else:
            over = (("WALLTIME", "the walltime is over"),)
            run.report = self._report(key, run, WALLTIME, run.deadline, status=15, events=over)

    def _end(
        self, run: SimulatedAttempt, outcome: str, *, status: int | None = None, event: str = "", says: str = ""
    ) -> None:
        key = (run.launch.job, run.launch.attempt)
        run.report = self._report(key, run, outcome, self.clock.now, status=status, event=event, says=says)
        self.clock.call(self.name, self.clock.now)

    def _report(
        self,
        key: Key,
        run: SimulatedAttempt,
        outcome: str,
        now: int,
        *,
        status: int | None = None,
        event: str = "",
        says: str = "",
        events: tuple[tuple[str, str], ...] = (),
    ) -> Report:
        if run.checkpointed:
            events = (*events, ("CHECKPOINT_SUCCESS", "the signal was sent"))
        started = None if run.started is None else float(run.started)
        ended = None if started is None else float(now)
        boot = f"{self.name}-{self.boot}"
        return Report(*key, self.name, boot, outcome, status, event, says, events, started=started, ended=ended)

    def _is_new(self, key: Key, what: str) -> bool:
        new = (key, what) not in self.reported
        self.reported.add((key, what))
        return new

    def _send(self, report: IncomingReport) -> None:
        """Send a report: at once, late, or lost, and then nothing is sent until the connection is made again."""
        if self.loses:
            self.loses -= 1
            self.cut = True
        if self.cut:
            return
        self._outbox.append((self.clock.now + self.lag, report))
        if self.lag:
            self.clock.call(self.name, self.clock.now + self.lag)

    def _live(self, job: int, attempt: int) -> SimulatedAttempt:
        self._reach()
        run = self.runs.get((job, attempt))
        if run is None:
            raise NodeRefused(self.name, UNKNOWN, "no such attempt")
        if run.report is not None:
            raise NodeRefused(self.name, NOT_NOW, "it is over")
        return run

    def _reach(self) -> None:
        if not self.up or self.cut:
            raise NodeUnreachable(self.name, "unplugged")
        if self.hangs:
            raise NodeUnreachable(self.name, "it does not answer", sent=True)
