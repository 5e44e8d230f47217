"""The plan cache: an incremental plan kept between passes, updated with the differences to each new snapshot.

Only snapshots are trusted, so a decision that was not carried out, or a killed job, does no harm. A pass starts from
scratch when resources, queues or settings have changed or the clock went back. Where limits, priorities or kept
dates make every pass a full one anyway, no plan is cached.
"""

from oarlock.model.job_type import parse_types
from oarlock.model.plan import Plan
from oarlock.model.snapshot import Queue, ResourceTable, Snapshot
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.planner import OutOfTime, needs_full_passes_itself, never
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
