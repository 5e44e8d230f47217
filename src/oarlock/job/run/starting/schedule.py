"""Schedule: read the snapshot for the planner, and turn its plan into the decision of a pass."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from msgspec import Struct, structs

from oarlock.config import Config
from oarlock.job import quotas
from oarlock.job.admission import dates
from oarlock.model.event import EventType
from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.model.plan import Obstacle, Placement, Plan
from oarlock.model.snapshot import SitePlan, Snapshot
from oarlock.plan.planner import OutOfTime, make_plan, never
from oarlock.plan.rules.reservations import is_accepted
from oarlock.plan.settings import Fairness, PlanSettings, Weights
from oarlock.settings.kinds import AfterError
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.planning import snapshot
from oarlock.store.queries.planning.plans import Prediction
from oarlock.store.queries.users import user_records

_SOON = 10  # seconds until something that should have happened is looked at again


class JobStart(Struct, frozen=True):
    """A job to start now, on these resources, with what is left of its time."""

    job_id: int
    moldable_id: int
    walltime: int
    resources: tuple[int, ...]


class ReservationRefusal(Struct, frozen=True):
    """A reservation that cannot be, or a job too late for its deadline, and why."""

    job_id: int
    missed: bool
    says: str
    earliest: int | None = None


class PlannedStart(Struct, frozen=True):
    """Where a job that does not start now is planned."""

    job_id: int
    moldable_id: int
    start: int
    resources: tuple[int, ...]


class Decision(Struct, frozen=True, kw_only=True):
    """What a pass wants done now: small enough to travel between processes.

    `whole`: all waiting jobs were looked at, so `predictions` are the whole plan. `holding`: who held resources then,
    `reserved`: which reservations had been accepted.
    `next_start`: when the next planned job is due. `left`: waiting jobs that this pass did not look at. `gone`: unless
    None, `predictions` are only what changed, and these alternatives have no place any more. `priorities`: unless None,
    the `scheduler_priority` of all resources that have one, since it changed.
    """

    now: int
    starts: tuple[JobStart, ...] = ()
    accept: tuple[tuple[int, int], ...] = ()  # job, and the start it was given
    refuse: tuple[ReservationRefusal, ...] = ()
    kill: tuple[int, ...] = ()
    wake: tuple[str, ...] = ()
    orphans: tuple[int, ...] = ()
    events: tuple[tuple[str, str, int], ...] = ()  # type, sentence, job
    predictions: tuple[PlannedStart, ...] = ()
    holding: tuple[int, ...] = ()
    reserved: tuple[int, ...] = ()
    next_start: int | None = None
    whole: bool = True
    left: int = 0
    gone: tuple[int, ...] | None = None
    priorities: tuple[tuple[int, int], ...] | None = None
    programs: tuple[tuple[str, str], ...] = ()  # open queues with a scheduler of the site's own, and its name
    hopeless: tuple[tuple[int, str], ...] = ()  # jobs that will not start as things are, and OAR's message for them

    @property
    def has_changes(self) -> bool:
        """Whether it changes anything: an idle server must not write."""
        return bool(
            self.starts
            or self.accept
            or self.refuse
            or self.kill
            or self.wake
            or self.events
            or self.predictions
            or self.priorities is not None
            or (self.whole if self.gone is None else self.gone)
        )


def plan_settings(config: Config) -> PlanSettings:
    """Return the scheduler's settings under its own names."""
    return PlanSettings(
        security_time=config.scheduler_job_security_time,
        minimum_hole=config.scheduler_gantt_hole_minimum_time,
        order=config.scheduler_resource_order,
        hierarchy=config.scheduler_priority_hierarchy_order,
        always_assigned=config.scheduler_resources_always_assigned_type,
        shared_when_suspended=config.scheduler_available_suspended_resource_type,
        besteffort_notice=config.scheduler_besteffort_kill_duration_before_reservation,
        reservation_patience=config.reservation_waiting_resources_timeout,
        release_after_error=config.dependency_after_error is AfterError.RELEASE,
        wake_up=bool(config.scheduler_node_manager_wake_up_cmd),
        wake_up_notice=config.scheduler_node_manager_wakeup_time,
        pack=config.scheduler_pack_nodes,
        depth=config.plan_depth or None,
        quotas=quotas.current(config),
        fairness=Fairness(
            max_jobs=config.karma_max_jobs,
            project_targets=dict(config.karma_project_targets),
            user_targets=dict(config.karma_user_targets),
            project_weight=config.karma_coeff_project_consumption,
            user_weight=config.karma_coeff_user_consumption,
            requested_weight=config.karma_coeff_user_asked_consumption,
        ),
        weights=Weights(
            **config.priority_weights,
            age_limit=config.priority_age_limit,
            half_life=config.priority_half_life,
            qos_values=dict(config.priority_qos),
            project_values=dict(config.priority_projects),
        ),
    )


