"""The platform of a replay: a number of identical processors, or a tree of nodes and their parts.

Where processors cannot be told apart, a plan needs only numbers: jobs that fit by count at every instant can always get
distinct processors when they start (an interval graph needs as many colours as intervals ever overlap). In a trace with
93,312 processors a free set becomes one small integer: `&` becomes `min`, `^` becomes `-`. Everything else (queues,
policies, queue passes, the incremental plan) is the same code. Only ordinary jobs that request a number are supported.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from msgspec.structs import replace

from oarlock.model.resource import DEFAULT_TYPE, Value
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.model.submission import ALL, BEST, BESTHALF
from oarlock.plan.fit.fit import Fit, Fitter
from oarlock.plan.fit.tree import Demand
from oarlock.plan.sets.layout import NODE, make_layout
from oarlock.plan.sets.selection import Availability
from oarlock.plan.timeline.occupancy import FOREVER, Occupancy, Occupation, PlanInputs
from oarlock.plan.timeline.timeline import FreeFromNow, FreeWindow, Timeline
from oarlock.simulate.trace import Trace, TraceRefused, flat


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


_NODE_NAMES = {"node": NODE, "nodes": NODE, "host": NODE, "network_address": NODE}
_LEVEL = re.compile(r"(?:([a-z_][a-z0-9_]*)=([0-9]+)|([0-9]+)\*([a-z_][a-z0-9_]*))", re.IGNORECASE)
_MOST = 1_000_000
_HINT = "A number (`--resources 100`), or a tree: `switch=4/nodes=8/core=32`, also written `4*switch/8*nodes/32*core`."

Level = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Platform:
    """What there is: `size` processors (resources of type `default`).

    Where they are all alike there is a `ground`, and no table to speak of.
    """

    size: int
    resources: ResourceTable
    ground: PlanInputs | None = None


def uniform(size: int) -> Platform:
    """Return a platform of so many identical processors."""
    return Platform(size, ResourceTable((), {}), counted_inputs(size))


def from_table(resources: ResourceTable) -> Platform:
    """Return a platform of a table, everything in it ready for use."""
    count = len(resources.ids)
    usual: dict[str, Value] = {
        "state": "Alive", "next_state": "UnChanged", "type": DEFAULT_TYPE, "scheduler_priority": 0,
        "suspended_jobs": "NO",
    }  # fmt: skip
    ready = {name: (value,) * count for name, value in usual.items() if name not in resources.columns}
    columns = resources.columns | ready | {name: (usual[name],) * count for name in ("state", "next_state")}
    processors = sum(kind == DEFAULT_TYPE for kind in columns["type"])
    return Platform(processors, ResourceTable(resources.ids, columns))


def parse(text: str | None, trace: Trace) -> Platform:
    """Read `--resources`; without it, what the trace says of its machine. `TraceRefused` where that is nothing."""
    if text is None:
        if trace.resources is not None:
            return from_table(trace.resources)
        if trace.processors:
            return uniform(trace.processors)
        raise TraceRefused(f"{trace.name} does not say how large its machine was.", hint=f"Give --resources. {_HINT}")
    if text.isdigit():
        return uniform(_bounded(int(text), text))
    return from_table(_tree(text))


def fitted(trace: Trace, where: Platform) -> Trace:
    """Ask only what a site can tell apart: where processors are all alike, for a number of them."""
    if where.ground is None:
        return trace
    return replace(trace, jobs=tuple(replace(job, shape=flat(job.processors)) for job in trace.jobs))


def _bounded(size: int, text: str) -> int:
    if not 0 < size <= _MOST:
        raise TraceRefused(f"`{text}` means {size} resources; 1 to {_MOST:,} can be replayed.", hint=_HINT)
    return size


def _tree(text: str) -> ResourceTable:
    """Make the table of a tree, or of several joined by `+`."""
    rows: list[dict[str, Value]] = []
    for tree in text.split("+"):
        levels = [_level(level, text) for level in tree.strip().strip("/").split("/")]
        size = _bounded(_product(levels) + len(rows), text)
        if NODE not in [name for name, _ in levels]:
            raise TraceRefused(f"`{text}` has no nodes.", hint=_HINT)
        rows += _rows(levels, len(rows))
        if len(rows) != size:
            raise AssertionError("a tree has as many leaves as its levels multiply to")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: tuple(row.get(name) for row in rows) for name in names}
    return ResourceTable(tuple(range(1, len(rows) + 1)), columns)


def _level(level: str, text: str) -> Level:
    match = _LEVEL.fullmatch(level.strip())
    if match is None:
        raise TraceRefused(f"`{level}` in `{text}` is not a level of a tree.", hint=_HINT)
    name, count = (match[1], match[2]) if match[1] else (match[4], match[3])
    return _NODE_NAMES.get(name.lower(), name.lower()), int(count)


def _product(levels: list[Level]) -> int:
    total = 1
    for _, count in levels:
        total *= count
    return total


def _rows(levels: list[Level], before: int) -> Iterator[dict[str, Value]]:
    """Yield the leaves of a tree; a value of a level is numbered across the whole cluster."""
    total = _product(levels)
    for leaf in range(total):
        row: dict[str, Value] = {}
        below = total
        for name, count in levels:
            below //= count
            number = before + leaf // below
            row[name] = f"node{number + 1:06d}" if name == NODE else number
        yield row
