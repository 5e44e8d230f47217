"""Limits besides free resources: quotas and maintenance windows. Without any they cost nothing.

Windows are occupations in every occupancy, so no job is planned into them. A best-effort job is searched a hole that is
shorter than itself; here it is kept from running into a window.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oarlock.model.plan import Obstacle, Placement, Unplaced
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.snapshot import Choice, MaintenanceWindow, PlacedJob, Snapshot, WaitingJob
from oarlock.plan.fit.fit import Fit
from oarlock.plan.rules import reservations
from oarlock.plan.rules.quotas import Quotas, QuotaUse, broken_quota
from oarlock.plan.rules.search import Choose, JobLimits, PlacementOption, earliest_window, fewest
from oarlock.plan.sets.bitset import without
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupation
from oarlock.plan.timeline.timeline import FreeWindow

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


class PlanLimits:
    """The limits of a pass. `windows` are those that have not ended, by time."""

    def __init__(self, planner: "Planner", snapshot: Snapshot) -> None:
        self._planner = planner
        layout, now = planner.layout, planner.now
        windows = {
            Occupation(window.start, window.stop, layout.bits_of(window.resources)): window
            for window in sorted(snapshot.windows, key=lambda window: (window.start, window.stop))
            if window.stop > now
        }
        self.names = {occupation: _window_name(window) for occupation, window in windows.items()}
        self.lost_jobs = {occupation for occupation, window in windows.items() if window.lost_job}
        self.windows = tuple(windows)
        some = bool(snapshot.quotas or snapshot.quota_spans)
        self._quotas = Quotas(snapshot.quotas, snapshot.quota_spans) if some else None
        types = layout.by_value("type") if "type" in layout.table.columns else {DEFAULT_TYPE: layout.everything}
        self._counted = without(types.get(DEFAULT_TYPE, 0), planner.available.always)
        self._fewest: dict[int, int] = {}
        self._reserved: dict[int, Fit] = {}

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return self._quotas is not None or bool(self.windows)

    def restricts(self, kind: OccupancyKind) -> bool:
        """Return whether any limit applies to jobs of a kind."""
        return self._quotas is not None or (kind.besteffort and bool(self.windows))

    def job_limits(self, job: WaitingJob, kind: OccupancyKind, choice: Choice, choose: Choose) -> JobLimits:
        """Return the limits of a job."""
        return JobLimits(
            limits=self._quotas.limits(job, besteffort=kind.besteffort) if self._quotas is not None else (),
            windows=self.windows if kind.besteffort and not kind.reservation else (),
            lasting=choice.walltime + self._planner.settings.security_time,
            walltime=choice.walltime,
            length=self._planner.duration(kind, choice.walltime),
            choose=choose,
            counted=self._counted,
        )

    def find_earliest(
        self, job: WaitingJob, kind: OccupancyKind, choice: Choice, fit: Fit, earliest: int
    ) -> FreeWindow | None:
        """Return the earliest window for one alternative of a job; None if there is none."""
        planner = self._planner
        hole = planner.hole_length(kind, choice.walltime)
        if not self.restricts(kind):
            return planner.occupancies.occupancy(kind).find(fit, hole, earliest)
        held = self.job_limits(job, kind, choice, lambda free: planner.choose_resources(kind, fit, free))
        return self.find(kind, choice, fit, held, hole=hole, not_before=earliest)

    def find(
        self, kind: OccupancyKind, choice: Choice, fit: Fit, held: JobLimits, *, hole: int, not_before: int
    ) -> FreeWindow | None:
        """Return the earliest window within given limits; None if there is none."""
        occupancy = self._planner.occupancies.occupancy(kind)
        if not held.limits and not held.windows:
            return occupancy.find(fit, hole, not_before)
        return earliest_window(
            self._planner.fitter, occupancy, fit, held, hole=hole, not_before=not_before, fewest=self._least(choice)
        )

    def quota_broken_now(self, job: WaitingJob, kind: OccupancyKind, choice: Choice, free: int) -> str:
        """Describe the quota that keeps a job from starting now, on `free` or with the least resources it needs."""
        if self._quotas is None:
            return ""
        fit = self._planner.fit(choice.shape)
        held = self.job_limits(job, kind, choice, lambda free: self._planner.choose_resources(kind, fit, free))
        use = held.use(held.choose(free)) if fit.fits(free) else held.use_of(self._least(choice))
        with self._quotas.without(job.job_id):
            return broken_quota(held.limits, self._planner.now, held.length, use)

    def restrict(self, job: WaitingJob, kind: OccupancyKind, option: PlacementOption) -> PlacementOption | None:
        """Return an option that begins now, restricted to what the limits allow; None if they forbid it."""
        if not self.restricts(kind):
            return option
        fit, start = option.fit, option.window.start
        held = self.job_limits(job, kind, option.choice, lambda free: self._planner.choose_resources(kind, fit, free))
        left = held.free(self._planner.fitter, fit, start, option.window.free)
        if not fit.fits(left) or not held.allow(start, held.choose(left)):
            return None
        return replace(option, window=FreeWindow(start, left))

    def quota_broken_by(self, job: WaitingJob, kind: OccupancyKind, option: PlacementOption) -> str:
        """Describe the quota that keeps a job from a free window; an empty text if none does."""
        held = self.job_limits(
            job, kind, option.choice, lambda free: self._planner.choose_resources(kind, option.fit, free)
        )
        return held.broken(option.window.start, held.choose(option.window.free))

    def place_reservation(self, job: WaitingJob, kind: OccupancyKind) -> Placement | Unplaced:
        """Place a new reservation at its date, or explain why it is refused."""
        planner, choice = self._planner, job.choices[0]
        blocked = None if kind.container is None else planner.containers.blocked(kind.container)
        if blocked is not None:
            return Unplaced(job.job_id, blocked.obstacle, blocked.detail)
        fit, security_time = self._reservation_fit(choice.shape), planner.settings.security_time
        held = self.job_limits(job, kind, choice, fit.take)
        start = max(job.start, planner.now)
        windows = self.named(start, start + choice.walltime + security_time)

        def later(hole: int, begin: int) -> FreeWindow | None:
            return self.find(kind, choice, fit, held, hole=hole, not_before=begin)

        return reservations.place_reservation(
            job,
            fit,
            planner.occupancies.occupancy(kind),
            held,
            later,
            now=planner.now,
            security_time=security_time,
            conflict=f"the date is taken ({windows})" if windows else "the date is taken",
        )

    def _reservation_fit(self, shape: int) -> Fit:
        """Return the reservation fit of a shape; one object for all, since search bounds are kept by fit."""
        cached = self._reserved.get(shape)
        if cached is None:
            fit = self._planner.fit(shape)
            ready = self._planner.units(fit, self._planner.available.ready)
            cached = self._reserved[shape] = reservations.ready_first(fit, ready)
        return cached

    def named(self, start: int, stop: int) -> str:
        """Name the windows in [start, stop)."""
        return ", ".join(name for window, name in self.names.items() if window.start < stop and start < window.stop)

    def allow(self, job: WaitingJob, kind: OccupancyKind, place: Placement, resources: int) -> bool:
        """Return whether the limits allow a job a free place."""
        if not self.restricts(kind):
            return True
        choice = Choice(place.moldable_id, 0, place.stop - place.start)
        held = self.job_limits(job, kind, choice, lambda free: free)
        return not held.resources_before_windows(place.start) & resources and held.allow(place.start, resources)

    def why_never(self, job: WaitingJob, kind: OccupancyKind) -> Unplaced:
        """Explain why a job that fits the empty cluster never gets a place: container, quota, or missing resources."""
        if kind.container is not None:
            return Unplaced(job.job_id, Obstacle.CONTAINER, "its container never has what it asks for, for so long")
        planner = self._planner
        for choice in job.choices if self._quotas is not None else ():
            fit = planner.fit(choice.shape)
            window = planner.occupancies.occupancy(kind).find(fit, planner.hole_length(kind, choice.walltime))
            if window is not None:
                held = self.job_limits(job, kind, choice, lambda free: free)
                says = held.broken(window.start, planner.choose_resources(kind, fit, window.free))
                if says:
                    return Unplaced(job.job_id, Obstacle.QUOTA, says)
        return Unplaced(job.job_id, Obstacle.UNAVAILABLE, "too many of the resources it could use are away")

    def count(self, job: WaitingJob | PlacedJob, kind: OccupancyKind, occupation: Occupation, walltime: int) -> None:
        """Count a placed job in the quotas."""
        if self._quotas is not None:
            size = (occupation.resources & self._counted).bit_count()
            self._quotas.count(job, occupation, QuotaUse(size, 1, size * walltime), besteffort=kind.besteffort)

    def forget(self, job_id: int) -> None:
        """Stop counting a job."""
        if self._quotas is not None:
            self._quotas.forget(job_id)

    def _least(self, choice: Choice) -> int:
        cached = self._fewest.get(choice.shape)
        if cached is None:
            shape, fit = self._planner.shapes[choice.shape], self._planner.fit(choice.shape)
            cached = self._fewest[choice.shape] = fewest(self._planner.fitter, shape, fit, self._counted)
        return cached


def _window_name(window: MaintenanceWindow) -> str:
    return f"job {window.lost_job} of a lost database" if window.lost_job else f"maintenance `{window.name}`"