def read(
    tx: Tx,
    settings: PlanSettings,
    *,
    karma_window: int,
    now: int,
    depth: int | None = None,
    arrays: bool = False,
    memory: snapshot.SnapshotCache | None = None,
    site_plans: Mapping[str, SitePlan] | None = None,
) -> snapshot.SnapshotRead:
    """Read what the scheduler looks at; with `depth`, only the first waiting jobs of each queue.

    With `arrays` also the first member of each array behind them, where the settings let jobs be passed over.
    """
    seen = snapshot.read(
        tx,
        order=settings.order,
        karma_window=karma_window,
        half_life=settings.weights.half_life,
        now=now,
        depth=depth,
        arrays=arrays and settings.depth is None and settings.quotas is None,
        memory=memory,
    )
    doubted = user_records.users_in_doubt(tx, now=now)
    # A job whose user is not found has no place in the plan: it would keep resources from others for nothing.
    waiting = tuple(dates.dated(job) for job in seen.snapshot.waiting if job.user not in doubted)
    shot = structs.replace(seen.snapshot, waiting=waiting, site_plans=dict(site_plans or {}))
    if settings.quotas is not None:
        always, spans = quotas.rules_over_time(settings.quotas, shot.resources, now=now)
        shot = structs.replace(shot, quotas=(*shot.quotas, *always), quota_spans=spans)
    return replace(seen, snapshot=shot)


def decide(
    seen: snapshot.SnapshotRead, settings: PlanSettings, *, now: int, out_of_time: OutOfTime = never
) -> Decision:
    """Plan a snapshot, and say what has to be done now."""
    plan = make_plan(seen.snapshot, now=now, settings=settings, out_of_time=out_of_time)
    return decision(plan, seen, settings)


def decision(plan: Plan, seen: snapshot.SnapshotRead, settings: PlanSettings, *, whole: bool = True) -> Decision:
    """Return what a plan requires now.

    Not `whole`: it has dates only as far as it had to go. Of these, only those of reservations that it accepts are
    returned: a long queue has very many, and the next pass with dates replaces them.
    """
    shot: Snapshot = seen.snapshot
    later = _later(plan, shot, {job.job_id for job in shot.waiting} if whole else set(plan.accept))
    broken = [(EventType.SCHEDULER_JOB_SET_ASIDE.value, why, number) for number, why in seen.broken]
    return Decision(
        now=plan.now,
        starts=tuple(_start(plan, plan.placements[job_id]) for job_id in plan.start),
        accept=tuple((job_id, plan.placements[job_id].start) for job_id in plan.accept),
        refuse=tuple(_refusal(plan, job_id) for job_id in plan.refuse),
        kill=plan.kill,
        wake=plan.wake,
        orphans=plan.orphans,
        events=(*((event.type.value, event.description, event.job or 0) for event in plan.events), *broken),
        predictions=later,
        holding=tuple(job.job_id for job in shot.placed if job.state in HOLDS_RESOURCES),
        reserved=tuple(job.job_id for job in shot.placed if is_accepted(job)),
        next_start=min(_instants(plan, shot, later, settings), default=None),
        whole=whole and seen.left == 0 and not plan.unfinished,
        left=seen.left,
        programs=tuple([(queue.name, queue.program) for queue in shot.queues if queue.program and queue.active]),
        hopeless=tuple(_hopeless(plan)),
    )


_SLICE = 10_000  # dates that are written in one transaction
_NO_SLOT = "No enough matching resources (no_matching_slot)"
_NO_SLOT_FOR = frozenset({Obstacle.TOO_BIG, Obstacle.UNAVAILABLE, Obstacle.ALWAYS_ASSIGNED})


