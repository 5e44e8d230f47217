"""Sets of resources: those that can be used (now, at a date, after being woken up), those that match a condition."""

from dataclasses import dataclass
from typing import NamedTuple

from oarlock.lang.where import columns, truth
from oarlock.model.condition import And, Condition, Not, Or
from oarlock.model.plan import union, without
from oarlock.model.resource import NextState, ResourceState, Value
from oarlock.plan.sets.layout import ResourceLayout, bits_at
from oarlock.plan.settings import PlanSettings

_LEAVING = (NextState.ABSENT, NextState.SUSPECTED, NextState.DEAD)


class Availability(NamedTuple):
    """Sets of resources.

    `ready`: a job can start on them now. `asleep`: they can be woken, each set until an instant. `existing`: all that
    are not Dead; a reservation may use them. `always`: every job gets them; `missing_always`: those not ready.
    """

    ready: int
    asleep: tuple[tuple[int, int], ...]
    existing: int
    always: int
    missing_always: int

    @property
    def plannable(self) -> int:
        """All that a job can be planned on."""
        return self.ready | union(resources for _, resources in self.asleep)


def availability(layout: ResourceLayout, settings: PlanSettings, now: int) -> Availability:
    """Compute the availability of all resources from their states."""
    states, following, types = (_sets(layout, column) for column in ("state", "next_state", "type"))
    leaving = union(following.get(state, 0) for state in _LEAVING)
    existing = without(layout.everything, states.get(ResourceState.DEAD, 0))
    ready = without(states.get(ResourceState.ALIVE, 0), leaving)
    always = union(types.get(kind, 0) for kind in settings.always_assigned)
    absent = without(states.get(ResourceState.ABSENT, 0), leaving)
    asleep = _asleep(layout, absent, now) if settings.wake_up else ()
    return Availability(ready, asleep, existing, always & existing, without(always & existing, ready))


def _sets(layout: ResourceLayout, column: str) -> dict[Value, int]:
    return layout.by_value(column) if column in layout.table.columns else {}


def _asleep(layout: ResourceLayout, absent: int, now: int) -> tuple[tuple[int, int], ...]:
    """Absent resources with a date (`cm_availability`) until which they may be used, by that date."""
    dates = ((until, bits & absent) for until, bits in _sets(layout, "cm_availability").items())
    return tuple(sorted((until, bits) for until, bits in dates if bits and isinstance(until, int) and until > now))


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Where a condition is true, and where it is unknown; everywhere else it is false."""

    true: int
    unknown: int


def matching(layout: ResourceLayout, condition: Condition | None) -> int:
    """Return the resources for which a condition is true (unknown is not true); all of them without a condition.

    `UnknownProperty` if it names what resources do not have.
    """
    return layout.everything if condition is None else _match(layout, condition).true


def _match(layout: ResourceLayout, condition: Condition) -> MatchResult:
    match condition:
        case And(parts):
            return _all(layout, [_match(layout, part) for part in parts])
        case Or(parts):
            negated = [_opposite(layout, _match(layout, part)) for part in parts]
            return _opposite(layout, _all(layout, negated))
        case Not(inner):
            return _opposite(layout, _match(layout, inner))
        case _:
            return _test(layout, condition)


def _all(layout: ResourceLayout, results: list[MatchResult]) -> MatchResult:
    true, possible = layout.everything, layout.everything
    for result in results:
        true &= result.true
        possible &= result.true | result.unknown
    return MatchResult(true, possible ^ true)


def _opposite(layout: ResourceLayout, result: MatchResult) -> MatchResult:
    return MatchResult(without(layout.everything, result.true | result.unknown), result.unknown)


def _test(layout: ResourceLayout, test: Condition) -> MatchResult:
    names = sorted(columns(test))
    if len(names) == 1:
        return _by_value(layout, test, names[0])
    return _by_row(layout, test, names)


def _by_value(layout: ResourceLayout, test: Condition, name: str) -> MatchResult:
    true = unknown = 0
    for value, bits in layout.by_value(name).items():
        result = truth(test, {name: value})
        if result is None:
            unknown |= bits
        elif result:
            true |= bits
    return MatchResult(true, unknown)


def _by_row(layout: ResourceLayout, test: Condition, names: list[str]) -> MatchResult:
    """Evaluate a test row by row: it compares two columns, or only literals."""
    values_by_column = [layout.column(name) for name in names]
    positions_by_truth: dict[bool | None, list[int]] = {True: [], None: [], False: []}
    for row, at in zip(layout.rows, layout.place, strict=True):
        values: dict[str, Value] = {name: column[row] for name, column in zip(names, values_by_column, strict=True)}
        positions_by_truth[truth(test, values)].append(at)
    return MatchResult(bits_at(positions_by_truth[True]), bits_at(positions_by_truth[None]))
