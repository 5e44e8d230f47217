"""The state of a scheduling pass: the snapshot as the pass sees it, and the places that jobs have got so far.

The functions of a pass work on it: `planner`, `placing`, `actions`. After the pass `explain` reads it, and
`incremental` keeps it between passes and updates it with single events.
"""

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oarlock.model.event import Event
from oarlock.model.job import JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Placement, Unplaced, union, without
from oarlock.model.snapshot import PlacedJob, Queue, Shape, SitePlan, Snapshot, Usage, WaitingJob
from oarlock.plan.fit.fit import Fit, Fitter
from oarlock.plan.rules import reservations
from oarlock.plan.rules.limits import PlanLimits
from oarlock.plan.rules.prerequisites import Blocked, container_obstacle, earliest_start
from oarlock.plan.sets.layout import ResourceLayout
from oarlock.plan.sets.selection import Availability
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.containers import Containers
from oarlock.plan.timeline.occupancies import BadTimesharing, Occupancies, OccupancyKind, sharing_class
from oarlock.plan.timeline.occupancy import Occupation, PlanInputs, inputs_from_table


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


_ORDINARY = OccupancyKind()


@dataclass(slots=True, eq=False)
class QueuePass:
    """The progress of the pass over a queue: `jobs[at:]` are not planned yet; the first `dated` are new reservations.

    `dates_left`: how many dates may still be promised (None: no limit). `strict_order`: no job may be backfilled.
    `only_starts`: the remaining jobs can only start now. `no_dates`: that was certain before unread jobs came first.
    """

    jobs: list[WaitingJob]
    dated: int
    dates_left: int | None
    keeps_dates: bool
    strict_order: bool
    shortest_first: bool
    at: int = 0
    only_starts: bool = False
    no_dates: bool = False

    @property
    def over(self) -> bool:
        """Whether every job was planned."""
        return self.at >= len(self.jobs)

    @property
    def left(self) -> list[WaitingJob]:
        """The jobs that are not planned yet."""
        return self.jobs[self.at :]

    def skip_to(self, at: int) -> None:
        """Skip the next jobs without a reason: the caller knows that they cannot start now."""
        self.at = at

    def append(self, job: WaitingJob) -> None:
        """Append a job to the queue; in shortest-first order, after the jobs that are equally short."""
        if self.only_starts and self.shortest_first:
            insort(self.jobs, job, lo=self.at, key=_shortness)
        else:
            self.jobs.append(job)

    def sort_by_length(self) -> None:
        """Sort the remaining jobs: the shortest first."""
        self.jobs[self.at :] = sorted(self.jobs[self.at :], key=_shortness)


def _shortness(job: WaitingJob) -> int:
    return min((choice.walltime for choice in job.choices), default=0)


