"""The pass over one queue: its jobs in the order of its policy, with backfilling.

New reservations come first, then the other jobs in order. As long as the policy has dates to promise, a job gets the
earliest place that delays no job before it; after that, jobs can only start now (backfill) or wait. The caller may stop
between two jobs and continue later.

A quick pass reads the first jobs of a queue and, of each array behind those, its first member; `WaitingJob.unread`
counts the other members, and resources that they could use are kept free for them. From the first such array on, two
sets of occupancies are kept. Those of the pass occupy more than a full pass would: everything that jobs which do not
start now, read or not, could use, from their earliest start on. A copy from before occupies less than a full pass
would; there that earliest start is searched, since inside a pass free sets only shrink. So a job that finds a place now
delays no job before it, and would start in a full pass, too. Dates found this way would be too late, so none is given.
"""

import dataclasses
from functools import partial

from oarlock.model.job import Reservation
from oarlock.model.plan import Obstacle, Unplaced, union, without
from oarlock.model.snapshot import Choice, Queue, Usage, WaitingJob
from oarlock.plan import search
from oarlock.plan.pass_state import PassState, QueuePass
from oarlock.plan.placing import (
    answer_reservation,
    improve_place,
    place,
    place_before_deadline,
    place_promised,
    plan_safely,
    set_unplaced,
)
from oarlock.plan.policy.policies import Backfill, Policy, by_priority, find_policy
from oarlock.plan.policy.priority import PriorityCalculator
from oarlock.plan.rules.prerequisites import Blocked
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind
from oarlock.plan.timeline.occupancy import FOREVER, Occupation

_KEYS = -(1 << 62)  # occupations that are kept free have keys that no job has
_NO_DATE = "jobs that this pass did not look at come first"


def begin_queue(state: PassState, queue: Queue, jobs: list[WaitingJob]) -> QueuePass | None:
    """Begin the pass of a queue; None, with a reason for every job, if the queue cannot be planned."""
    policy = find_policy(queue.policy)
    if not queue.active:
        set_unplaced(state, jobs, Obstacle.QUEUE_STOPPED, f"queue `{queue.name}` is stopped")
    elif policy is None:
        unknown = f"queue `{queue.name}` has an unknown policy `{queue.policy}`"
        set_unplaced(state, jobs, Obstacle.QUEUE_STOPPED, unknown)
    elif state.available.missing_always:
        names = ", ".join(state.layout.nodes_of(state.available.missing_always)) or "a resource"
        set_unplaced(state, jobs, Obstacle.ALWAYS_ASSIGNED, f"{names}, which every job needs, is not available")
    else:
        if policy.order is by_priority:
            policy = dataclasses.replace(policy, order=PriorityCalculator(state, queue.name).order)
        queue_pass = state.queue_passes[queue.name] = _new_pass(
            state, policy, jobs, state.usage.get(queue.name, Usage())
        )
        return queue_pass
    return None


def _new_pass(state: PassState, policy: Policy, jobs: list[WaitingJob], usage: Usage) -> QueuePass:
    dated = [job for job in jobs if job.job_id in state.dated] if state.dated else []
    undated = [job for job in jobs if job.job_id not in state.dated] if dated else jobs
    chosen = policy.order(undated, usage, state.settings)
    if policy.keeps_dates and state.promised:
        place_promised(state, chosen)
    if len(chosen) < len(undated):
        among = {job.job_id for job in chosen}
        left = [job for job in undated if job.job_id not in among]
        set_unplaced(state, left, Obstacle.FAR_BACK, f"{len(chosen)} jobs of its queue come first")
    return QueuePass(
        jobs=dated + chosen if dated else chosen,
        dated=len(dated),
        dates_left=policy.reservations,
        keeps_dates=policy.keeps_dates,
        strict_order=policy.backfill is Backfill.NOBODY,
        shortest_first=policy.backfill is Backfill.SHORTEST_FIRST,
    )


def plan_next(state: PassState, queue_pass: QueuePass) -> bool:
    """Plan the next job of a queue; False if there is none."""
    if queue_pass.over:
        return False
    job = queue_pass.jobs[queue_pass.at]
    queue_pass.at += 1
    if state.before_unread is None:
        queue_pass.no_dates = queue_pass.only_starts
    _plan(state, queue_pass, job)
    if job.unread or state.before_unread is not None:
        plan_safely(state, job, partial(_keep_room, dates=not queue_pass.no_dates))
    return True


def _plan(state: PassState, queue_pass: QueuePass, job: WaitingJob) -> None:
    if job.reservation == Reservation.TO_SCHEDULE:
        plan_safely(state, job, answer_reservation)
    elif queue_pass.only_starts and queue_pass.strict_order:
        reason = f"{_before(queue_pass)}, and nobody passes; no date is promised"
        set_unplaced(state, [job], Obstacle.FAR_BACK, reason)
    elif queue_pass.only_starts:
        plan_safely(state, job, partial(start_now, otherwise=f"{_before(queue_pass)}; no date is promised"))
    elif queue_pass.dates_left is None:
        plan_safely(state, job, improve_place if queue_pass.keeps_dates else place)
    else:
        _promise(state, queue_pass, job, queue_pass.dates_left)


