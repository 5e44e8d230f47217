"""Why a job with a later place does not start now: its own date, a quota, its container, maintenance."""

from collections.abc import Callable
from typing import NamedTuple

from oarlock.model.nodeset import fold
from oarlock.model.plan import Obstacle, Placement
from oarlock.model.snapshot import Choice, WaitingJob
from oarlock.plan import search
from oarlock.plan.pass_state import PassState
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupation


class HeldBack(NamedTuple):
    """The limit that delays a job, and the sentence about it."""

    obstacle: Obstacle
    says: str


def held_back(
    state: PassState,
    job: WaitingJob,
    kind: OccupancyKind,
    choice: Choice,
    placement: Placement,
    free: int,
    at: Callable[[int], str],
) -> HeldBack | None:
    """Return the limit that keeps a job from starting now; None if none does.

    `free` is what it could have now (nodes, if it requests nodes), without regard to its own planned occupation.
    """
    if placement.start == job.not_before > state.now:
        return HeldBack(Obstacle.BUSY, f"asked to start {at(job.not_before)} at the earliest")
    container = _container(state, kind, at)
    if container:
        return HeldBack(Obstacle.CONTAINER, container)
    quota = search.quota_broken_now(state, job, kind, choice, free)
    if quota:
        return HeldBack(Obstacle.QUOTA, f"{quota}; it starts {at(placement.start)}")
    window = _window(state, job.job_id, kind, choice, free, at)
    return HeldBack(Obstacle.MAINTENANCE, f"{window}; it starts {at(placement.start)}") if window else None


def ending_at(state: PassState, placement: Placement) -> str:
    """Name the windows on a placement's resources that end at its start."""
    windows = [
        window
        for window in state.limits.windows
        if window.stop == placement.start and window.resources & placement.resources
    ]
    return " and ".join(state.limits.names[window] for window in windows)


def _container(state: PassState, kind: OccupancyKind, at: Callable[[int], str]) -> str:
    if kind.container is None or state.containers.running(kind.container):
        return ""
    job_id, start = state.containers.next(kind.container)
    comes = f"starts {at(start)}" if start > state.now else "does not run yet"
    return f"belongs into a container, job {job_id}, which {comes}"


def _window(
    state: PassState, mine: int, kind: OccupancyKind, choice: Choice, free: int, at: Callable[[int], str]
) -> str:
    """Name the windows without which the job could start now."""
    fit, now = state.fit(choice.shape), state.now
    lasting = max(state.hole_length(kind, choice.walltime), choice.walltime + state.settings.security_time)
    near = [window for window in state.limits.windows if window.start < now + lasting]
    if not near:
        return ""
    occupations = [
        occupation
        for job_id, occupation in state.occupancies.occupancy(kind).occupations.items()
        if job_id > 0 and job_id != mine
    ]
    busy = union(
        occupation.resources for occupation in occupations if occupation.start < now + lasting and now < occupation.stop
    )
    container = state.available.ready if kind.container is None else state.containers.running(kind.container)
    idle = without(state.available.ready & container, busy)
    if not fit.fits(free | state.units(fit, idle)):
        return ""
    return " and ".join(_named(state, window, idle, at) for window in near if window.resources & idle)


def _named(state: PassState, window: Occupation, idle: int, at: Callable[[int], str]) -> str:
    where = fold(state.layout.nodes_of(window.resources & idle)) or "resources"
    name = state.limits.names[window]
    if window in state.limits.lost_jobs:
        return f"{where} is held for {name} until that ends; an administrator can end it with `oarlock unknown end`"
    if window.start <= state.now:
        return f"{name} keeps {where} until it ends {at(window.stop)}"
    return f"{name} of {where} begins {at(window.start)}, before it would be over"
