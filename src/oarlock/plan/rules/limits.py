"""Limits besides free resources: quotas and maintenance windows, and the search under both.

Windows are occupations in every occupancy, so no job is planned into them. A best-effort job is searched a hole that is
shorter than itself; here it is kept from running into a window. Without any limit they cost nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from oarlock.model.plan import Placement, union, without
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.snapshot import Choice, MaintenanceWindow, PlacedJob, Shape, Snapshot, WaitingJob
from oarlock.plan.fit.fit import Fit, Fitter, GroupsFit
from oarlock.plan.rules.quotas import QuotaLimit, Quotas, QuotaUse, broken_quota, earliest_within, edges
from oarlock.plan.sets.layout import ResourceLayout
from oarlock.plan.sets.selection import Availability
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import FOREVER, Occupancy, Occupation
from oarlock.plan.timeline.timeline import FreeWindow


class PlacementOption(Struct, frozen=True, gc=False):
    """A window found for one alternative of a job."""

    choice: Choice
    fit: Fit
    window: FreeWindow

    @property
    def end(self) -> int:
        """When the job would be over: the alternative that ends first is chosen."""
        return self.window.start + self.choice.walltime


Choose = Callable[[int], int]
"""What of a free set (of resources or nodes, as the shape asks) would be taken."""


class JobLimits(NamedTuple):
    """The limits of a job besides free resources.

    A best-effort job is searched a hole shorter than itself; `windows` are those it must not run into during its
    `lasting` seconds. `choose` takes resources of a free set; `counted` are the resources that quotas count.
    """

    limits: tuple[QuotaLimit, ...]
    windows: tuple[Occupation, ...]
    lasting: int
    walltime: int
    length: int
    choose: Choose
    counted: int

    def use(self, resources: int) -> QuotaUse:
        """Return the quota use of a job with these resources."""
        return self.use_of((resources & self.counted).bit_count())

    def use_of(self, count: int) -> QuotaUse:
        """Return the quota use of a job with so many resources."""
        return QuotaUse(count, 1, count * self.walltime)

    def resources_before_windows(self, start: int) -> int:
        """Return the resources with a window that a job which starts then would run into."""
        return union(
            window.resources for window in self.windows if window.start < start + self.lasting and start < window.stop
        )

    def free(self, fitter: Fitter, fit: Fit, start: int, free: int) -> int:
        """Return a free set without the resources whose window comes too soon for a start."""
        soon = self.resources_before_windows(start)
        return without(free, fitter.touched_nodes(soon) if fit.of_nodes else soon)

    def allow(self, start: int, resources: int) -> bool:
        """Return whether quotas let a job start then, with these resources."""
        return earliest_within(self.limits, start, self.length, self.use(resources)) == start

    def broken(self, start: int, resources: int) -> str:
        """Describe the quota that keeps a job from having these resources then; an empty text if none does."""
        return broken_quota(self.limits, start, self.length, self.use(resources))


def earliest_window(
    fitter: Fitter, occupancy: Occupancy, fit: Fit, held: JobLimits, *, hole: int, not_before: int, fewest: int
) -> FreeWindow | None:
    """Return the earliest free window that respects all limits; None if there is none.

    Where even the `fewest` resources that the shape can take break a quota, the search skips to where they do not.
    Shapes that take a varying number of resources, and windows ahead, are tried instant by instant.
    """
    if not fit.monotone or held.windows:
        return _instant_by_instant(fitter, occupancy, fit, held, hole, not_before)
    window = occupancy.find(fit, hole, not_before)
    while window is not None:
        start = earliest_within(held.limits, window.start, held.length, held.use_of(fewest))
        if start is None:
            return None
        if start == window.start:
            if held.allow(start, held.choose(window.free)):
                return window
            return _instant_by_instant(fitter, occupancy, fit, held, hole, start)
        window = occupancy.find(fit, hole, start)
    return None


def _instant_by_instant(
    fitter: Fitter, occupancy: Occupancy, fit: Fit, held: JobLimits, hole: int, not_before: int
) -> FreeWindow | None:
    for start in _instants(occupancy, held, max(not_before, occupancy.now)):
        free = held.free(fitter, fit, start, occupancy.free(fit, start, start + hole))
        if fit.fits(free) and held.allow(start, held.choose(free)):
            return FreeWindow(start, free)
    return None


def _instants(occupancy: Occupancy, held: JobLimits, begin: int) -> list[int]:
    """Return the instants at which a job may start: at once, or when occupations or quotas change."""
    changes = {edge for edge in edges(held.limits) if begin < edge < FOREVER}
    return sorted(changes.union(occupancy.instants(begin)))


def fewest(fitter: Fitter, shape: Shape, fit: Fit, counted: int) -> int:
    """Return a lower bound on the counted resources that a shape takes."""
    parts = fit.groups if isinstance(fit, GroupsFit) else [fit]
    return sum(
        _least(fitter, part)
        for group, part in zip(shape.groups, parts, strict=True)
        if not without(fitter.allowed(shape, group), counted)
    )


def _least(fitter: Fitter, fit: Fit) -> int:
    if not fit.of_nodes:
        return fit.least
    return fit.least * min(node.bits.bit_count() for node in fitter.layout.nodes)


class PlanLimits:
    """The limits of a pass. `windows` are those that have not ended, by time."""

    def __init__(
        self, layout: ResourceLayout, now: int, settings: PlanSettings, available: Availability, snapshot: Snapshot
    ) -> None:
        windows = {
            Occupation(window.start, window.stop, layout.bits_of(window.resources)): window
            for window in sorted(snapshot.windows, key=lambda window: (window.start, window.stop))
            if window.stop > now
        }
        self.names = {occupation: _window_name(window) for occupation, window in windows.items()}
        self.lost_jobs = {occupation for occupation, window in windows.items() if window.lost_job}
        self.windows = tuple(windows)
        some = bool(snapshot.quotas or snapshot.quota_spans)
        self.quotas = Quotas(snapshot.quotas, snapshot.quota_spans) if some else None
        types = layout.by_value("type") if "type" in layout.table.columns else {DEFAULT_TYPE: layout.everything}
        self.counted = without(types.get(DEFAULT_TYPE, 0), available.always)
        self._security_time = settings.security_time

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return self.quotas is not None or bool(self.windows)

    def restricts(self, kind: OccupancyKind) -> bool:
        """Return whether any limit applies to jobs of a kind."""
        return self.quotas is not None or (kind.besteffort and bool(self.windows))

    def of_job(self, job: WaitingJob, kind: OccupancyKind, choice: Choice, *, length: int, choose: Choose) -> JobLimits:
        """Return the limits of a job that occupies its resources for `length` seconds."""
        return JobLimits(
            limits=self.quotas.limits(job, besteffort=kind.besteffort) if self.quotas is not None else (),
            windows=self.windows if kind.besteffort and not kind.reservation else (),
            lasting=choice.walltime + self._security_time,
            walltime=choice.walltime,
            length=length,
            choose=choose,
            counted=self.counted,
        )

    def allow(self, job: WaitingJob, kind: OccupancyKind, place: Placement, resources: int, *, length: int) -> bool:
        """Return whether the limits allow a job a free place."""
        if not self.restricts(kind):
            return True
        choice = Choice(place.moldable_id, 0, place.stop - place.start)
        held = self.of_job(job, kind, choice, length=length, choose=lambda free: free)
        return not held.resources_before_windows(place.start) & resources and held.allow(place.start, resources)

    def named(self, start: int, stop: int) -> str:
        """Name the windows in [start, stop)."""
        return ", ".join(name for window, name in self.names.items() if window.start < stop and start < window.stop)

    def count(self, job: WaitingJob | PlacedJob, kind: OccupancyKind, occupation: Occupation, walltime: int) -> None:
        """Count a placed job in the quotas."""
        if self.quotas is not None:
            size = (occupation.resources & self.counted).bit_count()
            self.quotas.count(job, occupation, QuotaUse(size, 1, size * walltime), besteffort=kind.besteffort)

    def extension(self, job: PlacedJob, kind: OccupancyKind, resources: int, seconds: int, *, now: int) -> int:
        """Return by how many of these seconds quotas let a running job last longer."""
        if self.quotas is None:
            return seconds
        size = (resources & self.counted).bit_count()
        limits = self.quotas.limits(job, besteffort=kind.besteffort)

        def is_allowed(more: int) -> bool:
            length, walltime = job.stop + more + self._security_time - now, job.stop + more - job.start
            use = QuotaUse(size, 1, size * walltime)
            return all(limit.clear_from(now, length, use) == now for limit in limits)

        with self.quotas.without(job.job_id):
            if is_allowed(seconds):
                return seconds
            allowed, refused = 0, seconds
            while refused - allowed > 1:
                middle = (allowed + refused) // 2
                allowed, refused = (middle, refused) if is_allowed(middle) else (allowed, middle)
            return allowed

    def forget(self, job_id: int) -> None:
        """Stop counting a job."""
        if self.quotas is not None:
            self.quotas.forget(job_id)


def _window_name(window: MaintenanceWindow) -> str:
    return f"job {window.lost_job} of a lost database" if window.lost_job else f"maintenance `{window.name}`"
