"""The scheduling pass: queues by priority, each job at the earliest place that delays no job before it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from oarlock.model.event import Event, EventType
from oarlock.model.job import Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Plan, Unplaced
from oarlock.model.snapshot import PlacedJob, Queue, Shape, Snapshot, Usage, WaitingJob
from oarlock.plan import actions, commitments
from oarlock.plan.fit.fit import Fit
from oarlock.plan.inputs import PlanInputs, inputs_from_table
from oarlock.plan.policy.packing import packing
from oarlock.plan.policy.policies import by_priority, find_policy
from oarlock.plan.policy.priority import PriorityCalculator
from oarlock.plan.queue_pass import QueuePass
from oarlock.plan.rules import reservations
from oarlock.plan.rules.besteffort import preemptible_resources
from oarlock.plan.rules.containers import Containers
from oarlock.plan.rules.dependencies import Blocked, earliest_start
from oarlock.plan.rules.search import PlacementOption
from oarlock.plan.rules.timesharing import BadTimesharing, sharing_class
from oarlock.plan.rules.windows import PlanLimits
from oarlock.plan.sets.bitset import without
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind
from oarlock.plan.timeline.occupancy import Occupancy, Occupation

OutOfTime = Callable[[], bool]


_ORDINARY = OccupancyKind()
_RAN_OUT = "the scheduler ran out of time before it"
_LATE = "it could not be over by its deadline"


def never() -> bool:
    """Return False: for passes without a time limit."""
    return False


def make_plan(
    snapshot: Snapshot,
    *,
    now: int,
    settings: PlanSettings | None = None,
    out_of_time: OutOfTime = never,
    previous: Plan | None = None,
) -> Plan:
    """Plan all jobs. Dates of a `previous` plan are kept where the policy keeps them; all if it was unfinished."""
    planner = Planner(snapshot, now=now, settings=settings or PlanSettings())
    return planner.run(out_of_time=out_of_time, previous=previous)


class Planner:
    """The state of a scheduling pass. After `run`, `explain` reads it and `incremental` feeds it single events."""

    def __init__(
        self, snapshot: Snapshot, *, now: int, settings: PlanSettings, inputs: PlanInputs | None = None
    ) -> None:
        self.settings, self.now = settings, now
        inputs = inputs or inputs_from_table(snapshot.resources, settings, now)
        self.layout, self.fitter, self.available = inputs.layout, inputs.fitter, inputs.available
        self.containers = Containers([*snapshot.placed, *snapshot.waiting])
        self.limits = PlanLimits(self, snapshot)
        self.occupancies = Occupancies(inputs.new_occupancy, self.available, now, self.limits.windows, self.containers)
        self.queues = sorted(snapshot.queues, key=lambda queue: -queue.priority)
        self.usage = snapshot.usage
        self.shapes: list[Shape] = list(snapshot.shapes)
        self.placed = {job.job_id: job for job in snapshot.placed}
        self.accepted = {job.job_id: job for job in snapshot.placed if reservations.is_accepted(job)}
        self.waiting = {job.job_id: job for job in snapshot.waiting}
        self.dated = {job.job_id for job in snapshot.waiting if job.reservation == Reservation.TO_SCHEDULE}
        self.deadlines = [job.job_id for job in snapshot.waiting if job.deadline is not None]
        self.recent = dict(snapshot.recent)
        self.placements: dict[int, Placement] = {}
        self.unplaced: dict[int, Unplaced] = {}
        self._fits: dict[int, Fit] = {}
        self._fits_empty: dict[int, bool] = {}
        self._queue_passes: dict[str, QueuePass] = {}
        self.events: list[Event] = []
        self.answered: list[int] = []
        self.before_unread: Occupancies | None = None  # set while jobs that are not in the snapshot come first
        self.promised: Mapping[int, Placement]
        self._carried: Mapping[int, Placement] = {}
        # An overdue job that has not ended keeps its dependants from starting now.
        self.ends = {job.job_id: max(job.stop, now + 1) for job in snapshot.placed}
        for job in snapshot.placed if self.containers.needed else ():
            self.containers.open(job, actions.container_occupation(self, job))
        for job in snapshot.placed:
            self.add_placed(job)
        self.update_besteffort()
        self._update_packing()
        self.promised = commitments.promised_placements(self, snapshot)

    def run(self, *, out_of_time: OutOfTime = never, previous: Plan | None = None) -> Plan:
        """Place every waiting job, or record the reason why it has no place."""
        if previous is not None and previous.ids == self.layout.ids:
            self.promised = previous.placements
            self._carried = previous.placements if previous.unfinished else {}
        by_queue: dict[str, list[WaitingJob]] = {}
        for job in self.waiting.values():
            by_queue.setdefault(job.queue, []).append(job)
        finished = [self._plan_queue(queue, by_queue.pop(queue.name, []), out_of_time) for queue in self.queues]
        for name, jobs in by_queue.items():
            self.set_unplaced(jobs, Obstacle.QUEUE_STOPPED, f"there is no queue `{name}`")
        return actions.finish_plan(self, unfinished=not all(finished))

    def add(self, job: WaitingJob) -> None:
        """Place another job after all others."""
        self.waiting[job.job_id] = job
        if job.reservation == Reservation.TO_SCHEDULE:
            self.dated.add(job.job_id)
        if job.deadline is not None:
            self.deadlines.append(job.job_id)
        queue = next((queue for queue in self.queues if queue.name == job.queue), None)
        queue_pass = self._queue_passes.get(job.queue)
        if queue is None:
            self.set_unplaced([job], Obstacle.QUEUE_STOPPED, f"there is no queue `{job.queue}`")
        elif queue_pass is None or job.job_id in self.dated:
            self._plan_queue(queue, [job], never)
        else:
            queue_pass.append(job)
            while queue_pass.step():
                pass

    def begin(self, occupancies: Occupancies, now: int, ends: dict[int, int]) -> None:
        """Restart the pass on occupancies that contain only placed jobs; `ends` are their ends."""
        self.occupancies, self.now, self.ends = occupancies, now, ends
        self.placements, self.unplaced, self._queue_passes = {}, {}, {}
        self.events, self.answered, self._carried, self.before_unread = [], [], {}, None
        if not self.available.asleep:
            return
        asleep = tuple([(until, bits) for until, bits in self.available.asleep if until > now])
        if asleep != self.available.asleep:
            self.available = self.available._replace(asleep=asleep)
            self._fits_empty.clear()
            self._update_packing()

    def _update_packing(self) -> None:
        self._packing = packing(self.fitter, self.available, self.placed.values(), pack=self.settings.pack)

    def update_besteffort(self) -> None:
        """Recompute which best-effort jobs hold resources and can be killed."""
        self.besteffort, self.ending = actions.killable_jobs(self), actions.ending_jobs(self)
        self._preemptible = preemptible_resources(self.besteffort)

    def fit(self, shape: int) -> Fit:
        """Return the compiled shape of an index; cached."""
        fit = self._fits.get(shape)
        if fit is None:
            fit = self._fits[shape] = self.fitter.compile(self.shapes[shape])
        return fit

    def units(self, fit: Fit, resources: int) -> int:
        """Return a set of resources in the units of a shape: its whole nodes, or the resources themselves."""
        return self.fitter.whole_nodes(resources) if fit.of_nodes else resources

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
        container = self.containers.room_of(
            job, None if isinstance(job, WaitingJob) else actions.own_resources(self, job)
        )
        return OccupancyKind(types.besteffort, sharing, new, container, types.placeholder, types.allowed)

    def duration(self, kind: OccupancyKind, walltime: int) -> int:
        """Return how long a job occupies resources: the walltime and the security time between jobs."""
        if kind.besteffort:
            return max(self.settings.besteffort_duration, self.settings.security_time)
        return walltime + self.settings.security_time

    def _plan_queue(self, queue: Queue, jobs: list[WaitingJob], out_of_time: OutOfTime) -> bool:
        """Plan one queue; False when time ran out."""
        queue_pass = self.queue_pass(queue, jobs)
        if queue_pass is None:
            return True
        if jobs and out_of_time():  # reservations are not answered before jobs of higher queues are placed
            self.set_unplaced(jobs, Obstacle.OUT_OF_TIME, _RAN_OUT)
            return False
        while queue_pass.at < queue_pass.dated or queue_pass.over or not out_of_time():
            if not queue_pass.step():
                return True
        self.set_unplaced(queue_pass.left, Obstacle.OUT_OF_TIME, _RAN_OUT)
        return False

    def queue_pass(self, queue: Queue, jobs: list[WaitingJob]) -> QueuePass | None:
        """Begin the pass of a queue; None, with a reason for every job, if the queue cannot be planned."""
        policy = find_policy(queue.policy)
        if not queue.active:
            self.set_unplaced(jobs, Obstacle.QUEUE_STOPPED, f"queue `{queue.name}` is stopped")
        elif policy is None:
            self.set_unplaced(
                jobs, Obstacle.QUEUE_STOPPED, f"queue `{queue.name}` has an unknown policy `{queue.policy}`"
            )
        elif self.available.missing_always:
            names = ", ".join(self.layout.nodes_of(self.available.missing_always)) or "a resource"
            self.set_unplaced(jobs, Obstacle.ALWAYS_ASSIGNED, f"{names}, which every job needs, is not available")
        else:
            if policy.order is by_priority:
                policy = dataclasses.replace(policy, order=PriorityCalculator(self, queue.name).order)
            dated = [job for job in jobs if job.job_id in self.dated] if self.dated else []
            undated = [job for job in jobs if job.job_id not in self.dated] if dated else jobs
            queue_pass = self._queue_passes[queue.name] = QueuePass(
                self, policy, dated, undated, self.usage.get(queue.name, Usage())
            )
            return queue_pass
        return None

    def plan_safely(self, job: WaitingJob, step: Callable[[WaitingJob], None]) -> None:
        """Run one planning step of a job; an exception sets this job aside and leaves the others alone."""
        try:
            step(job)
        except Exception as error:  # noqa: BLE001
            self.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.SET_ASIDE, f"planning it failed: {error}")
            message = f"planning job {job.job_id} failed: {error}"
            self.events.append(Event(EventType.SCHEDULER_JOB_SET_ASIDE, self.now, message, job.job_id))

    def may_backfill(self, job: WaitingJob) -> bool:
        """Return whether a job without a date may be backfilled."""
        queue_pass = self._queue_passes.get(job.queue)
        return (
            queue_pass is not None and queue_pass.only_starts and not queue_pass.strict_order and job in queue_pass.jobs
        )

    def fits_empty_cluster(self, shape: int) -> bool:
        """Return whether a shape fits if all available resources are free."""
        cached = self._fits_empty.get(shape)
        if cached is None:
            fit = self.fit(shape)
            cached = self._fits_empty[shape] = fit.fits(self.units(fit, self.available.plannable))
        return cached

    def place(self, job: WaitingJob, held: Placement | None = None) -> None:
        """Place a job at the earliest start that delays no job before it, or record why there is none.

        The place that it `held` is given up only for one that is at least as good.
        """
        kind = self.kind(job)
        occupancy = self.occupancies.occupancy(kind)
        earliest = self.earliest(job) if job.after or job.types else job.not_before
        if isinstance(earliest, Blocked):
            self.unplaced[job.job_id] = Unplaced(job.job_id, earliest.obstacle, earliest.detail)
            return
        if job.job_id in self._carried and self.keep_place(job, self._carried[job.job_id], kind, earliest):
            return
        best: PlacementOption | None = None
        for choice in job.choices:
            fit = self.fit(choice.shape)
            window = self.limits.find_earliest(job, kind, choice, fit, earliest)
            if window is not None and (best is None or window.start + choice.walltime < best.end):
                best = PlacementOption(choice, fit, window)
        if held is not None and (best is None or best.end > held.stop) and self.keep_place(job, held, kind, earliest):
            return
        if best is not None:
            self.place_before_deadline(job, kind, occupancy, best)
        else:
            self.unplaced[job.job_id] = self.why_never(job, kind)

    def earliest(self, job: WaitingJob) -> int | Blocked:
        """Return the earliest start that a job's date, container and dependencies allow, or what blocks it."""
        if job.types and (container := self.containers.room_of(job)) is not None:
            blocked = self.containers.blocked(container)
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

    def hole_length(self, kind: OccupancyKind, walltime: int) -> int:
        """Return how long a free window must be: the job's duration, or the site's minimum if that is longer."""
        return max(self.duration(kind, walltime), self.settings.minimum_hole)

    def place_before_deadline(
        self, job: WaitingJob, kind: OccupancyKind, occupancy: Occupancy, option: PlacementOption
    ) -> None:
        """Place a job in a window that was found, unless it would end after its deadline."""
        if job.deadline is not None and option.end > job.deadline:
            self.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.DEADLINE, _LATE, option.window.start)
            return
        start, walltime = option.window.start, option.choice.walltime
        taken = self.choose_resources(kind, option.fit, option.window.free)
        self._assign(
            job, Placement(job.job_id, option.choice.moldable_id, start, start + walltime, taken), kind, occupancy
        )

    def choose_resources(self, kind: OccupancyKind, fit: Fit, free: int) -> int:
        """Choose resources of a free set, if possible without killing best-effort jobs."""
        if self._preemptible and not kind.besteffort:
            dying = self._preemptible.get(kind.container, 0)
            danger = self.fitter.touched_nodes(dying) if fit.of_nodes else dying
            peaceful = self._packing.take(fit, without(free, danger))
            if peaceful:
                return peaceful
        return self._packing.take(fit, free)

    def _assign(self, job: WaitingJob, placement: Placement, kind: OccupancyKind, occupancy: Occupancy | None) -> None:
        length = self.duration(kind, placement.stop - placement.start)
        occupation = Occupation(placement.start, placement.start + length, placement.resources)
        if always := self.available.always:  # every job gets these, so they are not occupied
            occupation = replace(occupation, resources=without(placement.resources, always))
            placement = replace(placement, resources=placement.resources | always)
        self.occupancies.settle(job.job_id, kind, occupation, found_in=occupancy)
        self.limits.count(job, kind, occupation, placement.stop - placement.start)
        if job.types:
            self.refresh_container(self.containers.open(job, replace(occupation, stop=placement.stop)))
        self.ends[job.job_id] = placement.stop
        self.placements[job.job_id] = placement

    def keep_place(self, job: WaitingJob, old: Placement, kind: OccupancyKind, earliest: int) -> bool:
        """Keep the place of an earlier pass if it is still free; return whether it is."""
        occupancy = self.occupancies.occupancy(kind)
        resources = without(old.resources, self.available.always)
        stop = old.start + self.duration(kind, old.stop - old.start)
        if old.start < max(self.now, earliest) or not occupancy.has_free(Occupation(old.start, stop, resources)):
            return False
        if not self.limits.allow(job, kind, old, resources):
            return False
        self._assign(job, Placement(job.job_id, old.moldable_id, old.start, old.stop, resources), kind, occupancy)
        return True

    def improve_place(self, job: WaitingJob) -> None:
        """Move a job to the earliest place while all others keep theirs; its own resources count as free.

        Its present place may be shorter than `minimum_hole`, so a search alone would not find it again.
        """
        held = self.placements.pop(job.job_id, None)
        if held is not None:
            self.occupancies.remove(job.job_id)
            self.limits.forget(job.job_id)
            self.refresh_container(self.containers.withdraw(job) if job.types else None)
            del self.ends[job.job_id]
            if job.deadline is not None and held.stop > job.deadline:
                held = None
        self.place(job, held)

    def answer_reservation(self, job: WaitingJob) -> None:
        """Accept a new reservation at its date, or refuse it."""
        kind = self.kind(job)
        window = self.limits.place_reservation(job, kind)
        self.answered.append(job.job_id)
        if isinstance(window, Placement):
            self._assign(job, window, kind._replace(reservation=False), None)
        else:
            self.unplaced[job.job_id] = window

    def why_never(self, job: WaitingJob, kind: OccupancyKind) -> Unplaced:
        """Explain why a job never gets a place: it exceeds the cluster, the available part of it, or a limit."""
        fits = [self.fit(choice.shape) for choice in job.choices]
        if not any(fit.fits(self.units(fit, self.available.existing)) for fit in fits):
            return Unplaced(job.job_id, Obstacle.TOO_BIG, "the cluster never has what it asks for, even empty")
        return self.limits.why_never(job, kind)

    def refresh_container(self, container: str | None) -> None:
        """Rebuild on demand what inner jobs of a container see, after the container grew or shrank."""
        if container is not None:
            self.occupancies.forget_container(container)

    def set_unplaced(self, jobs: Iterable[WaitingJob], obstacle: Obstacle, detail: str) -> None:
        """Record why jobs have no place."""
        for job in jobs:
            self.unplaced[job.job_id] = Unplaced(job.job_id, obstacle, detail)

    def add_placed(self, job: PlacedJob) -> None:
        """Add the occupation of a placed job."""
        if self.containers.needed:
            self.refresh_container(self.containers.open(job, actions.container_occupation(self, job)))
        kind, occupation = self.kind(job), actions.occupation_of(self, job)
        self.occupancies.settle(job.job_id, kind, occupation)
        self.limits.count(job, kind, occupation, job.stop - job.start)
