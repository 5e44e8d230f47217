"""The scheduling pass: queues by priority, each job at the earliest place that delays no job before it."""

from collections.abc import Callable

from oarlock.model.job import Reservation
from oarlock.model.plan import Obstacle, Placement, Plan, Unplaced
from oarlock.model.snapshot import Queue, Shape, Snapshot, WaitingJob
from oarlock.plan import actions
from oarlock.plan.inputs import PlanInputs
from oarlock.plan.pass_state import PassState, new_state
from oarlock.plan.placing import promised_placements, set_unplaced
from oarlock.plan.policy import predict
from oarlock.plan.queue_pass import begin_queue, plan_next
from oarlock.plan.settings import PlanSettings

OutOfTime = Callable[[], bool]

_RAN_OUT = "the scheduler ran out of time before it"
_MOST_ROUNDS = 4
"""Passes in which jobs that would break a promise are planned with what they ask for; after that, all are."""


def never() -> bool:
    """Return False: for passes without a time limit."""
    return False


def make_plan(
    snapshot: Snapshot,
    *,
    now: int,
    settings: PlanSettings | None = None,
    out_of_time: OutOfTime = never,
    previous: Plan | None = None,
) -> Plan:
    """Plan all jobs, with predicted run times in the queues whose policy has them.

    Dates of a `previous` plan are kept where the policy keeps them; all if it was unfinished.
    """
    settings = settings or PlanSettings()
    predicting = predict.predicting_queues(snapshot)
    if not predicting:
        return run_pass(begin_pass(snapshot, now=now, settings=settings), out_of_time=out_of_time, previous=previous)
    as_asked: set[int] = set()
    rounds = _MOST_ROUNDS
    while True:
        shown = predict.with_predictions(snapshot, predicting, now=now, as_asked=as_asked)
        state = begin_pass(shown, now=now, settings=settings)
        plan = predict.with_full_walltimes(run_pass(state, out_of_time=out_of_time, previous=previous), snapshot)
        broken = set(predict.breaking(plan, snapshot, settings)) - as_asked
        if not broken:
            return plan
        rounds -= 1
        as_asked |= broken if rounds else {job.job_id for job in snapshot.waiting}


def begin_pass(snapshot: Snapshot, *, now: int, settings: PlanSettings, inputs: PlanInputs | None = None) -> PassState:
    """Return the state of a pass before any waiting job is placed."""
    state = new_state(snapshot, now=now, settings=settings, inputs=inputs)
    state.promised = promised_placements(state, snapshot)
    return state


def run_pass(state: PassState, *, out_of_time: OutOfTime = never, previous: Plan | None = None) -> Plan:
    """Place every waiting job, or record the reason why it has no place."""
    if previous is not None and previous.ids == state.layout.ids:
        state.promised = previous.placements
        state.carried = previous.placements if previous.unfinished else {}
    by_queue: dict[str, list[WaitingJob]] = {}
    for job in state.waiting.values():
        by_queue.setdefault(job.queue, []).append(job)
    finished = [_plan_queue(state, queue, by_queue.pop(queue.name, []), out_of_time) for queue in state.queues]
    for name, jobs in by_queue.items():
        set_unplaced(state, jobs, Obstacle.QUEUE_STOPPED, f"there is no queue `{name}`")
    return actions.finish_plan(state, unfinished=not all(finished))


def _plan_queue(state: PassState, queue: Queue, jobs: list[WaitingJob], out_of_time: OutOfTime) -> bool:
    """Plan one queue; False when time ran out."""
    queue_pass = begin_queue(state, queue, jobs)
    if queue_pass is None:
        return True
    if jobs and out_of_time():  # reservations are not answered before jobs of higher queues are placed
        set_unplaced(state, jobs, Obstacle.OUT_OF_TIME, _RAN_OUT)
        return False
    while queue_pass.at < queue_pass.dated or queue_pass.over or not out_of_time():
        if not plan_next(state, queue_pass):
            return True
    set_unplaced(state, queue_pass.left, Obstacle.OUT_OF_TIME, _RAN_OUT)
    return False


def add_job(state: PassState, job: WaitingJob) -> Placement | Unplaced:
    """Place a new job after all others, in a finished pass; return its placement, or why it has none."""
    state.waiting[job.job_id] = job
    if job.reservation == Reservation.TO_SCHEDULE:
        state.dated.add(job.job_id)
    if job.deadline is not None:
        state.deadlines.append(job.job_id)
    queue = next((queue for queue in state.queues if queue.name == job.queue), None)
    queue_pass = state.queue_passes.get(job.queue)
    if queue is None:
        set_unplaced(state, [job], Obstacle.QUEUE_STOPPED, f"there is no queue `{job.queue}`")
    elif queue_pass is None or job.job_id in state.dated:
        _plan_queue(state, queue, [job], never)
    else:
        queue_pass.append(job)
        while plan_next(state, queue_pass):
            pass
    return state.placements.get(job.job_id) or state.unplaced[job.job_id]


def add_shape(state: PassState, shape: Shape) -> int:
    """Register a shape that no job has requested yet, and return its index."""
    state.shapes.append(shape)
    return len(state.shapes) - 1
