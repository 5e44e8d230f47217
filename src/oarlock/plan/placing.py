"""Placing a job: at the earliest place that delays no job before it, at its old place, or with a reason why not.

Where promised starts are kept (policy `conservative`), promised jobs are placed before all others. On a real cluster
seconds pass between a decision and a start: a job that started two seconds late ends two seconds late, and so the next
job on its resources starts late. Promises are placed in the order of their dates, each on its own resources; where
these are not free at the date, at the first instant at which they are, so later promises shift by as much. After that
each job looks for an earlier place (`improve_place`).
"""

from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from oarlock.model.errors import OarlockError
from oarlock.model.event import Event, EventType
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Unplaced, without
from oarlock.model.snapshot import Choice, Promise, Snapshot, WaitingJob
from oarlock.plan.fit.fit import Fit
from oarlock.plan.pass_state import PassState
from oarlock.plan.rules import reservations
from oarlock.plan.rules.limits import Choose, JobLimits, PlacementOption, earliest_window, fewest
from oarlock.plan.rules.prerequisites import Blocked, container_obstacle
from oarlock.plan.rules.quotas import broken_quota
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupancy, Occupation
from oarlock.plan.timeline.timeline import FreeWindow


def find_earliest(
    state: PassState, occupancy: Occupancy, job: WaitingJob, kind: OccupancyKind, choice: Choice, earliest: int
) -> PlacementOption | None:
    """Return the earliest window for one alternative of a job; None if there is none."""
    fit, hole = state.fit(choice.shape), state.hole_length(kind, choice.walltime)
    if state.limits.restricts(kind):
        held = _job_limits(state, job, kind, choice, lambda free: state.choose_resources(kind, fit, free))
        window = _find_limited(state, occupancy, choice, fit, held, hole=hole, not_before=earliest)
    else:
        window = occupancy.find(fit, hole, earliest)
    return None if window is None else PlacementOption(choice, fit, window)


def find_now(state: PassState, occupancy: Occupancy, kind: OccupancyKind, choice: Choice) -> PlacementOption | None:
    """Return a window for one alternative that begins now, without regard to limits; None if there is none."""
    fit = state.fit(choice.shape)
    window = occupancy.find_now(fit, state.hole_length(kind, choice.walltime))
    return None if window is None else PlacementOption(choice, fit, window)


def restrict(state: PassState, job: WaitingJob, kind: OccupancyKind, option: PlacementOption) -> PlacementOption | None:
    """Return an option that begins now, restricted to what the limits allow; None if they forbid it."""
    if not state.limits.restricts(kind):
        return option
    fit, start = option.fit, option.window.start
    held = _option_limits(state, job, kind, option)
    left = held.free(state.fitter, fit, start, option.window.free)
    if not fit.fits(left) or not held.allow(start, held.choose(left)):
        return None
    return replace(option, window=FreeWindow(start, left))


def quota_broken_by(state: PassState, job: WaitingJob, kind: OccupancyKind, option: PlacementOption) -> str:
    """Describe the quota that keeps a job from a free window; an empty text if none does."""
    held = _option_limits(state, job, kind, option)
    return held.broken(option.window.start, held.choose(option.window.free))


def quota_broken_now(state: PassState, job: WaitingJob, kind: OccupancyKind, choice: Choice, free: int) -> str:
    """Describe the quota that keeps a job from starting now, on `free` or with the least resources it needs."""
    quotas = state.limits.quotas
    if quotas is None:
        return ""
    fit = state.fit(choice.shape)
    held = _job_limits(state, job, kind, choice, lambda free: state.choose_resources(kind, fit, free))
    use = held.use(held.choose(free)) if fit.fits(free) else held.use_of(_fewest(state, choice))
    with quotas.without(job.job_id):
        return broken_quota(held.limits, state.now, held.length, use)


