"""The search for a job's place: the earliest free window, a start now, a reservation's date; within all limits."""

from msgspec.structs import replace

from oarlock.model.plan import Obstacle, Placement, Unplaced
from oarlock.model.snapshot import Choice, WaitingJob
from oarlock.plan.fit.fit import Fit
from oarlock.plan.pass_state import PassState
from oarlock.plan.rules import reservations
from oarlock.plan.rules.limits import Choose, JobLimits, PlacementOption, earliest_window, fewest
from oarlock.plan.rules.quotas import broken_quota
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupancy
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
    blocked = None if kind.container is None else state.containers.blocked(kind.container)
    if blocked is not None:
        return Unplaced(job.job_id, blocked.obstacle, blocked.detail)
    fit, security_time = _reservation_fit(state, choice.shape), state.settings.security_time
    occupancy = state.occupancies.occupancy(kind)
    held = _job_limits(state, job, kind, choice, fit.take)
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