@dataclass(slots=True, eq=False)
class PassState:
    """The state of a scheduling pass.

    `accepted` are the reservations among the `placed` jobs that have not started; `dated` the new ones among the
    waiting jobs. `ends` are the known or planned ends of jobs that are not over. `promised` places are kept by policies
    that keep dates; `carried` ones, of a pass that ran out of time, by all.
    """

    # What is planned, and on what.
    settings: PlanSettings
    now: int
    layout: ResourceLayout
    fitter: Fitter
    available: Availability
    containers: Containers
    limits: PlanLimits
    queues: list[Queue]
    usage: Mapping[str, Usage]
    shapes: list[Shape]
    placed: dict[int, PlacedJob]
    accepted: dict[int, PlacedJob]
    waiting: dict[int, WaitingJob]
    dated: set[int]
    deadlines: list[int]
    recent: dict[str, tuple[int, ...]]
    site_plans: Mapping[str, SitePlan]
    # What was decided so far.
    occupancies: Occupancies
    ends: dict[int, int]
    promised: Mapping[int, Placement] = field(default_factory=dict)
    carried: Mapping[int, Placement] = field(default_factory=dict)
    placements: dict[int, Placement] = field(default_factory=dict)
    unplaced: dict[int, Unplaced] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    queue_passes: dict[str, QueuePass] = field(default_factory=dict)
    before_unread: Occupancies | None = None  # set while jobs that are not in the snapshot come first
    # What follows from the rest; see `update_besteffort` and `update_packing`.
    besteffort: list[JobResources] = field(default_factory=list)
    ending: list[JobResources] = field(default_factory=list)
    preemptible: dict[str | None, int] = field(default_factory=dict)
    packing: Packing = field(init=False)
    # Computed once per shape.
    fits: dict[int, Fit] = field(default_factory=dict)
    reservation_fits: dict[int, Fit] = field(default_factory=dict)
    fits_empty: dict[int, bool] = field(default_factory=dict)
    fewest: dict[int, int] = field(default_factory=dict)

    def fit(self, shape: int) -> Fit:
        """Return the compiled shape of an index; cached."""
        fit = self.fits.get(shape)
        if fit is None:
            fit = self.fits[shape] = self.fitter.compile(self.shapes[shape])
        return fit

    def units(self, fit: Fit, resources: int) -> int:
        """Return a set of resources in the units of a shape: its whole nodes, or the resources themselves."""
        return self.fitter.whole_nodes(resources) if fit.of_nodes else resources

    def fits_empty_cluster(self, shape: int) -> bool:
        """Return whether a shape fits if all available resources are free."""
        cached = self.fits_empty.get(shape)
        if cached is None:
            fit = self.fit(shape)
            cached = self.fits_empty[shape] = fit.fits(self.units(fit, self.available.plannable))
        return cached

    def kind(self, job: WaitingJob | PlacedJob) -> OccupancyKind:
        """Return the occupancy kind of a job."""
        new = job.reservation == Reservation.TO_SCHEDULE
        if not job.types:
            return OccupancyKind(reservation=True) if new else _ORDINARY
        types = parse_types(job.types)
        try:
            sharing = sharing_class(types, job.user, job.name)
        except BadTimesharing:
            if isinstance(job, WaitingJob):
                raise
            sharing = None  # it holds its resources already; not to share them is safe
        container = self.containers.room_of(job, None if isinstance(job, WaitingJob) else self.own_resources(job))
        return OccupancyKind(
            types.besteffort, sharing, new, container, types.placeholder, types.allowed, types.permissive
        )

    def duration(self, kind: OccupancyKind, walltime: int) -> int:
        """Return how long a job occupies resources: the walltime and the security time between jobs."""
        if kind.besteffort:
            return max(self.settings.besteffort_duration, self.settings.security_time)
        return walltime + self.settings.security_time

    def hole_length(self, kind: OccupancyKind, walltime: int) -> int:
        """Return how long a free window must be: the job's duration, or the site's minimum if that is longer."""
        return max(self.duration(kind, walltime), self.settings.minimum_hole)

    def earliest(self, job: WaitingJob) -> int | Blocked:
        """Return the earliest start that a job's date, container and dependencies allow, or what blocks it."""
        if job.types and (container := self.containers.room_of(job)) is not None:
            blocked = container_obstacle(self.containers, container)
            if blocked is not None:
                return blocked
        if not job.after:
            return job.not_before
        return earliest_start(
            job,
            self.ends,
            security_time=self.settings.security_time,
            release_after_error=self.settings.release_after_error,
        )

    def choose_resources(self, kind: OccupancyKind, fit: Fit, free: int) -> int:
        """Choose resources of a free set, if possible without killing best-effort jobs."""
        if kind.permissive:
            ready = self._choose_resources(kind, fit, free & self.units(fit, self.available.ready))
            in_any_state = self._choose_resources(kind, fit, free)
            # As many as without a preference: a request for ALL or BEST gets what is away, too.
            return ready if ready.bit_count() == in_any_state.bit_count() else in_any_state
        return self._choose_resources(kind, fit, free)

    def _choose_resources(self, kind: OccupancyKind, fit: Fit, free: int) -> int:
        if self.preemptible and not kind.besteffort:
            dying = self.preemptible.get(kind.container, 0)
            danger = self.fitter.touched_nodes(dying) if fit.of_nodes else dying
            peaceful = self.packing.take(fit, without(free, danger))
            if peaceful:
                return peaceful
        return self.packing.take(fit, free)

    def own_resources(self, job: PlacedJob) -> int:
        """Return the resources of a placed job, without those that every job gets."""
        return without(self.layout.bits_of(job.resources), self.available.always)

    def may_backfill(self, job: WaitingJob) -> bool:
        """Return whether a job without a date may be backfilled."""
        queue_pass = self.queue_passes.get(job.queue)
        return (
            queue_pass is not None and queue_pass.only_starts and not queue_pass.strict_order and job in queue_pass.jobs
        )


