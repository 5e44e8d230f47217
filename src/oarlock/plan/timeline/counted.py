"""Occupancy of identical resources: a set of them is only its size.

Where processors cannot be told apart, a plan needs only numbers: jobs that fit by count at every instant can always get
distinct processors when they start (an interval graph needs as many colours as intervals ever overlap). In a trace with
93,312 processors a free set becomes one small integer: `&` becomes `min`, `^` becomes `-`. Everything else (queues,
policies, queue passes, the incremental plan) is the same code. Only ordinary jobs that request a number are supported.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.model.submission import ALL, BEST, BESTHALF
from oarlock.plan.fit.fit import Fit, Fitter
from oarlock.plan.fit.tree import Demand
from oarlock.plan.inputs import PlanInputs
from oarlock.plan.sets.layout import make_layout
from oarlock.plan.sets.selection import Availability
from oarlock.plan.timeline.occupancy import FOREVER, Occupancy, Occupation
from oarlock.plan.timeline.timeline import FreeFromNow, FreeWindow, Timeline


def counted_inputs(size: int) -> PlanInputs:
    """Return the inputs of a cluster of `size` identical resources that are all ready."""
    layout = make_layout(ResourceTable((), {}), ())
    fitter = CountedFitter(layout)
    available = Availability(ready=size, asleep=(), existing=size, always=0, missing_always=0)
    return PlanInputs(layout, fitter, available, lambda now, usable: CountedOccupancy(fitter, now, usable))


@dataclass(slots=True, eq=False)
class CountedFit:
    """A number of identical resources."""

    least: int
    monotone: bool = True
    of_nodes: bool = False
    demand: Demand | None = None

    def fits(self, free: int) -> bool:
        return free >= self.least

    def take(self, free: int) -> int:
        return self.least if free >= self.least else 0

    def offers(self, free: int) -> int:
        return free


class CountedFitter(Fitter):
    """Compiles `resource_id=N`."""

    def compile(self, shape: Shape) -> Fit:
        """Return the requested number; raise `ValueError` for a request that needs distinguishable resources."""
        levels = shape.groups[0].levels
        count = levels[0].count
        if len(shape.groups) > 1 or len(levels) > 1 or shape.where or count in {ALL, BEST, BESTHALF}:
            raise ValueError("resources that are all alike can only be asked for by number")
        return CountedFit(count)

    def whole_nodes(self, free: int) -> int:  # noqa: ARG002
        """Return 0: identical resources have no nodes."""
        return 0


class CountedOccupancy(Occupancy):
    """The number of free resources over time: `_free[i]` from `_times[i]` to `_times[i + 1]`."""

    def __init__(self, fitter: Fitter, now: int, usable: int) -> None:
        super().__init__(fitter, now, usable)
        self._times, self._free = [now], [usable]

    def copy(self) -> "CountedOccupancy":
        """Return an independent copy."""
        duplicate = CountedOccupancy.__new__(CountedOccupancy)
        duplicate.now, duplicate._fitter, duplicate.usable = self.now, self._fitter, self.usable
        duplicate.occupations, duplicate._times, duplicate._free = (
            self.occupations.copy(),
            self._times[:],
            self._free[:],
        )
        return duplicate

    def add(self, job_id: int, occupation: Occupation, *, exclusive: bool = True) -> None:  # noqa: ARG002
        """Add a job's occupation."""
        self.occupations[job_id] = occupation
        self._shift(occupation, -occupation.resources)

    def remove(self, job_id: int) -> None:
        """Release a job's resources."""
        self._shift(occupation := self.occupations.pop(job_id), occupation.resources)

    def advance(self, now: int) -> None:
        """Drop the past."""
        self.now = now
        index = bisect_right(self._times, now) - 1
        if index > 0:
            del self._times[:index], self._free[:index]
        self._times[0] = now

    def find(self, fit: Fit, duration: int, not_before: int = 0) -> FreeWindow | None:
        """Return the earliest window from an instant on, or None if there is none."""
        times, free, need = self._times, self._free, fit.least
        start = max(self.now, not_before)
        for at in range(bisect_right(times, start) - 1, len(times)):
            if times[at] >= start + duration:
                break
            if free[at] < need:
                start = times[at + 1] if at + 1 < len(times) else FOREVER
        return None if start >= FOREVER else FreeWindow(start, need)

    @property
    def free_now(self) -> int:
        """What is free now."""
        return self._free[0]

    def find_same(self, resources: int, duration: int, not_before: int) -> FreeWindow | None:
        """Return the earliest window with as many free resources."""
        return self.find(CountedFit(resources), duration, not_before)

    def find_now(self, fit: Fit, duration: int) -> FreeWindow | None:
        """Return a window that begins now, or None."""
        if self._free[0] < fit.least:
            return None
        free = min(self._free[: bisect_left(self._times, self.now + duration, 1)])
        return FreeWindow(self.now, free) if free >= fit.least else None

    def free(self, fit: Fit, start: int, stop: int) -> int:  # noqa: ARG002
        """Return how many are free during all of [start, stop)."""
        return self.free_resources(start, stop)

    def free_resources(self, start: int, stop: int) -> int:
        """Return how many are free during all of [start, stop)."""
        first = max(bisect_right(self._times, start) - 1, 0)
        return min(self._free[first : bisect_left(self._times, stop, first + 1)])

    def has_free(self, occupation: Occupation) -> bool:
        """Return whether all resources of an occupation are free."""
        return self.free_resources(occupation.start, occupation.stop) >= occupation.resources

    def from_now(self, *, of_nodes: bool) -> FreeFromNow:  # noqa: ARG002
        """Return how many stay free from now on."""
        seen = FreeFromNow(Timeline(self.now, 0))
        seen.times, seen.free = self._times[:], list(accumulate(self._free, min))
        return seen

    def _shift(self, occupation: Occupation, by: int) -> None:
        times, free = self._times, self._free
        start = occupation.start
        if occupation.stop <= times[0]:
            return
        first = self._cut(start) if start > times[0] else 0
        last = self._cut(occupation.stop)
        free[first:last] = [count + by for count in free[first:last]]
        for edge in (last, first):
            if edge and free[edge] == free[edge - 1]:  # both sides are equal now: one slot is enough
                del times[edge], free[edge]

    def _cut(self, instant: int) -> int:
        index = bisect_left(self._times, instant)
        if index == len(self._times) or self._times[index] != instant:
            self._times.insert(index, instant)
            self._free.insert(index, self._free[index - 1])
        return index
