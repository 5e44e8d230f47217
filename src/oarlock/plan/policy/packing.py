"""Which free resources a job takes: first those of nodes that are awake, and to save energy of nodes at work."""

from collections.abc import Iterable

from oarlock.model.job import JobState
from oarlock.model.snapshot import PlacedJob
from oarlock.plan.fit.fit import Fit, Fitter
from oarlock.plan.sets.availability import Availability
from oarlock.plan.sets.bitset import union, without


class Packing:
    """Takes what a shape needs from the first tier that has as much of it as all that is free."""

    def __init__(self, fitter: Fitter, tiers: Iterable[int]) -> None:
        self.tiers = tuple(tiers)
        self._tiers = {False: self.tiers, True: tuple([fitter.whole_nodes(tier) for tier in self.tiers])}

    def take(self, fit: Fit, free: int) -> int:
        """Choose resources of what is free, in the units that the shape asks about."""
        taken = fit.take(free)
        if not self.tiers:
            return taken
        for tier in self._tiers[fit.of_nodes] if taken else ():
            better = fit.take(free & tier)
            if better.bit_count() == taken.bit_count():  # who asked for the most there is gets that
                return better
        return taken


def packing(fitter: Fitter, available: Availability, placed: Iterable[PlacedJob], *, pack: bool) -> Packing:
    """Describe what is preferred; without `pack` only that nodes that are awake need not be woken."""
    tiers = [available.ready] if available.asleep else []
    if pack:
        layout = fitter.layout
        held = union(layout.bits_of(job.resources) for job in placed if job.state != JobState.WAITING)
        # Licences and the like are on no node: whoever needs one takes it wherever it works.
        elsewhere = without(layout.everything, union(node.bits for node in layout.nodes))
        tiers.insert(0, (fitter.resources_of(fitter.touched_nodes(held)) | elsewhere) & available.ready)
    return Packing(fitter, tiers)
