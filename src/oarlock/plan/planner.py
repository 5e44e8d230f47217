"""The scheduling pass: queues by priority, and in each its jobs in the order of its policy, with backfilling.

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
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from oarlock.model.job import HOLDS_RESOURCES, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Plan, Unplaced, union, without
from oarlock.model.snapshot import Choice, PlacedJob, Queue, Shape, Snapshot, Usage, WaitingJob
from oarlock.plan import actions, placing, policies
from oarlock.plan.pass_state import PassState, QueuePass, new_state
from oarlock.plan.placing import (
    answer_reservation,
    improve_place,
    place,
    place_before_deadline,
    place_promised,
    plan_safely,
    promised_placements,
    set_unplaced,
)
from oarlock.plan.policies import Backfill, Policy, by_priority, find_policy
from oarlock.plan.priority import PriorityCalculator
from oarlock.plan.rules.prerequisites import Blocked
from oarlock.plan.settings import PlanSettings
from oarlock.plan.site_plan import place_site_plan
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind
from oarlock.plan.timeline.occupancy import FOREVER, Occupation, PlanInputs

_KEYS = -(1 << 62)  # occupations that are kept free have keys that no job has
_NO_DATE = "jobs that this pass did not look at come first"


def begin_queue(state: PassState, queue: Queue, jobs: list[WaitingJob]) -> QueuePass | None:
    """Begin the pass of a queue; None, with a reason for every job, if the queue cannot be planned."""
    policy = find_policy(queue.built_in)
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
    free = [
        option for choice in job.choices if (option := placing.find_now(state, occupancy, kind, choice)) is not None
    ]
    options = [allowed for option in free if (allowed := placing.restrict(state, job, kind, option)) is not None]
    if options:
        place_before_deadline(state, job, kind, occupancy, min(options, key=lambda option: option.end))
    elif broken := next((says for option in free if (says := placing.quota_broken_by(state, job, kind, option))), ""):
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.QUOTA, broken)
    elif kind.permissive or any(state.fits_empty_cluster(choice.shape) for choice in job.choices):
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, otherwise)
    else:
        state.unplaced[job.job_id] = placing.why_never(state, job, kind)


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
    option = placing.find_earliest(state, before.occupancy(kind), job, kind, choice, job.not_before)
    return FOREVER if option is None else option.window.start


def _usable(state: PassState, shape: int) -> int:
    """Return all resources that a shape could take."""
    request = state.shapes[shape]
    return union(state.fitter.allowed(request, group) for group in request.groups)


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
    predicting = policies.predicting_queues(snapshot)
    if not predicting:
        return run_pass(begin_pass(snapshot, now=now, settings=settings), out_of_time=out_of_time, previous=previous)
    without_prediction: set[int] = set()
    rounds = _MOST_ROUNDS
    while True:
        shown = policies.with_predictions(snapshot, predicting, now=now, without_prediction=without_prediction)
        state = begin_pass(shown, now=now, settings=settings)
        plan = policies.with_full_walltimes(run_pass(state, out_of_time=out_of_time, previous=previous), snapshot)
        broken = set(policies.breaking(plan, snapshot, settings)) - without_prediction
        if not broken:
            return plan
        rounds -= 1
        without_prediction |= broken if rounds else {job.job_id for job in snapshot.waiting}


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
    by_queue = _by_queue(state)
    finished = [_plan_queue(state, queue, by_queue.pop(queue.name, []), out_of_time) for queue in state.queues]
    for name, jobs in by_queue.items():
        set_unplaced(state, jobs, Obstacle.QUEUE_STOPPED, f"there is no queue `{name}`")
    return actions.finish_plan(state, unfinished=not all(finished))


def _by_queue(state: PassState) -> dict[str, list[WaitingJob]]:
    by_queue: dict[str, list[WaitingJob]] = {}
    for job in state.waiting.values():
        by_queue.setdefault(job.queue, []).append(job)
    return by_queue


def plan_before(state: PassState, name: str) -> None:
    """Plan the queues that come before one, and the new reservations of that one."""
    by_queue = _by_queue(state)
    for queue in state.queues:
        jobs = by_queue.get(queue.name, [])
        if queue.name == name:
            _plan_queue(state, queue, [job for job in jobs if job.job_id in state.dated], never)
            return
        _plan_queue(state, queue, jobs, never)


def _plan_queue(state: PassState, queue: Queue, jobs: list[WaitingJob], out_of_time: OutOfTime) -> bool:
    """Plan one queue; False when time ran out."""
    site_plan = state.site_plans.get(queue.name) if queue.program else None
    if site_plan is None or not queue.active or state.available.missing_always:
        return _plan_built_in(state, queue, jobs, out_of_time)
    # Reservations are answered here whoever plans the queue, and before its other jobs.
    finished = _plan_built_in(state, queue, [job for job in jobs if job.job_id in state.dated], out_of_time)
    place_site_plan(state, site_plan, [job for job in jobs if job.job_id not in state.dated])
    return finished


def _plan_built_in(state: PassState, queue: Queue, jobs: list[WaitingJob], out_of_time: OutOfTime) -> bool:
    """Plan jobs of a queue by its built-in policy; False when time ran out."""
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


def needs_full_passes(state: PassState, jobs: Iterable[WaitingJob]) -> bool:
    """Return whether more than free resources decides which jobs start, so that every decision is a full pass."""
    ranked = state.settings.pack or any(queue.weighs or queue.predicts for queue in state.queues)
    return ranked or bool(state.limits) or state.containers.needed or any(map(needs_full_passes_itself, jobs))


def needs_full_passes_itself(job: WaitingJob) -> bool:
    """Return whether a job by itself requires full passes: inner jobs, containers, own dates, any state of nodes."""
    types = parse_types(job.types)
    return types.nested or types.permissive or job.not_before > 0 or job.deadline is not None


def replan(snapshot: Snapshot, inputs: PlanInputs, state: PassState, promised: Mapping[int, Placement] | None) -> Plan:
    """Run a full pass on the jobs of a state, and store the result there."""
    now, available = state.now, state.available
    asleep = tuple([sleeping for sleeping in available.asleep if sleeping[0] > now])
    seen = replace(
        snapshot,
        shapes=tuple(state.shapes),
        waiting=tuple(sorted(state.waiting.values(), key=lambda job: job.job_id)),
        placed=tuple(state.placed.values()),
        recent=state.recent,
    )
    # Promises are not verified here as in `make_plan`, so run times are predicted only where there are none.
    predicting = set() if state.accepted or state.dated or seen.windows else policies.predicting_queues(seen)
    shown = policies.with_predictions(seen, predicting, now=now) if predicting else seen
    whole = begin_pass(
        shown, now=now, settings=state.settings, inputs=inputs._replace(available=available._replace(asleep=asleep))
    )
    before = None if promised is None else Plan(now=now, ids=state.layout.ids, placements=dict(promised), unplaced={})
    plan = run_pass(whole, previous=before)
    places = policies.with_full_walltimes(plan, seen).placements if predicting else whole.placements
    state.occupancies, state.placements, state.unplaced = whole.occupancies, places, whole.unplaced
    return replace(plan, placements=places.copy(), unplaced=whole.unplaced.copy())


class RunHistory:
    """The run times of every user's last two ended jobs, by submission."""

    def __init__(self, before: Mapping[str, tuple[int, ...]]) -> None:
        self._before, self._runs = before, dict[str, list[tuple[int, int]]]()

    def ended(self, state: PassState, job: PlacedJob) -> None:
        """Record a job that has just ended."""
        if job.state in HOLDS_RESOURCES:
            runs = sorted([*self._runs.get(job.user, ()), (job.job_id, state.now - job.start)], reverse=True)[:2]
            self._runs[job.user] = runs
            state.recent[job.user] = (*(run for _, run in runs), *self._before.get(job.user, ()))[:2]
