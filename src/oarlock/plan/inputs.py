"""The inputs of a plan: resources, their availability, the request compiler, the occupancy to use."""

from collections.abc import Callable
from typing import NamedTuple

from oarlock.model.snapshot import ResourceTable
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.sets.layout import ResourceLayout, make_layout
from oarlock.plan.sets.selection import Availability, availability
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancy import Occupancy

NewOccupancy = Callable[[int, int], Occupancy]
"""(now, usable resources) → an empty occupancy."""


class PlanInputs(NamedTuple):
    """The resources of a plan, from a table (`inputs_from_table`) or a number of identical ones (`counted_inputs`)."""

    layout: ResourceLayout
    fitter: Fitter
    available: Availability
    new_occupancy: NewOccupancy


def inputs_from_table(table: ResourceTable, settings: PlanSettings, now: int) -> PlanInputs:
    """Build the inputs from a resource table; a set of resources is an integer with one bit per resource."""
    layout = make_layout(table, settings.order)
    fitter = Fitter(layout)
    return PlanInputs(
        layout, fitter, availability(layout, settings, now), lambda at, usable: Occupancy(fitter, at, usable)
    )