def new_state(snapshot: Snapshot, *, now: int, settings: PlanSettings, inputs: PlanInputs | None = None) -> PassState:
    """Build the state before a pass: placed jobs occupy their resources, no waiting job has a place."""
    inputs = inputs or inputs_from_table(snapshot.resources, settings, now)
    containers = Containers([*snapshot.placed, *snapshot.waiting])
    limits = PlanLimits(inputs.layout, now, settings, inputs.available, snapshot)
    state = PassState(
        settings=settings,
        now=now,
        layout=inputs.layout,
        fitter=inputs.fitter,
        available=inputs.available,
        containers=containers,
        limits=limits,
        queues=sorted(snapshot.queues, key=lambda queue: -queue.priority),
        usage=snapshot.usage,
        shapes=list(snapshot.shapes),
        placed={job.job_id: job for job in snapshot.placed},
        accepted={job.job_id: job for job in snapshot.placed if reservations.is_accepted(job)},
        waiting={job.job_id: job for job in snapshot.waiting},
        dated={job.job_id for job in snapshot.waiting if job.reservation == Reservation.TO_SCHEDULE},
        deadlines=[job.job_id for job in snapshot.waiting if job.deadline is not None],
        recent=dict(snapshot.recent),
        site_plans=snapshot.site_plans,
        occupancies=Occupancies(inputs.new_occupancy, inputs.available, now, limits.windows, containers),
        # An overdue job that has not ended keeps its dependants from starting now.
        ends={job.job_id: max(job.stop, now + 1) for job in snapshot.placed},
    )
    for job in snapshot.placed if containers.needed else ():
        containers.open(job, _container_occupation(state, job))
    for job in snapshot.placed:
        add_placed(state, state.occupancies, job)
    update_besteffort(state)
    update_packing(state)
    return state


def restart(state: PassState, occupancies: Occupancies, now: int, ends: dict[int, int]) -> None:
    """Restart the pass on occupancies that contain only placed jobs; `ends` are their ends."""
    state.occupancies, state.now, state.ends = occupancies, now, ends
    state.placements, state.unplaced, state.queue_passes = {}, {}, {}
    state.events, state.answered, state.carried, state.before_unread = [], [], {}, None
    if not state.available.asleep:
        return
    asleep = tuple([(until, bits) for until, bits in state.available.asleep if until > now])
    if asleep != state.available.asleep:
        state.available = state.available._replace(asleep=asleep)
        state.fits_empty.clear()
        update_packing(state)


def add_placed(state: PassState, occupancies: Occupancies, job: PlacedJob) -> None:
    """Add the occupation of a placed job."""
    if state.containers.needed:
        container = state.containers.open(job, _container_occupation(state, job))
        if container is not None:
            occupancies.forget_container(container)
    kind, occupation = state.kind(job), _occupation_of(state, job)
    occupancies.settle(job.job_id, kind, occupation)
    state.limits.count(job, kind, occupation, job.stop - job.start)


def _container_occupation(state: PassState, job: PlacedJob) -> Occupation:
    """Return the resources and time that a container job offers to inner jobs."""
    return Occupation(job.start, job.stop, state.own_resources(job))


def _occupation_of(state: PassState, job: PlacedJob) -> Occupation:
    """Return what a placed job occupies: less if it is suspended, one more second if it is overdue."""
    resources = state.own_resources(job)
    if job.state == JobState.SUSPENDED:
        resources = without(resources, _given_back(state))
    stop = job.stop + state.settings.security_time
    if job.state not in {JobState.WAITING, JobState.HOLD}:
        stop = max(stop, state.now + 1)  # overdue and not ended
    return Occupation(job.start, stop, resources)


def _given_back(state: PassState) -> int:
    """Return the resources that a suspended job releases."""
    types = state.layout.by_value("type") if "type" in state.layout.table.columns else {}
    return union(types.get(kind, 0) for kind in state.settings.shared_when_suspended)


def update_besteffort(state: PassState) -> None:
    """Recompute which best-effort jobs hold resources and can be killed, and which are ending."""
    jobs = [job for job in state.placed.values() if parse_types(job.types).besteffort]
    holders = [JobResources(job.job_id, state.kind(job), state.own_resources(job)) for job in jobs]
    ending = {job.job_id for job in jobs if job.state == JobState.FINISHING}
    state.besteffort = [holder for holder in holders if holder.job_id not in ending]
    state.ending = [holder for holder in holders if holder.job_id in ending]
    state.preemptible = preemptible_resources(state.besteffort)


def update_packing(state: PassState) -> None:
    """Recompute which resources are preferred: those of nodes that are awake or busy."""
    state.packing = packing(state.fitter, state.available, state.placed.values(), pack=state.settings.pack)
