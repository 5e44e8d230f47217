"""Which free resources a job takes: if possible none of best-effort jobs, which it would kill; those of nodes that are
awake before those of sleeping ones; and, to save energy, those of busy nodes before those of idle ones.
"""

from collections.abc import Iterable
from typing import NamedTuple

from oarlock.model.job import JobState
from oarlock.model.plan import union, without
from oarlock.model.snapshot import PlacedJob
from oarlock.plan.fit.fit import Fit, Fitter
from oarlock.plan.sets.selection import Availability
from oarlock.plan.timeline.occupancies import OccupancyKind


class JobResources(NamedTuple):
    """A job and its present or planned resources, without those that every job gets."""

    job_id: int
    kind: OccupancyKind
    resources: int


def preemptible_resources(holders: Iterable[JobResources]) -> dict[str | None, int]:
    """Return the resources held by best-effort jobs, by container."""
    by_container: dict[str | None, int] = {}
    for holder in holders:
        by_container[holder.kind.container] = by_container.get(holder.kind.container, 0) | holder.resources
    return by_container


class Packing:
    """Takes resources from the first tier that offers a shape as many as the whole free set."""

    def __init__(self, fitter: Fitter, tiers: Iterable[int]) -> None:
        self.tiers = tuple(tiers)
        self._tiers = {False: self.tiers, True: tuple([fitter.whole_nodes(tier) for tier in self.tiers])}

    def take(self, fit: Fit, free: int) -> int:
        """Choose resources of a free set, given in the units of the shape."""
        taken = fit.take(free)
        if not self.tiers:
            return taken
        for tier in self._tiers[fit.of_nodes] if taken else ():
            better = fit.take(free & tier)
            if better.bit_count() == taken.bit_count():  # a request for BEST must still get the maximum
                return better
        return taken


def packing(fitter: Fitter, available: Availability, placed: Iterable[PlacedJob], *, pack: bool) -> Packing:
    """Build the preferences; without `pack` only nodes that are awake are preferred to sleeping ones."""
    tiers = [available.ready] if available.asleep else []
    if pack:
        layout = fitter.layout
        held = union(layout.bits_of(job.resources) for job in placed if job.state != JobState.WAITING)
        # Licences and the like have no node, so they belong to the preferred tier of every job.
        elsewhere = without(layout.everything, union(node.bits for node in layout.nodes))
        tiers.insert(0, (fitter.resources_of(fitter.touched_nodes(held)) | elsewhere) & available.ready)
    return Packing(fitter, tiers)
