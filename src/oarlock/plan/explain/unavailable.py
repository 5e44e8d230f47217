"""Which resources of a request are unavailable now, and why: Suspected, drained, Absent, in maintenance, gone."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from oarlock.model.condition import And, Column, Compare, Condition, Literal
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.job_type import parse_types
from oarlock.model.nodeset import fold
from oarlock.model.request import ResourceGroup
from oarlock.model.resource import NextState, ResourceState, Value
from oarlock.model.snapshot import PlacedJob, Shape
from oarlock.plan.sets.bitset import union, without

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner
    from oarlock.plan.timeline.occupancy import Occupation

_NOT_DRAINED = Compare("=", Column("drain"), Literal("NO"))
"""What the shipped rule adds to every request, so that drained nodes do not match it."""


def counts(planner: "Planner", shape: Shape) -> tuple[int, int, str]:
    """Count the units that match a request, those usable now, and name the others: `2 Suspected, 1 drained`.

    A drained node matches as well, so that the reason names it.
    """
    fitter = planner.fitter
    fit, strict = fitter.compile(_with_drained(shape)), fitter.compile(shape)
    existing = planner.available.existing
    windows = union(window.resources for window in planner.limits.windows if window.start <= planner.now < window.stop)
    total = fit.offers(planner.units(fit, existing))
    usable = strict.offers(planner.units(strict, without(planner.available.plannable, windows)))
    lost = ((why, total - fit.offers(planner.units(fit, without(existing, bits)))) for why, bits in _reasons(planner))
    return total, usable, ", ".join(f"{count} {why}" for why, count in lost if count > 0)


def nodes(planner: "Planner") -> str:
    """Name all nodes that cannot be used now: `n[02-03] Suspected, n04 drained`."""
    named = ((why, fold(planner.layout.nodes_of(bits))) for why, bits in _reasons(planner))
    return ", ".join(f"{names} {why}" for why, names in named if names)


def overdue_reservation(planner: "Planner", job: PlacedJob, at: Callable[[int], str]) -> str:
    """Describe what an accepted reservation waits for after its date has come."""
    resources = planner.layout.bits_of(job.resources)
    absent = [f"{names} ({why})" for why, names in _where(planner, resources)]
    if gone := len(job.resources) - resources.bit_count():
        absent.append(f"{gone} that are missing")
    if not absent:
        return "its date has come, and it is about to start"
    says = f"its date has come; of its {len(job.resources)} resources it waits for {', '.join(absent)}"
    patience = job.start + planner.settings.reservation_patience
    if resources & planner.available.ready and patience > planner.now and not _overstaying(planner, job, resources):
        return f"{says}; it starts without them {at(patience)}"
    return f"{says}; its time ends {at(job.stop)}"


def _where(planner: "Planner", resources: int) -> Iterator[tuple[str, str]]:
    """Yield why resources are unavailable, and the nodes they are on."""
    for why, bits in _reasons(planner):
        if bits & resources:
            yield why, fold(planner.layout.nodes_of(bits & resources)) or "some"
    for job_id, held in _overstaying_jobs(planner, resources):
        yield f"job {job_id} is past its end and still there", fold(planner.layout.nodes_of(held)) or "some"


def _overstaying(planner: "Planner", job: PlacedJob, resources: int) -> bool:
    return any(other != job.job_id for other, _ in _overstaying_jobs(planner, resources))


def _overstaying_jobs(planner: "Planner", resources: int) -> Iterator[tuple[int, int]]:
    for job_id, job in planner.placed.items():
        held = planner.layout.bits_of(job.resources) & resources
        if held and job.state in HOLDS_RESOURCES and not parse_types(job.types).besteffort:
            yield job_id, held


def _reasons(planner: "Planner") -> Iterator[tuple[str, int]]:
    """Yield every reason for unavailable resources, with these resources; each resource under one reason."""
    layout = planner.layout
    state, following, drain = (_by_value(planner, column) for column in ("state", "next_state", "drain"))
    left = layout.everything
    by_state = (
        ("Suspected", state.get(ResourceState.SUSPECTED, 0) | following.get(NextState.SUSPECTED, 0)),
        ("Dead", state.get(ResourceState.DEAD, 0) | following.get(NextState.DEAD, 0)),
        ("Absent", without(state.get(ResourceState.ABSENT, 0), planner.available.plannable)
         | following.get(NextState.ABSENT, 0)),
        ("drained", drain.get("YES", 0)),
    )  # fmt: skip
    windows = [window for window in planner.limits.windows if window.start <= planner.now < window.stop]
    in_windows = ((_within(planner, window), window.resources) for window in windows)
    for why, bits in (*by_state, *in_windows):
        if bits & left:
            yield why, bits & left
        left = without(left, bits)


def _within(planner: "Planner", window: "Occupation") -> str:
    return f"{'held for' if window in planner.limits.lost_jobs else 'in'} {planner.limits.names[window]}"


def _by_value(planner: "Planner", column: str) -> dict[Value, int]:
    return planner.layout.by_value(column) if column in planner.layout.table.columns else {}


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
