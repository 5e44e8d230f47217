"""The plan cache: an incremental plan kept between passes, updated with the differences to each new snapshot.

Only snapshots are trusted, so a decision that was not carried out, or a killed job, does no harm. A pass starts from
scratch when resources, queues or settings have changed or the clock went back. Where limits, priorities or kept
dates make every pass a full one anyway, no plan is cached.

Starts in a very long queue are found without a place for each job: of those that ask for the same, few are planned.
The first of them is planned as it is, and one stands for the others: it is as short as the shortest, waits where the
second does, and whatever it could use is kept free from its earliest start on (`WaitingJob.unread`, see `planner`).
So whoever starts delays no job before it, and would start in a full pass, too. Others may start there as well: when
nobody does here, a full pass has to look.
"""

from collections.abc import Hashable

from msgspec.structs import replace

from oarlock.model.job import Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Plan
from oarlock.model.snapshot import Choice, Queue, ResourceTable, Snapshot, WaitingJob
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.planner import OutOfTime, make_plan, needs_full_passes_itself, never
from oarlock.plan.settings import PlanSettings


def is_cacheable(snapshot: Snapshot, settings: PlanSettings) -> bool:
    """Return whether free resources alone decide which jobs start; elsewhere a cached plan would save nothing."""
    limited = settings.pack or snapshot.quotas or snapshot.quota_spans or snapshot.windows
    if limited or any(map(_needs_full_passes, snapshot.queues)):
        return False
    return not any(map(needs_full_passes_itself, snapshot.waiting)) and not any(
        parse_types(job.types).is_container for job in snapshot.placed
    )


def _needs_full_passes(queue: Queue) -> bool:
    return bool(queue.weighs or queue.predicts or queue.keeps_dates or queue.program)


class PlanCache:
    """Plans of one cluster, updated from snapshot to snapshot."""

    def __init__(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._plan: IncrementalPlan | None = None
        self._resources: ResourceTable | None = None
        self._queues: tuple[Queue, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the next pass starts from scratch."""
        return self._plan is None

    def forget(self) -> None:
        """Drop the cached plan; the next pass starts from scratch."""
        self._plan = None

    def starts(self, snapshot: Snapshot, *, now: int) -> Plan:
        """Return the plan of a pass that stops when no further job can start now; later dates may be missing."""
        return self._up_to_date(snapshot, now).decide()

    def whole(self, snapshot: Snapshot, *, now: int, out_of_time: OutOfTime = never) -> Plan:
        """Return the plan of a full pass."""
        return self._up_to_date(snapshot, now).refresh(out_of_time)

    def _up_to_date(self, snapshot: Snapshot, now: int) -> IncrementalPlan:
        plan, self._plan = self._plan, None  # if anything fails, the next pass starts from scratch
        if plan is None or not self._is_of_the_same(plan, snapshot, now):
            plan = IncrementalPlan(snapshot, now=now, settings=self._settings)
            self._resources, self._queues = snapshot.resources, snapshot.queues
        else:
            _follow(plan, snapshot, now)
        self._plan = plan
        return plan

    def _is_of_the_same(self, plan: IncrementalPlan, snapshot: Snapshot, now: int) -> bool:
        """Return whether nothing but jobs, and time, can have changed."""
        shapes = plan.state.shapes
        return (
            now >= plan.now
            and snapshot.queues == self._queues
            and list(snapshot.shapes[: len(shapes)]) == shapes
            and (snapshot.resources is self._resources or snapshot.resources == self._resources)
        )


def _follow(plan: IncrementalPlan, snapshot: Snapshot, now: int) -> None:
    """Apply the differences between a plan and a new snapshot as events."""
    state = plan.state
    plan.advance(now)
    plan.used(snapshot.usage)
    state.shapes += snapshot.shapes[len(state.shapes) :]
    waiting = {job.job_id: job for job in snapshot.waiting}
    placed = {job.job_id: job for job in snapshot.placed}
    gone = [number for number in state.placed if number not in placed]
    gone += [number for number in state.waiting if number not in waiting and number not in placed]
    for number in gone:
        plan.ended(number)
    for number, holder in placed.items():
        if state.placed.get(number) != holder:
            plan.has_place(holder)
    for number, job in waiting.items():
        previous = state.waiting.get(number)
        if previous is None:
            plan.submitted(job)
        elif previous != job:
            plan.changed(job)


MANY = 2_000
"""Waiting jobs from which on it is worth the while."""

_LEAST_SHARE = 4  # so many jobs ask for the same on average, at least


def find_starts(snapshot: Snapshot, *, now: int, settings: PlanSettings) -> Plan | None:
    """Return a plan with jobs that start now, and nothing else to do; None where only a full pass finds some."""
    if len(snapshot.waiting) < MANY or not _can_be_thinned(snapshot, settings):
        return None
    thinned = thin(snapshot)
    if len(thinned.waiting) * _LEAST_SHARE > len(snapshot.waiting):
        return None
    plan = make_plan(thinned, now=now, settings=settings)
    starts = _without_stand_ins(plan, thinned)
    if not starts or plan.kill:
        return None  # what has to end for a job must not end for one that only stands for others
    return replace(plan, start=starts, wake=(), orphans=(), events=(), unplaced={})


def _can_be_thinned(snapshot: Snapshot, settings: PlanSettings) -> bool:
    """Return whether free resources alone decide, in a fixed order, and no reservation asks for a date."""
    limited = settings.depth is not None or snapshot.quotas or snapshot.quota_spans
    return (
        not limited
        and all(queue.in_order for queue in snapshot.queues)
        and not any(job.reservation == Reservation.TO_SCHEDULE for job in snapshot.waiting)
    )


def _without_stand_ins(plan: Plan, thinned: Snapshot) -> tuple[int, ...]:
    stand_ins = {job.job_id for job in thinned.waiting if job.unread}
    return tuple(number for number in plan.start if number not in stand_ins)


def thin(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the first of the jobs that ask for the same, and one that stands for the others."""
    groups: dict[Hashable, list[WaitingJob]] = {}
    for job in snapshot.waiting:
        groups.setdefault(_request(job), []).append(job)
    waiting = [kept for jobs in groups.values() for kept in _first_and_stand_in(jobs)]
    return replace(snapshot, waiting=tuple(sorted(waiting, key=lambda job: job.job_id)))


def _request(job: WaitingJob) -> Hashable:
    """Return what jobs have in common that could take each other's place, but for how long they last."""
    if job.reservation != Reservation.NONE:
        return job.job_id
    choices = job.choices
    shapes = choices[0].shape if len(choices) == 1 else tuple([choice.shape for choice in choices])
    name = job.name if job.types else None  # only types look at it
    return job.queue, job.user, shapes, job.types, name, job.after, job.not_before, job.deadline


def _first_and_stand_in(jobs: list[WaitingJob]) -> list[WaitingJob]:
    if len(jobs) == 1:
        return jobs
    first, second, *_ = jobs
    others = jobs[1:]
    shortest = tuple([_shortest(others, at, choice) for at, choice in enumerate(second.choices)])
    return [first, replace(second, choices=shortest, unread=len(others))]


def _shortest(jobs: list[WaitingJob], at: int, choice: Choice) -> Choice:
    return replace(choice, walltime=min([job.choices[at].walltime for job in jobs]))