def place_reservation(state: PassState, job: WaitingJob, kind: OccupancyKind) -> Placement | Unplaced:
    """Place a new reservation at its date, or explain why it is refused."""
    choice = job.choices[0]
    blocked = None if kind.container is None else container_obstacle(state.containers, kind.container)
    if blocked is not None:
        return Unplaced(job.job_id, blocked.obstacle, blocked.detail)
    fit = state.fit(choice.shape) if kind.permissive else _reservation_fit(state, choice.shape)
    security_time = state.settings.security_time
    occupancy = state.occupancies.occupancy(kind)
    choose = partial(state.choose_resources, kind, fit) if kind.permissive else fit.take
    held = _job_limits(state, job, kind, choice, choose)
    start = max(job.start, state.now)
    windows = state.limits.named(start, start + choice.walltime + security_time)

    def later(hole: int, begin: int) -> FreeWindow | None:
        return _find_limited(state, occupancy, choice, fit, held, hole=hole, not_before=begin)

    return reservations.place_reservation(
        job,
        fit,
        occupancy,
        held,
        later,
        now=state.now,
        security_time=security_time,
        conflict=f"the date is taken ({windows})" if windows else "the date is taken",
    )


def why_never(state: PassState, job: WaitingJob, kind: OccupancyKind) -> Unplaced:
    """Explain why a job never gets a place: it exceeds the cluster, the available part of it, or a limit."""
    fits = [state.fit(choice.shape) for choice in job.choices]
    if not any(fit.fits(state.units(fit, state.available.existing)) for fit in fits):
        return Unplaced(job.job_id, Obstacle.TOO_BIG, "the cluster never has what it asks for, even empty")
    if kind.container is not None:
        return Unplaced(job.job_id, Obstacle.CONTAINER, "its container never has what it asks for, for so long")
    broken = _quota_broken_ever(state, job, kind) if state.limits.quotas is not None else ""
    if broken:
        return Unplaced(job.job_id, Obstacle.QUOTA, broken)
    return Unplaced(job.job_id, Obstacle.UNAVAILABLE, "too many of the resources it could use are away")


def _quota_broken_ever(state: PassState, job: WaitingJob, kind: OccupancyKind) -> str:
    """Describe the quota that keeps a job from the first windows of its alternatives."""
    occupancy = state.occupancies.occupancy(kind)
    for choice in job.choices:
        fit = state.fit(choice.shape)
        window = occupancy.find(fit, state.hole_length(kind, choice.walltime))
        if window is not None:
            broken = quota_broken_by(state, job, kind, PlacementOption(choice, fit, window))
            if broken:
                return broken
    return ""


def _option_limits(state: PassState, job: WaitingJob, kind: OccupancyKind, option: PlacementOption) -> JobLimits:
    fit = option.fit
    return _job_limits(state, job, kind, option.choice, lambda free: state.choose_resources(kind, fit, free))


def _job_limits(state: PassState, job: WaitingJob, kind: OccupancyKind, choice: Choice, choose: Choose) -> JobLimits:
    return state.limits.of_job(job, kind, choice, length=state.duration(kind, choice.walltime), choose=choose)


def _find_limited(
    state: PassState, occupancy: Occupancy, choice: Choice, fit: Fit, held: JobLimits, *, hole: int, not_before: int
) -> FreeWindow | None:
    """Return the earliest window within given limits; None if there is none."""
    if not held.limits and not held.windows:
        return occupancy.find(fit, hole, not_before)
    least = _fewest(state, choice)
    return earliest_window(state.fitter, occupancy, fit, held, hole=hole, not_before=not_before, fewest=least)


def _fewest(state: PassState, choice: Choice) -> int:
    """Return a lower bound on the resources that an alternative takes, as quotas count them."""
    cached = state.fewest.get(choice.shape)
    if cached is None:
        shape, fit = state.shapes[choice.shape], state.fit(choice.shape)
        cached = state.fewest[choice.shape] = fewest(state.fitter, shape, fit, state.limits.counted)
    return cached


