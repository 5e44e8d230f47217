"""Occupancy: which job occupies which resources until when, and the search for a free window.

An occupancy serves one kind of job: ordinary ones, those of a timesharing class (which do not block each other),
best-effort jobs (which every job blocks), new reservations (which may use resources that are unavailable today). It
holds a timeline of resources and one of whole nodes, each built when the first shape needs it, and remembers for each
shape where the last search ended: until something is released, free sets only shrink.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from oarlock.model.snapshot import ResourceTable
from oarlock.plan.fit.fit import CountFit, Fit, Fitter, GroupsFit, SearchBounds
from oarlock.plan.sets.layout import ResourceLayout, make_layout
from oarlock.plan.sets.selection import Availability, availability
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.blocked import BlockedTimeline
from oarlock.plan.timeline.timeline import FreeFromNow, FreeWindow, Timeline, slots, slots_of_releases

AnyTimeline = Timeline | BlockedTimeline
_WIDE = 32_000
"""Sets of more bits than that are wide: above it a block of slots saves more than it costs."""

FOREVER = 1 << 40
"""Later than every date; nothing is planned from there on."""


class Occupation(Struct, frozen=True, gc=False):
    """Resources occupied during [start, stop), the security time included."""

    start: int
    stop: int
    resources: int

    def meets(self, other: "Occupation") -> bool:
        """Return whether two occupations share a resource at some instant."""
        return self.start < other.stop and other.start < self.stop and self.resources & other.resources != 0


class Occupancy:
    """Occupations by job, from `now` on. `usable` are the resources that can be used at all."""

    def __init__(self, fitter: Fitter, now: int, usable: int) -> None:
        self.now = now
        self.occupations: dict[int, Occupation] = {}
        self._fitter = fitter
        self.usable = usable
        self._lines: dict[bool, AnyTimeline] = {}  # by `of_nodes`
        self._bounds = SearchBounds()

    def copy(self) -> "Occupancy":
        """Return an independent copy."""
        duplicate = Occupancy(self._fitter, self.now, self.usable)
        duplicate.occupations = self.occupations.copy()
        duplicate._lines = {of_nodes: line.copy() for of_nodes, line in self._lines.items()}
        return duplicate

    def add(self, job_id: int, occupation: Occupation, *, exclusive: bool = True) -> None:
        """Take resources for a job. Not `exclusive`: some may be taken already (timesharing, overdue jobs)."""
        self.occupations[job_id] = occupation
        for of_nodes, line in self._lines.items():
            self._take(line, occupation, of_nodes=of_nodes, exclusive=exclusive)

    def remove(self, job_id: int) -> None:
        """Release what a job occupies; later searches may find an earlier start, so the bounds are dropped."""
        occupation = self.occupations.pop(job_id)
        self._bounds.clear()
        for of_nodes, line in self._lines.items():
            units, reach = self._units(occupation, of_nodes=of_nodes)
            line.release(occupation.start, occupation.stop, units & self._all_units(of_nodes=of_nodes))
            around = replace(occupation, resources=reach)
            for other in self.occupations.values():
                if other.meets(around):
                    line.cover(other.start, other.stop, self._units(other, of_nodes=of_nodes)[0] & units)

    def advance(self, now: int) -> None:
        """Drop the past of all timelines."""
        self.now = now
        for line in self._lines.values():
            line.forget_before(now)

    def find(self, fit: Fit, duration: int, not_before: int = 0) -> FreeWindow | None:
        """Return the earliest window for a shape, from now or `not_before` on; None if there is none."""
        if not fit.monotone:
            return self._find_instant_by_instant(fit, duration, max(self.now, not_before))
        bound = max(self._bounds.at(fit, duration), self.now)
        window = self._line(fit).earliest(fit, duration, max(bound, not_before))
        start = FOREVER if window is None else window.start
        if start > bound >= not_before:
            self._bounds.raise_to(fit, duration, start)  # FOREVER records that there is no window at all
        return None if start >= FOREVER else window

    def instants(self, begin: int) -> list[int]:
        """Return the instants at which a job may start: at once, or when an occupation starts or ends."""
        met = [occupation for occupation in self.occupations.values() if occupation.resources & self.usable]
        edges = {edge for occupation in met for edge in (occupation.start, occupation.stop)}
        return [begin, *sorted([edge for edge in edges if begin < edge < FOREVER])]

    def _find_instant_by_instant(self, fit: Fit, duration: int, begin: int) -> FreeWindow | None:
        """Return the earliest window for a shape that is not monotone: a smaller free set may fit where a larger fails.

        No start before the earliest one of each group alone is possible, so the trials begin there.
        """
        line = self._line(fit)
        for group in fit.groups if isinstance(fit, GroupsFit) else ():
            window = self.find(group, duration, begin)
            if window is None:
                return None
            begin = window.start
        for start in self.instants(begin):
            free = line.during(start, start + duration)
            if fit.fits(free):
                return FreeWindow(start, free)
        return None

    @property
    def free_now(self) -> int:
        """An upper bound: no shape whose `Fit.least` is larger can start now; here no bound is known."""
        return FOREVER

    def find_same(self, resources: int, duration: int, not_before: int) -> FreeWindow | None:
        """Return the earliest window in which exactly these resources are free; None if there is none."""
        if not resources:
            return FreeWindow(not_before, 0)  # it has only resources that every job gets
        count = resources.bit_count()
        return self._line_of(of_nodes=False).earliest(CountFit(resources, count, count), duration, not_before)

    def find_now(self, fit: Fit, duration: int) -> FreeWindow | None:
        """Return a window that begins now, or None; a failure is remembered for this duration and longer ones."""
        if self._bounds.at(fit, duration) > self.now:
            return None
        free = self._line(fit).during(self.now, self.now + duration)
        if fit.fits(free):
            return FreeWindow(self.now, free)
        if fit.monotone:
            self._bounds.raise_to(fit, duration, self.now + 1)
        return None

    def free(self, fit: Fit, start: int, stop: int) -> int:
        """Return what is free for a shape during all of [start, stop): resources, or nodes if it asks for nodes."""
        return self._line(fit).during(start, stop)

    def from_now(self, *, of_nodes: bool) -> FreeFromNow:
        """Return what stays free from now on; it does not follow later changes."""
        return FreeFromNow(self._line_of(of_nodes=of_nodes))

    def slots(self) -> Sequence[tuple[int, int | None, int]]:
        """Return which resources are free from when until when; the last slot has no end."""
        return slots(self._line_of(of_nodes=False))

    def free_resources(self, start: int, stop: int) -> int:
        """Return the resources that are free during all of [start, stop)."""
        return self._line_of(of_nodes=False).during(start, stop)

    def has_free(self, occupation: Occupation) -> bool:
        """Return whether all resources of an occupation are free."""
        return self.free_resources(occupation.start, occupation.stop) & occupation.resources == occupation.resources

    def _line(self, fit: Fit) -> AnyTimeline:
        return self._line_of(of_nodes=fit.of_nodes)

    def _line_of(self, *, of_nodes: bool) -> AnyTimeline:
        line = self._lines.get(of_nodes)
        if line is None:
            line = self._lines[of_nodes] = self._make_line(of_nodes=of_nodes)
        return line

    def _make_line(self, *, of_nodes: bool) -> AnyTimeline:
        """Build a timeline: current occupations end one after the other, future ones are added."""
        here = [
            (occupation.stop, self._fitter.touched_nodes(occupation.resources) if of_nodes else occupation.resources)
            for occupation in self.occupations.values()
            if occupation.start <= self.now
        ]
        units = self._all_units(of_nodes=of_nodes)
        kind = BlockedTimeline if units.bit_length() > _WIDE else Timeline
        line = kind.of(slots_of_releases(self.now, units, here))
        for occupation in self.occupations.values():
            if occupation.start > self.now:
                self._take(line, occupation, of_nodes=of_nodes, exclusive=False)
        return line

    def _all_units(self, *, of_nodes: bool) -> int:
        return self._fitter.whole_nodes(self.usable) if of_nodes else self.usable

    def _take(self, line: AnyTimeline, occupation: Occupation, *, of_nodes: bool, exclusive: bool) -> None:
        units = self._fitter.touched_nodes(occupation.resources) if of_nodes else occupation.resources
        if exclusive and (not of_nodes or self._fitter.is_whole(occupation.resources, units)):
            line.occupy(occupation.start, occupation.stop, units, units.bit_count())
        else:
            line.cover(occupation.start, occupation.stop, units)

    def _units(self, occupation: Occupation, *, of_nodes: bool) -> tuple[int, int]:
        """Return the units of an occupation in a timeline, and all resources that belong to these units."""
        if not of_nodes:
            return occupation.resources, occupation.resources
        nodes = self._fitter.touched_nodes(occupation.resources)
        return nodes, self._fitter.resources_of(nodes)


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
