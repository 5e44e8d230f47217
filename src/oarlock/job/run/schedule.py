"""Schedule: read the snapshot for the planner, and apply the decision that comes back.

Between the snapshot and now others may have moved jobs and nodes: what no longer fits is left to the next pass.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from msgspec import Struct, structs

from oarlock.config import Config
from oarlock.job import quotas
from oarlock.job.admission import dates
from oarlock.job.run import containers, kill, launch, walltime
from oarlock.job.run.effects import Checkpoint, Effect, ScheduleAgain, WakeNodes
from oarlock.job.run.launch import Hosts
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import Event, EventType
from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Plan
from oarlock.model.snapshot import SitePlan, Snapshot
from oarlock.plan.planner import OutOfTime, begin_pass, make_plan, never
from oarlock.plan.rules.reservations import is_accepted
from oarlock.plan.settings import Fairness, PlanSettings, Weights
from oarlock.plan.timeline.occupancy import Occupation
from oarlock.settings.kinds import AfterError
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import (
    administration,
    events,
    jobs,
    moves,
    plans,
    resources,
    shapes,
    snapshot,
    user_records,
    walltime_changes,
)
from oarlock.store.queries.plans import Prediction

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
    changed = tuple(planned for planned in decision.predictions if before.get(planned.moldable_id) != _written(planned))
    return structs.replace(
        decision, predictions=changed, gone=tuple(number for number in before if number not in after)
    )


def _written(planned: PlannedStart) -> Prediction:
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


def apply(tx: Tx, context: StepContext, decision: Decision, hosts: Hosts, *, now: float) -> list[Effect]:
    """Make a decision true, as far as it still fits."""
    concerned = {start.job_id for start in decision.starts}
    concerned |= {number for number, _ in decision.accept} | {refusal.job_id for refusal in decision.refuse}
    unit = UnitOfWork(tx, context, now, concerned | set(decision.kill) | set(decision.orphans))
    _note(unit, decision)
    reserved = plans.reserved(tx)
    decision = _answerable(unit, decision, reserved)
    _answer(unit, decision)
    containers.end_orphans(unit, decision.orphans)
    _make_room(unit, decision.kill)
    started = _start_all(unit, decision, hosts)
    _predict(unit, decision, started, set(reserved.values()))
    if decision.priorities is not None:
        resources.set_priorities(tx, dict(decision.priorities))
    walltime.grant(unit, partial(_within_quotas, unit, started))
    if decision.wake:
        unit.add_effects(WakeNodes(decision.wake))
    return unit.write()


_NEXT_JOBS = 256  # waiting jobs of a queue whose planned places are counted when a walltime grows


def _within_quotas(
    unit: UnitOfWork, started: Sequence[JobStart], change: walltime_changes.WalltimeChange, seconds: int
) -> int:
    """Return by how many of these seconds quotas let a job last longer; planned jobs count unless they may be delayed.

    The jobs that this step starts are still stored as waiting.
    """
    settings = plan_settings(unit.config)
    if settings.quotas is None and not administration.all_quotas(unit.tx):
        return seconds
    window = unit.config.karma_window
    shot = read(unit.tx, settings, karma_window=window, now=unit.now, depth=_NEXT_JOBS).snapshot
    state = begin_pass(shot, now=unit.now, settings=settings)
    choices = {choice.moldable_id: (job, choice.walltime) for job in shot.waiting for choice in job.choices}
    planned = {} if change.delay_next_jobs else plans.read(unit.tx, list(choices))
    places = [(place.moldable_id, place.start, place.resources) for place in planned.values()]
    for moldable_id, start, given in (*places, *((start.moldable_id, unit.now, start.resources) for start in started)):
        if moldable_id in choices:
            job, lasting = choices[moldable_id]
            kind = state.kind(job)
            stop = start + state.duration(kind, lasting)
            state.limits.count(job, kind, Occupation(start, stop, state.layout.bits_of(given)), lasting)
    running = state.placed.get(change.job_id)
    if running is None:
        return seconds
    return state.limits.extension(running, state.kind(running), state.own_resources(running), seconds, now=unit.now)


def _start_all(unit: UnitOfWork, decision: Decision, hosts: Hosts) -> list[JobStart]:
    starts = _still_possible(unit, decision)
    if not starts:
        return []
    jobs.assign(unit.tx, {start.moldable_id: start.resources for start in starts})
    lasting = shapes.walltimes(unit.tx, [start.moldable_id for start in starts])
    shorter = {start.moldable_id: start.walltime for start in starts if start.walltime < lasting[start.moldable_id]}
    if shorter:
        shapes.set_walltimes(unit.tx, shorter)
    for start in starts:
        unit.move(
            start.job_id, JobState.TO_LAUNCH, "its resources are free", start=unit.now, assigned=start.moldable_id
        )
    assigned = {start.job_id: start.resources for start in starts}
    launch.begin(unit, [unit.jobs[start.job_id] for start in starts], assigned, hosts)
    return starts


def _still_possible(unit: UnitOfWork, decision: Decision) -> list[JobStart]:
    """Leave out jobs that no longer wait, and those whose resources went away or to a new job."""
    waiting = [start for start in decision.starts if _waits(unit, start.job_id)]
    # Other jobs of users who are not found are not planned; an accepted reservation keeps its place.
    if any(unit.jobs[start.job_id].reservation is Reservation.SCHEDULED for start in waiting):
        doubted = user_records.users_in_doubt(unit.tx, now=unit.now)
        waiting = [start for start in waiting if unit.jobs[start.job_id].user not in doubted]
    wanted = {number for start in waiting for number in start.resources}
    if not wanted:
        return []
    unusable = resources.unusable(unit.tx, wanted)
    permissive = [start for start in waiting if parse_types(unit.jobs[start.job_id].types).permissive]
    removed = resources.removed(unit.tx, unusable) if permissive and unusable else set()
    newcomers = jobs.holders(unit.tx, wanted)
    seen = set(decision.holding)
    taken = {number for number, holders in newcomers.items() if not seen.issuperset(holders)}
    blocked = {start.job_id: removed for start in permissive}
    return [start for start in waiting if (taken | blocked.get(start.job_id, unusable)).isdisjoint(start.resources)]


def _waits(unit: UnitOfWork, job_id: int) -> bool:
    job = unit.jobs.get(job_id)
    return job is not None and job.state is JobState.WAITING


def _is_held(unit: UnitOfWork, job_id: int) -> bool:
    job = unit.jobs.get(job_id)
    return job is not None and job.state is JobState.HOLD


def _answerable(unit: UnitOfWork, decision: Decision, reserved: Mapping[int, int]) -> Decision:
    """Leave out the answers to reservations that have theirs, or whose place may have gone to one accepted since."""
    asking = {
        number
        for number, _ in decision.accept
        if _waits(unit, number) and unit.jobs[number].reservation is Reservation.TO_SCHEDULE
    }
    if not set(decision.reserved).issuperset(reserved):
        asking = set()  # the next pass sees all of them
    left = {number for number, _ in decision.accept} - asking
    if not left:
        return decision
    return structs.replace(
        decision,
        accept=tuple(entry for entry in decision.accept if entry[0] in asking),
        predictions=tuple(entry for entry in decision.predictions if entry.job_id not in left),
        starts=tuple(entry for entry in decision.starts if entry.job_id not in left),
    )


def _answer(unit: UnitOfWork, decision: Decision) -> None:
    """Answer reservations: an accepted one keeps its place, a refused one ends with a sentence."""
    for number, start in decision.accept:
        unit.move(
            number,
            JobState.TO_ACK_RESERVATION,
            "the reservation is accepted",
            reservation=Reservation.SCHEDULED,
            start=start,
        )
        unit.move(number, JobState.WAITING, "its owner was told")
    for refusal in decision.refuse:
        if _waits(unit, refusal.job_id) or (refusal.missed and _is_held(unit, refusal.job_id)):
            _refuse(unit, refusal)


def _refuse(unit: UnitOfWork, refusal: ReservationRefusal) -> None:
    number = refusal.job_id
    if unit.jobs[number].reservation is Reservation.NONE:
        unit.event(EventType.SWITCH_INTO_ERROR_STATE, refusal.says, number)
        unit.move(number, JobState.ERROR, refusal.says, message=refusal.says)
        return
    if refusal.earliest is not None:
        refusal = structs.replace(refusal, says=dates.with_date(refusal.says, refusal.earliest))
    if not refusal.missed:
        unit.move(number, JobState.TO_ERROR, refusal.says, reservation=Reservation.SCHEDULED)
    unit.event(EventType.SWITCH_INTO_ERROR_STATE, refusal.says, number)
    unit.move(number, JobState.ERROR, refusal.says, message=refusal.says, reservation=Reservation.SCHEDULED)


def _make_room(unit: UnitOfWork, ids: Collection[int]) -> None:
    """End best-effort jobs in the way of others; those with a checkpoint delay get the signal first, and that time."""
    if not ids:
        return
    dying = {number for number, _, _ in moves.kills_under_way(unit.tx)}
    for number in ids:
        job, attempt = unit.jobs.get(number), unit.attempts.get(number)
        if job is None or job.state not in HOLDS_RESOURCES or number in dying:
            continue
        notified = _notified_at(unit, number)
        if notified is None:
            unit.event(EventType.BESTEFFORT_KILL, "its resources are wanted by another job", number)
            notified = unit.now
            if job.checkpoint and attempt is not None and job.state is JobState.RUNNING:
                unit.event(EventType.CHECKPOINT, "it has to make room", number)
                unit.add_effects(Checkpoint(attempt.nodes[0].name, number, attempt.number))
        if unit.now >= notified + job.checkpoint:
            kill.end_all(unit, [number], "a best-effort job makes room for another")
        else:
            unit.add_effects(ScheduleAgain(notified + job.checkpoint))


def _notified_at(unit: UnitOfWork, number: int) -> int | None:
    """Return when a best-effort job was notified that it has to end."""
    history = events.of_jobs(unit.tx, [number])
    return next((noted.event.at for noted in history if noted.event.type is EventType.BESTEFFORT_KILL), None)


def _note(unit: UnitOfWork, decision: Decision) -> None:
    """Record the events of the planner; a job that was set aside gets its event once."""
    for kind, says, number in decision.events:
        event = Event(EventType(kind), unit.now, says, number or None)
        if event.type is not EventType.SCHEDULER_JOB_SET_ASIDE or not unit.has_event(number, event.type):
            unit.event(event.type, says, event.job)


def _predict(unit: UnitOfWork, decision: Decision, started: Sequence[JobStart], settled: Set[int]) -> None:
    """Write the plan for those who look at it; a partial pass leaves the predictions of others alone.

    Nobody changes the places of reservations that were accepted before (`settled`), not even who did not know of them.
    """
    has_plan = decision.whole and decision.predictions
    waiting = jobs.numbers_in(unit.tx, [JobState.WAITING, JobState.TO_ACK_RESERVATION]) if has_plan else None
    after = {
        planned.moldable_id: _written(planned)
        for planned in decision.predictions
        if (waiting is None or planned.job_id in waiting) and planned.moldable_id not in settled
    }
    begun = {planned.moldable_id for planned in started}
    if decision.gone is not None:
        gone = (set(decision.gone) - settled) | begun
        if after or gone:
            plans.write(unit.tx, now=decision.now, placed=list(after.values()), gone=gone)
        return
    before = plans.read(unit.tx, None if decision.whole else {*after, *begun})
    placed, lost = plans.difference(before, after)
    gone = {number for number in (lost if decision.whole else ()) if number not in settled} | (begun & before.keys())
    if placed or gone:
        plans.write(unit.tx, now=decision.now, placed=placed, gone=gone)