def _reservation_fit(state: PassState, shape: int) -> Fit:
    """Return the reservation fit of a shape; one object for all, since search bounds are kept by fit."""
    cached = state.reservation_fits.get(shape)
    if cached is None:
        fit = state.fit(shape)
        ready = state.units(fit, state.available.ready)
        cached = state.reservation_fits[shape] = reservations.ready_first(fit, ready)
    return cached


_LATE = "it could not be over by its deadline"
_EXPIRED = "it could not start by its expiry date"

PlanningStep = Callable[[PassState, WaitingJob], None]
"""One step of planning a job; what it decides is written into the state."""


def plan_safely(state: PassState, job: WaitingJob, step: PlanningStep) -> None:
    """Run one planning step of a job; an exception sets this job aside and leaves the others alone."""
    try:
        step(state, job)
    except Exception as error:  # noqa: BLE001
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.SET_ASIDE, f"planning it failed: {error}")
        message = f"planning job {job.job_id} failed: {error}"
        state.events.append(Event(EventType.SCHEDULER_JOB_SET_ASIDE, state.now, message, job.job_id))


def set_unplaced(state: PassState, jobs: Iterable[WaitingJob], obstacle: Obstacle, detail: str) -> None:
    """Record why jobs have no place."""
    for job in jobs:
        state.unplaced[job.job_id] = Unplaced(job.job_id, obstacle, detail)


def place(state: PassState, job: WaitingJob, held: Placement | None = None) -> None:
    """Place a job at the earliest start that delays no job before it, or record why there is none.

    The place that it `held` is given up only for one that is at least as good.
    """
    kind = state.kind(job)
    occupancy = state.occupancies.occupancy(kind)
    earliest = state.earliest(job) if job.after or job.types else job.not_before
    if isinstance(earliest, Blocked):
        state.unplaced[job.job_id] = Unplaced(job.job_id, earliest.obstacle, earliest.detail)
        return
    if job.job_id in state.carried and keep_place(state, job, state.carried[job.job_id], kind, earliest):
        return
    best: PlacementOption | None = None
    for choice in job.choices:
        option = find_earliest(state, occupancy, job, kind, choice, earliest)
        if option is not None and (best is None or option.end < best.end):
            best = option
    if held is not None and (best is None or best.end > held.stop) and keep_place(state, job, held, kind, earliest):
        return
    if best is not None:
        place_before_deadline(state, job, kind, occupancy, best)
    else:
        state.unplaced[job.job_id] = why_never(state, job, kind)


def place_before_deadline(
    state: PassState, job: WaitingJob, kind: OccupancyKind, occupancy: Occupancy, option: PlacementOption
) -> None:
    """Place a job in a window that was found, unless it would end after its deadline."""
    if job.deadline is not None and option.end > job.deadline:
        late = _LATE if parse_types(job.types).expire is None else _EXPIRED
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.DEADLINE, late, option.window.start)
        return
    start, walltime = option.window.start, option.choice.walltime
    taken = state.choose_resources(kind, option.fit, option.window.free)
    placement = Placement(job.job_id, option.choice.moldable_id, start, start + walltime, taken)
    _assign(state, job, placement, kind, occupancy)


def keep_place(state: PassState, job: WaitingJob, old: Placement, kind: OccupancyKind, earliest: int) -> bool:
    """Keep the place of an earlier pass if it is still free; return whether it is."""
    occupancy = state.occupancies.occupancy(kind)
    resources = without(old.resources, state.available.always)
    length = state.duration(kind, old.stop - old.start)
    stop = old.start + length
    if old.start < max(state.now, earliest) or not occupancy.has_free(Occupation(old.start, stop, resources)):
        return False
    if not state.limits.allow(job, kind, old, resources, length=length):
        return False
    _assign(state, job, Placement(job.job_id, old.moldable_id, old.start, old.stop, resources), kind, occupancy)
    return True


