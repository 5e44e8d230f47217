"""Apply: make the decision of a scheduling pass true, as far as it still fits.

Between the snapshot and now others may have moved jobs and nodes: what no longer fits is left to the next pass.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from functools import partial

from msgspec import structs

from oarlock.job.admission import dates
from oarlock.job.admission.containers import is_open
from oarlock.job.run import kill, walltime
from oarlock.job.run.effects import Checkpoint, Effect, ScheduleAgain, WakeNodes
from oarlock.job.run.starting import launch
from oarlock.job.run.starting.launch import Hosts
from oarlock.job.run.starting.schedule import (
    Decision,
    JobStart,
    ReservationRefusal,
    as_prediction,
    plan_settings,
    read,
)
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import Event, EventType
from oarlock.model.job import HOLDS_RESOURCES, Job, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.plan.planner import begin_pass
from oarlock.plan.timeline.occupancy import Occupation
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import jobs, moves, shapes, walltime_changes
from oarlock.store.queries.planning import array_limits, plans, predictions
from oarlock.store.queries.planning.plans import Prediction
from oarlock.store.queries.site import administration
from oarlock.store.queries.users import user_records


def apply_decision(tx: Tx, context: StepContext, decision: Decision, hosts: Hosts, *, now: float) -> list[Effect]:
    """Make a decision true, as far as it still fits."""
    concerned = {start.job_id for start in decision.starts}
    concerned |= {number for number, _ in decision.accept} | {refusal.job_id for refusal in decision.refuse}
    unit = UnitOfWork(tx, context, now, concerned | set(decision.kill) | set(decision.orphans))
    _note(unit, decision)
    reserved = plans.reserved(tx)
    decision = _answerable(unit, decision, reserved)
    _answer(unit, decision)
    end_orphans(unit, decision.orphans)
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
    if any(parse_types(unit.jobs[start.job_id].types).at_once for start in waiting):
        held_back = array_limits.held_back(unit.tx)
        waiting = [start for start in waiting if start.job_id not in held_back]
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
        unit.move(number, JobState.WAITING, "its owner was notified")
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
        planned.moldable_id: as_prediction(planned)
        for planned in decision.predictions
        if (waiting is None or planned.job_id in waiting) and planned.moldable_id not in settled
    }
    begun = {planned.moldable_id for planned in started}
    # The date of a reservation is its own, and who starts at once was promised nothing: neither was predicted.
    reservations = {number for number, _ in decision.accept}
    jobs_of = {
        planned.moldable_id: planned.job_id
        for planned in decision.predictions
        if planned.job_id not in reservations and planned.moldable_id not in begun
    }
    if decision.gone is not None:
        gone = (set(decision.gone) - settled) | begun
        if after or gone:
            plans.write(unit.tx, now=decision.now, placed=list(after.values()), gone=gone)
            _keep_first_dates(unit.tx, jobs_of, after.values(), now=decision.now)
        return
    before = plans.read(unit.tx, None if decision.whole else {*after, *begun})
    placed, lost = plans.difference(before, after)
    gone = {number for number in (lost if decision.whole else ()) if number not in settled} | (begun & before.keys())
    if placed or gone:
        plans.write(unit.tx, now=decision.now, placed=placed, gone=gone)
        new = [place for place in placed if place.moldable_id not in before]
        _keep_first_dates(unit.tx, jobs_of, new, now=decision.now)


def _keep_first_dates(tx: Tx, jobs_of: Mapping[int, int], placed: Iterable[Prediction], *, now: int) -> None:
    dates = {jobs_of[place.moldable_id]: place.start for place in placed if place.moldable_id in jobs_of}
    predictions.keep_first(tx, dates.items(), now=now)


def end_orphans(unit: UnitOfWork, ids: Collection[int]) -> None:
    """End inner jobs whose container is over. One that is held is not; and whoever waits for a name waits on."""
    orphans = [unit.jobs[number] for number in ids if number in unit.jobs]
    numbers = {int(name) for job in orphans if (name := parse_types(job.types).inner or "").isdecimal()}
    live = {job.id for job in jobs.existing(unit.tx, numbers) if is_open(job)}
    lost = [job for job in orphans if _is_lost(job, live)]
    for job in lost:
        kill.end_all(unit, [job.id], f"its container `{parse_types(job.types).inner}` is over")


def _is_lost(job: Job, live: set[int]) -> bool:
    name = parse_types(job.types).inner or ""
    if job.state in HOLDS_RESOURCES:
        return job.state is not JobState.FINISHING
    return job.state is JobState.WAITING and name.isdecimal() and int(name) not in live
