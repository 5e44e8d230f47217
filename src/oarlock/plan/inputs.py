"""What a plan stands on: which resources there are, how requests are compiled for them, and what keeps the time."""

from collections.abc import Callable
from typing import NamedTuple

from oarlock.model.snapshot import ResourceTable
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.sets.availability import Availability, availability
from oarlock.plan.sets.layout import Layout, lay_out
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancy import Chart

NewChart = Callable[[int, int], Chart]
"""(now, usable resources) → an empty chart."""


class Ground(NamedTuple):
    """Resources under a plan; made of a table (`laid_out`), or a number that are all alike (`pool`)."""

    layout: Layout
    fitter: Fitter
    available: Availability
    new_chart: NewChart


def laid_out(table: ResourceTable, settings: PlanSettings, now: int) -> Ground:
    """Look at a table of resources: a set of them is an integer with a bit for each."""
    layout = lay_out(table, settings.order)
    fitter = Fitter(layout)
    return Ground(layout, fitter, availability(layout, settings, now), lambda at, usable: Chart(fitter, at, usable))