def improve_place(state: PassState, job: WaitingJob) -> None:
    """Move a job to the earliest place while all others keep theirs; its own resources count as free.

    Its present place may be shorter than `minimum_hole`, so a search alone would not find it again.
    """
    held = state.placements.pop(job.job_id, None)
    if held is not None:
        state.occupancies.remove(job.job_id)
        state.limits.forget(job.job_id)
        _refresh_container(state, state.containers.withdraw(job) if job.types else None)
        del state.ends[job.job_id]
        if job.deadline is not None and held.stop > job.deadline:
            held = None
    place(state, job, held)


def answer_reservation(state: PassState, job: WaitingJob) -> None:
    """Accept a new reservation at its date, or refuse it."""
    kind = state.kind(job)
    answer = place_reservation(state, job, kind)
    state.answered.append(job.job_id)
    if isinstance(answer, Placement):
        _assign(state, job, answer, kind._replace(reservation=False), None)
    else:
        state.unplaced[job.job_id] = answer


def _assign(
    state: PassState, job: WaitingJob, placement: Placement, kind: OccupancyKind, occupancy: Occupancy | None
) -> None:
    """Write a placement into the state; in the `occupancy` where it was found its resources are surely free."""
    length = state.duration(kind, placement.stop - placement.start)
    occupation = Occupation(placement.start, placement.start + length, placement.resources)
    if always := state.available.always:  # every job gets these, so they are not occupied
        occupation = replace(occupation, resources=without(placement.resources, always))
        placement = replace(placement, resources=placement.resources | always)
    state.occupancies.settle(job.job_id, kind, occupation, found_in=occupancy)
    state.limits.count(job, kind, occupation, placement.stop - placement.start)
    if job.types:
        _refresh_container(state, state.containers.open(job, replace(occupation, stop=placement.stop)))
    state.ends[job.job_id] = placement.stop
    state.placements[job.job_id] = placement


def _refresh_container(state: PassState, container: str | None) -> None:
    """Rebuild on demand what inner jobs of a container see, after the container grew or shrank."""
    if container is not None:
        state.occupancies.forget_container(container)


def promised_placements(state: PassState, snapshot: Snapshot) -> dict[int, Placement]:
    """Return the promised placements of waiting jobs, as far as they still match the requests."""
    if not snapshot.promised:
        return {}
    return {
        job.job_id: placement
        for job in snapshot.waiting
        if (promise := snapshot.promised.get(job.job_id)) is not None
        and (placement := _promised(state, job, promise)) is not None
    }


def _promised(state: PassState, job: WaitingJob, promise: Promise) -> Placement | None:
    """Return a promised placement; None if resources are gone or their properties have changed."""
    choice = next((choice for choice in job.choices if choice.moldable_id == promise.moldable_id), None)
    resources = state.layout.bits_of(promise.resources)
    if choice is None or resources.bit_count() < len(promise.resources):
        return None
    try:
        fit = state.fit(choice.shape)
    except (OarlockError, ValueError):
        return None  # it is set aside when it is planned
    if not fit.fits(state.units(fit, resources)):
        return None
    return Placement(job.job_id, choice.moldable_id, promise.start, promise.start + choice.walltime, resources)


def place_promised(state: PassState, jobs: Iterable[WaitingJob]) -> None:
    """Place jobs where they were promised, the earliest promised start first."""
    promised = state.promised
    for job in sorted([job for job in jobs if job.job_id in promised], key=lambda job: promised[job.job_id].start):
        plan_safely(state, job, _hold)


def _hold(state: PassState, job: WaitingJob) -> None:
    """Place a job as promised, or on the same resources as soon afterwards as they are free."""
    earliest, old, kind = state.earliest(job), state.promised[job.job_id], state.kind(job)
    if isinstance(earliest, Blocked) or keep_place(state, job, old, kind, earliest):
        return
    length = state.duration(kind, old.stop - old.start)
    resources = without(old.resources, state.available.always)
    window = state.occupancies.occupancy(kind).find_same(resources, length, max(state.now, earliest, old.start))
    if window is not None:
        later = replace(old, start=window.start, stop=window.start + old.stop - old.start)
        keep_place(state, job, later, kind, earliest)