def _hopeless(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield the jobs that cannot be placed at all, with the message that OAR gives them."""
    for number, unplaced in plan.unplaced.items():
        if unplaced.obstacle in _NO_SLOT_FOR:
            yield number, _NO_SLOT
        elif unplaced.obstacle is Obstacle.BROKEN_DEPENDENCY:
            cause = unplaced.detail.partition(",")[0]
            yield number, f"Cannot determine scheduling time due to dependency with the {cause}"


def hopeless_after(before: Mapping[int, str], decision: Decision) -> Mapping[int, str]:
    """Return which jobs cannot be placed after a pass; one that did not look at all jobs leaves the others alone."""
    if decision.whole:
        return dict(decision.hopeless)
    placed = {entry.job_id for entry in decision.starts} | {entry.job_id for entry in decision.predictions}
    return {**{number: says for number, says in before.items() if number not in placed}, **dict(decision.hopeless)}


def only_changes(decision: Decision, before: Mapping[int, Prediction]) -> Decision:
    """Reduce a whole decision to the placements that differ from the stored ones."""
    after = {planned.moldable_id: planned for planned in decision.predictions}
    changed = tuple(
        planned for planned in decision.predictions if before.get(planned.moldable_id) != as_prediction(planned)
    )
    return structs.replace(
        decision, predictions=changed, gone=tuple(number for number in before if number not in after)
    )


def as_prediction(planned: PlannedStart) -> Prediction:
    """Return the row of a planned start."""
    return Prediction(planned.moldable_id, planned.start, planned.resources)


def _due(start: int, now: int, settings: PlanSettings) -> int:
    """Return when a planned start needs a pass: when nodes have to be woken for it, then when it has come.

    One that is overdue is looked at when patience with it ends, or soon.
    """
    patience = settings.reservation_patience
    if settings.wake_up and start - settings.wake_up_notice > now:
        return start - settings.wake_up_notice
    if start > now:
        return start
    return start + patience if start + patience > now else now + _SOON


def _instants(plan: Plan, shot: Snapshot, later: Sequence[PlannedStart], settings: PlanSettings) -> list[int]:
    """Return when something has to be decided; a held reservation is looked at when its end has come."""
    ends = {job.job_id: job.stop for job in shot.placed if job.state is JobState.HOLD}
    starts = [_due(planned.start, plan.now, settings) for planned in later if planned.job_id not in ends]
    return [*starts, *(max(stop, plan.now + 1) for stop in ends.values()), *_dates(plan, shot)]


def _dates(plan: Plan, shot: Snapshot) -> list[int]:
    """Return when jobs without a placement become eligible, and when they are too late for their deadlines."""
    hoping = [job for job in shot.waiting if job.job_id in plan.unplaced]
    late = [
        job.deadline - min(choice.walltime for choice in job.choices) + 1 for job in hoping if job.deadline is not None
    ]
    return [instant for instant in (*late, *(job.not_before for job in hoping)) if instant > plan.now]


def _later(plan: Plan, shot: Snapshot, waiting: Set[int]) -> tuple[PlannedStart, ...]:
    """Return the placements of jobs that do not start now: new ones of these, and reservations accepted before."""
    starting = set(plan.start)
    new = [
        PlannedStart(job_id, place.moldable_id, place.start, tuple(sorted(plan.resources(job_id))))
        for job_id, place in plan.placements.items()
        if job_id in waiting and job_id not in starting
    ]
    promised = [
        PlannedStart(job.job_id, job.moldable_id, job.start, job.resources)
        for job in shot.placed
        if job.state not in HOLDS_RESOURCES and job.job_id not in starting
    ]
    return (*new, *promised)


def _start(plan: Plan, place: Placement) -> JobStart:
    return JobStart(place.job_id, place.moldable_id, place.stop - plan.now, plan.resources(place.job_id))


def _refusal(plan: Plan, job_id: int) -> ReservationRefusal:
    why = plan.unplaced[job_id]
    return ReservationRefusal(job_id, why.obstacle is Obstacle.MISSED, why.detail, why.earliest)


def slices(decision: Decision) -> list[Decision]:
    """Divide a decision with very many new dates, so that others can write in between: all but dates comes first."""
    count = len(decision.predictions)
    if decision.gone is None or count <= _SLICE:
        return [decision]
    # A reservation that is accepted has its place in the same transaction.
    accepted = {number for number, _ in decision.accept}
    planned = sorted(decision.predictions, key=lambda entry: entry.job_id not in accepted)
    first, *others = (tuple(planned[at : at + _SLICE]) for at in range(0, count, _SLICE))
    later = [Decision(now=decision.now, predictions=part, reserved=decision.reserved, gone=()) for part in others]
    return [structs.replace(decision, predictions=first), *later]
