"""What keeps a job from starting: unavailable resources, its own date, a quota, its container, maintenance."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from oarlock.model.condition import And, Column, Compare, Condition, Literal
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.job_type import parse_types
from oarlock.model.nodeset import fold
from oarlock.model.plan import Obstacle, Placement, union, without
from oarlock.model.resource import NextState, ResourceState, Value
from oarlock.model.snapshot import Choice, PlacedJob, Shape, WaitingJob
from oarlock.model.submission import ResourceGroup
from oarlock.plan import placing
from oarlock.plan.pass_state import PassState
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupation

_NOT_DRAINED = Compare("=", Column("drain"), Literal("NO"))
"""What the shipped rule adds to every request, so that drained nodes do not match it."""


def count_units(state: PassState, shape: Shape) -> tuple[int, int]:
    """Count the units that match a request, and those usable now. A drained node matches as well."""
    fitter, windows = state.fitter, state.limits.windows
    fit, strict = fitter.compile(_with_drained(shape)), fitter.compile(shape)
    closed = union(window.resources for window in windows if window.start <= state.now < window.stop)
    usable = strict.offers(state.units(strict, without(state.available.plannable, closed)))
    return fit.offers(state.units(fit, state.available.existing)), usable


def unusable_units(state: PassState, shape: Shape) -> str:
    """Name the units that match a request and cannot be used now: `2 Suspected, 1 drained`."""
    reasons = list(_reasons(state))
    if not reasons:
        return ""
    fit, existing = state.fitter.compile(_with_drained(shape)), state.available.existing
    total = fit.offers(state.units(fit, existing))
    lost = ((why, total - fit.offers(state.units(fit, without(existing, bits)))) for why, bits in reasons)
    return ", ".join(f"{count} {why}" for why, count in lost if count > 0)


def unavailable_nodes(state: PassState) -> str:
    """Name all nodes that cannot be used now: `n[02-03] Suspected, n04 drained`."""
    named = ((why, fold(state.layout.nodes_of(bits))) for why, bits in _reasons(state))
    return ", ".join(f"{names} {why}" for why, names in named if names)


def overdue_reservation(state: PassState, job: PlacedJob, at: Callable[[int], str]) -> str:
    """Describe what an accepted reservation waits for after its date has come."""
    resources = state.layout.bits_of(job.resources)
    absent = [f"{names} ({why})" for why, names in _where(state, resources)]
    if gone := len(job.resources) - resources.bit_count():
        absent.append(f"{gone} that are missing")
    if not absent:
        return "its date has come, and it is about to start"
    says = f"its date has come; of its {len(job.resources)} resources it waits for {', '.join(absent)}"
    patience = job.start + state.settings.reservation_patience
    if resources & state.available.ready and patience > state.now and not _overstaying(state, job, resources):
        return f"{says}; it starts without them {at(patience)}"
    return f"{says}; its time ends {at(job.stop)}"


def _where(state: PassState, resources: int) -> Iterator[tuple[str, str]]:
    """Yield why resources are unavailable, and the nodes they are on."""
    for why, bits in _reasons(state):
        if bits & resources:
            yield why, fold(state.layout.nodes_of(bits & resources)) or "some"
    for job_id, held in _overstaying_jobs(state, resources):
        yield f"job {job_id} is past its end and still there", fold(state.layout.nodes_of(held)) or "some"


def _overstaying(state: PassState, job: PlacedJob, resources: int) -> bool:
    return any(other != job.job_id for other, _ in _overstaying_jobs(state, resources))


def _overstaying_jobs(state: PassState, resources: int) -> Iterator[tuple[int, int]]:
    for job_id, job in state.placed.items():
        held = state.layout.bits_of(job.resources) & resources
        if held and job.state in HOLDS_RESOURCES and not parse_types(job.types).besteffort:
            yield job_id, held


def _reasons(state: PassState) -> Iterator[tuple[str, int]]:
    """Yield every reason for unavailable resources, with these resources; each resource under one reason."""
    layout = state.layout
    current, following, drain = (_by_value(state, column) for column in ("state", "next_state", "drain"))
    left = layout.everything
    by_state = (
        ("Suspected", current.get(ResourceState.SUSPECTED, 0) | following.get(NextState.SUSPECTED, 0)),
        ("Dead", current.get(ResourceState.DEAD, 0) | following.get(NextState.DEAD, 0)),
        ("Absent", without(current.get(ResourceState.ABSENT, 0), state.available.plannable)
         | following.get(NextState.ABSENT, 0)),
        ("drained", drain.get("YES", 0)),
    )  # fmt: skip
    windows = [window for window in state.limits.windows if window.start <= state.now < window.stop]
    in_windows = ((_within(state, window), window.resources) for window in windows)
    for why, bits in (*by_state, *in_windows):
        if bits & left:
            yield why, bits & left
        left = without(left, bits)


def _within(state: PassState, window: Occupation) -> str:
    return f"{'held for' if window in state.limits.lost_jobs else 'in'} {state.limits.names[window]}"


def _by_value(state: PassState, column: str) -> dict[Value, int]:
    return state.layout.by_value(column) if column in state.layout.table.columns else {}


def _with_drained(shape: Shape) -> Shape:
    groups = tuple(ResourceGroup(group.levels, _without_drain(group.where)) for group in shape.groups)
    return Shape(groups, _without_drain(shape.where))


def _without_drain(condition: Condition | None) -> Condition | None:
    if condition == _NOT_DRAINED:
        return None
    if isinstance(condition, And):
        parts = tuple(part for part in map(_without_drain, condition.parts) if part is not None)
        return parts[0] if len(parts) == 1 else And(parts) if parts else None
    return condition


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
    quota = placing.quota_broken_now(state, job, kind, choice, free)
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
