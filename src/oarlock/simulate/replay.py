"""Replay a trace: its jobs arrive as they did, the real planner decides, and a simulated clock advances.

No policy is implemented here, only the order of events. `EventOrder.OURS`: at one instant jobs end first, then new
ones arrive, then one decision is made. `EventOrder.REFERENCE`, as in the reference simulator: new jobs arrive first;
there is one decision per event, and for a new job only if it fits into the free resources or is owed a date; a job
whose requested end has come holds nothing any more.

`full_replay` is slower than `Replay`, which asks the planner alone, and closer to a server: what a pass decides is
written down, checked again, launched on simulated nodes and reported by them. At one instant jobs end first, then new
ones come, then one decision.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush
from itertools import groupby, islice
from typing import NamedTuple

from oarlock.config import Config
from oarlock.job.run.starting.schedule import Decision
from oarlock.model.job import Job, JobState
from oarlock.model.plan import Placement, Plan
from oarlock.model.resource import Value
from oarlock.model.snapshot import Choice, Queue, ResourceTable, Shape, Snapshot, WaitingJob
from oarlock.model.submission import Alternative, ResourceRequest
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.policies import find_policy
from oarlock.plan.sets.layout import NODE, make_layout
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancy import FOREVER
from oarlock.simulate.cluster import SimulatedCluster
from oarlock.simulate.platform import Platform
from oarlock.simulate.trace import Trace, TraceJob
from oarlock.store.engine.opening import MemoryDatabase
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.site import administration
from oarlock.store.queries.usage import history

Progress = Callable[[int], None]
"""Told how many jobs are over."""

_QUEUE = "default"
_OFTEN = 256


class EventOrder(Enum):
    """Whose rules hold for what happens at one instant."""

    OURS = "ours"
    REFERENCE = "reference"


class ReplayedJob(NamedTuple):
    """What became of a job. `foreseen`: the first predicted start, None if there was none before it began."""

    job: TraceJob
    start: int
    foreseen: int | None
    resources: int

    @property
    def wait(self) -> int:
        """How long it waited."""
        return self.start - self.job.submitted

    @property
    def end(self) -> int:
        """When it was over."""
        return self.start + self.job.run


class Replay:
    """One trace under one policy."""

    def __init__(
        self, trace: Trace, site: Platform, policy: str, *, ties: EventOrder = EventOrder.OURS, foresee: bool = True
    ) -> None:
        self._jobs, self._ties, self._foresee = trace.jobs, ties, foresee
        shapes: dict[Shape, int] = {}
        self._shapes = [shapes.setdefault(job.shape, len(shapes)) for job in trace.jobs]
        begin = trace.jobs[0].submitted if trace.jobs else 0
        snapshot = Snapshot(resources=site.resources, queues=(Queue(_QUEUE, 1, policy),), shapes=tuple(shapes))
        settings = PlanSettings(security_time=0)
        self._live = IncrementalPlan(snapshot, now=begin, settings=settings, inputs=site.ground, punctual=True)
        self._ends: list[tuple[int, int]] = []
        self._next = 0
        self._ran: dict[int, ReplayedJob] = {}
        self._predicted: dict[int, int] = {}
        self._new: list[int] = []
        queue_policy = find_policy(policy)
        self._dates = queue_policy.reservations if queue_policy else None
        self._promises = self._dates is None  # everybody a date, as soon as they come
        self._waiting: dict[int, None] = {}  # in the order in which they came

    def run(self, progress: Progress = lambda _over: None) -> list[ReplayedJob]:
        """Replay everything; gives what became of each job, in the order in which they came."""
        step = self._instant if self._ties is EventOrder.OURS else self._event
        over = 0
        while self._ends or self._next < len(self._jobs):
            now = self._next_instant()
            self._live.advance(now)
            over += step(now)
            if over % _OFTEN == 0:
                progress(over)
        progress(over)
        return [self._ran[number] for number in sorted(self._ran)]

    def _next_instant(self) -> int:
        going = self._ends[0][0] if self._ends else FOREVER
        if self._next == len(self._jobs):
            return going
        coming = self._jobs[self._next].submitted
        return coming if coming < going else going

    def _instant(self, now: int) -> int:
        """Process all events of one instant, then decide once; return how many jobs ended."""
        ended = 0
        while self._ends and self._ends[0][0] <= now:
            self._live.ended(heappop(self._ends)[1])
            ended += 1
        for number in self._coming(now):
            self._submit(number)
        self._decide(now)
        return ended

    def _event(self, now: int) -> int:
        """Process one event of an instant, and decide; new jobs come before others end."""
        for number in self._coming(now):
            waiting = self._submit(number)
            if self._promises or self._live.has_room(waiting):
                self._decide(now)
        if self._ends and self._ends[0][0] <= now:
            self._live.ended(heappop(self._ends)[1])
            self._decide(now)
            return 1
        return 0

    def _coming(self, now: int) -> Iterator[int]:
        while self._next < len(self._jobs) and self._jobs[self._next].submitted <= now:
            yield self._next
            self._next += 1

    def _submit(self, number: int) -> WaitingJob:
        """Submit a job."""
        job = self._jobs[number]
        choice = Choice(number, self._shapes[number], job.walltime)
        waiting = WaitingJob(
            job_id=number, user=job.user, project=job.project, queue=_QUEUE, choices=(choice,), submitted=job.submitted
        )
        self._live.submitted(waiting)
        self._new.append(number)
        self._waiting[number] = None
        return waiting

    def _decide(self, now: int) -> None:
        plan = self._plan()
        self._note_dates(plan.placements, now)
        for number in plan.start:
            del self._waiting[number]
            job, place = self._jobs[number], plan.placements[number]
            self._ran[number] = ReplayedJob(job, now, self._predicted.pop(number, None), place.resources)
            self._live.started(number)
            heappush(self._ends, (now + job.run, number))

    def _plan(self) -> Plan:
        """Decide; and where first dates are followed, see that those who are owed one have it."""
        if not self._foresee:
            return self._live.decide()
        if self._promises:
            return self._live.refresh() if self._new else self._live.decide()
        for number in islice(self._waiting, self._dates):
            if number not in self._predicted:
                return self._live.promise()
        return self._live.decide()

    def _note_dates(self, places: Mapping[int, Placement], now: int) -> None:
        """Record the first start that is predicted for each job: at its submission, or when its policy promises one."""
        predicted = self._predicted
        for number in self._new if self._promises else places:
            if number not in predicted and number in places and places[number].start > now:
                predicted[number] = places[number].start
        self._new.clear()


_QUEUE = "trace"
_WATCH_SECONDS = 3600
"""Between two looks of the server at what time brings: virtual nodes end their jobs in time."""


def identical_processors(count: int) -> ResourceTable:
    """Return a table of so many identical processors on one large node."""
    alike: dict[str, Value] = {NODE: "machine", "type": "default", "scheduler_priority": 0, "suspended_jobs": "NO"}
    return ResourceTable(tuple(range(1, count + 1)), {name: (value,) * count for name, value in alike.items()})


def full_replay(
    trace: Trace, site: ResourceTable, policy: str, *, progress: Callable[[int], None] = lambda _over: None
) -> list[ReplayedJob]:
    """Run the jobs of a trace under a policy; return what became of each that ran, in the order of submission.

    Every resource must be on a node (`processors` makes some).
    """
    with MemoryDatabase() as database:
        return _FullReplay(database, trace, site, policy).run(progress)


class _FullReplay:
    """One trace in one cluster."""

    def __init__(self, database: MemoryDatabase, trace: Trace, site: ResourceTable, policy: str) -> None:
        self._jobs, self._site = trace.jobs, site
        begin = trace.jobs[0].submitted if trace.jobs else 0
        config = Config(scheduler_job_security_time=0, watch_frequency=_WATCH_SECONDS)
        names = dict.fromkeys(str(name) for name in site.columns[NODE])
        self._cluster = SimulatedCluster(database, list(names), config, begin=begin, decided=self._note)
        self._numbers: dict[int, TraceJob] = {}
        self._predicted: dict[int, int] = {}
        database.write(lambda tx: self._furnish(tx, policy))

    def _furnish(self, tx: Tx, policy: str) -> None:
        administration.add_queue(tx, Queue(_QUEUE, 10, policy))
        existing = properties.types(tx)
        columns = {
            name: _as_here(values, existing.get(name))
            for name, values in self._site.columns.items()
            if name not in resources.KEPT
        }
        for name, values in columns.items():
            if name not in existing:
                properties.add(tx, name, str if any(isinstance(value, str) for value in values) else int)
        rows: list[dict[str, Value]] = [
            {name: values[at] for name, values in columns.items()} for at in range(len(self._site.ids))
        ]
        self._ids = dict(zip(resources.add(tx, rows, at=self._cluster.now), self._site.ids, strict=True))

    def run(self, progress: Callable[[int], None]) -> list[ReplayedJob]:
        cluster, over = self._cluster, 0
        for instant, coming in groupby(self._jobs, key=lambda job: job.submitted):
            cluster.run_to(instant - 1)
            cluster.clock.go_to(instant)
            over += self._arrive(coming)
            cluster.settle()
            progress(over)
        while not cluster.idle:
            cluster.step(cluster.next_event())
        with cluster.database.read() as tx:
            return list(self._ran(history.read_full_history(tx)))

    def _arrive(self, coming: Iterable[TraceJob]) -> int:
        new = list(coming)
        for job, past in zip(self._cluster.submit_jobs([_new(past) for past in new]), new, strict=True):
            self._numbers[job.id] = past
        return len(new)

    def _note(self, decision: Decision) -> None:
        """Record the first start that is predicted for each job."""
        for planned in decision.predictions:
            self._predicted.setdefault(planned.job_id, planned.start)

    def _ran(self, everything: history.FullHistory) -> Iterable[ReplayedJob]:
        layout = make_layout(self._site, PlanSettings().order)
        for number, past in sorted(self._numbers.items()):
            job = everything.jobs[number]
            if job.state is JobState.TERMINATED:
                held = layout.bits_of([self._ids[id_] for id_ in everything.resources[number]])
                yield ReplayedJob(past, job.start, self._predicted.get(number), held)


def _as_here(values: Sequence[Value], kind: type | None) -> Sequence[Value]:
    """Write values as our own columns hold them: traces of older databases may have a number where we have a text."""
    if kind is str:
        return [str(value) if isinstance(value, int) else value for value in values]
    if kind is not int:
        return values
    return [int(value) if isinstance(value, str) and value.isdecimal() else value for value in values]


def _new(past: TraceJob) -> new_jobs.NewJob:
    job = Job(
        id=0,
        state=JobState.WAITING,
        user=past.user,
        project=past.project,
        queue=_QUEUE,
        submitted=past.submitted,
        command=f"sleep {past.run}",
    )
    alternative = Alternative(past.shape.groups, max(past.walltime, past.run))
    return new_jobs.NewJob(job, ResourceRequest((alternative,), past.shape.where))
