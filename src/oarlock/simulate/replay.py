"""Replay a trace: its jobs arrive as they did, the real planner decides, and a simulated clock advances.

No policy is implemented here, only the order of events. `EventOrder.OURS`: at one instant jobs end first, then new
ones arrive, then one decision is made. `EventOrder.REFERENCE`, as in the reference simulator: new jobs arrive first;
there is one decision per event, and for a new job only if it fits into the free resources or is owed a date; a job
whose requested end has come holds nothing any more.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from oarlock.model.plan import Placement, Plan
from oarlock.model.snapshot import Choice, Queue, Shape, Snapshot, WaitingJob
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.policy.policies import find_policy
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancy import FOREVER
from oarlock.simulate.platform import Platform
from oarlock.simulate.trace import Trace, TraceJob

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