def _before(queue_pass: QueuePass) -> str:
    count = queue_pass.at - 1
    return f"{count} {'job' if count == 1 else 'jobs'} of its queue {'comes' if count == 1 else 'come'} first"


def _promise(state: PassState, queue_pass: QueuePass, job: WaitingJob, dates_left: int) -> None:
    """Place a job; a start later than now uses up one of the dates that the policy may promise."""
    plan_safely(state, job, _place_if_free_to_go)
    placement = state.placements.get(job.job_id)
    if placement is None or placement.start <= state.now:
        return
    queue_pass.dates_left = dates_left - 1
    queue_pass.only_starts = not queue_pass.dates_left
    if queue_pass.only_starts and queue_pass.shortest_first:
        queue_pass.sort_by_length()


def _place_if_free_to_go(state: PassState, job: WaitingJob) -> None:
    """Place a job unless it waits for other jobs: it would use up a date that another job could have."""
    if not must_wait(state, job):
        place(state, job)


def start_now(state: PassState, job: WaitingJob, *, otherwise: str) -> None:
    """Start a job now if that delays no job with a date; if it cannot, record the reason (`otherwise` by default)."""
    if must_wait(state, job):
        return
    kind = state.kind(job)
    occupancy = state.occupancies.occupancy(kind)
    free = [option for choice in job.choices if (option := search.find_now(state, occupancy, kind, choice)) is not None]
    options = [allowed for option in free if (allowed := search.restrict(state, job, kind, option)) is not None]
    if options:
        place_before_deadline(state, job, kind, occupancy, min(options, key=lambda option: option.end))
    elif broken := next((says for option in free if (says := search.quota_broken_by(state, job, kind, option))), ""):
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.QUOTA, broken)
    elif any(state.fits_empty_cluster(choice.shape) for choice in job.choices):
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, otherwise)
    else:
        state.unplaced[job.job_id] = search.why_never(state, job, kind)


def must_wait(state: PassState, job: WaitingJob) -> bool:
    """Return whether a job has to wait for dependencies or its own date; if so, record the reason."""
    earliest, now = state.earliest(job), state.now
    if isinstance(earliest, Blocked):
        state.unplaced[job.job_id] = Unplaced(job.job_id, earliest.obstacle, earliest.detail)
    elif earliest > now and earliest == job.not_before:
        reason = "it asked not to start yet; no date is promised"
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.POSTPONED, reason, job.not_before)
    elif earliest > now:
        required = max((needed.job_id for needed in job.after if needed.job_id in state.ends), default=0)
        reason = f"it waits for job {required}, which is not over; no date is promised"
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.DEPENDENCY, reason)
    else:
        return False
    return True


def _keep_room(state: PassState, job: WaitingJob, *, dates: bool) -> None:
    """Keep free what a job that does not start now, and the unread ones behind it, could use.

    Not `dates`: it is certain that jobs of its queue start now or get no place.
    """
    before = state.before_unread
    if before is None:
        before = state.before_unread = state.occupancies.copy()
    elif not _starts_now(state, job):
        _take_date_away(state, job)
    if job.unread or not _starts_now(state, job):
        _keep_free(state, job, before, dates=dates)


def _starts_now(state: PassState, job: WaitingJob) -> bool:
    """Return whether a whole pass would start a job now, too.

    With more room, one that has alternatives might choose another, and one that takes all it can get might take more.
    """
    placement = state.placements.get(job.job_id)
    if placement is None or placement.start > state.now or len(job.choices) != 1:
        return False
    return all(level.count > 0 for group in state.shapes[job.choices[0].shape].groups for level in group.levels)


def _take_date_away(state: PassState, job: WaitingJob) -> None:
    state.placements.pop(job.job_id, None)
    state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, _NO_DATE)


def _keep_free(state: PassState, job: WaitingJob, before: Occupancies, *, dates: bool) -> None:
    kind = state.kind(job)
    start = min((_earliest(state, job, kind, choice, before) for choice in job.choices), default=FOREVER)
    if start >= FOREVER or (start > state.now and not dates):
        return
    resources = union(_usable(state, choice.shape) for choice in job.choices)
    state.occupancies.settle(
        _KEYS + job.job_id, kind, Occupation(start, FOREVER, without(resources, state.available.always))
    )


def _earliest(state: PassState, job: WaitingJob, kind: OccupancyKind, choice: Choice, before: Occupancies) -> int:
    """Return when a job of this kind could start at the earliest; FOREVER if it never could."""
    if job.after or not state.fit(choice.shape).monotone:
        return state.now  # others like it may be free to go sooner, or fit where less is free
    option = search.find_earliest(state, before.occupancy(kind), job, kind, choice, job.not_before)
    return FOREVER if option is None else option.window.start


def _usable(state: PassState, shape: int) -> int:
    """Return all resources that a shape could take."""
    request = state.shapes[shape]
    return union(state.fitter.allowed(request, group) for group in request.groups)
