"""Which resources can be used: now, at a future date, or after being woken up."""

from typing import NamedTuple

from oarlock.model.resource import NextState, ResourceState, Value
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.sets.layout import ResourceLayout
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
