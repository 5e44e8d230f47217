"""Watch: what has to happen because time passes; run every WATCH_FREQUENCY seconds."""

from collections.abc import Collection, Mapping, Sequence

from oarlock.job.cluster import node_states, power
from oarlock.job.run import finish, kill, suspend, walltime
from oarlock.job.run.effects import Effect, ScheduleAgain
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, FragState, Job, JobState
from oarlock.model.job_type import parse_types
from oarlock.model.resource import DEFAULT_TYPE, ResourceState
from oarlock.store.engine import facts
from oarlock.store.engine.facts import ClockJumps
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs, moves, shapes

_ACTIVE = (JobState.LAUNCHING, JobState.RUNNING, JobState.RESUMING, JobState.FINISHING)
_ON_NODES = (*_ACTIVE, JobState.SUSPENDED)
_SILENCE = 30  # seconds after which a node with jobs that cannot be reached is suspected
_SWITCHED = (ResourceState.SUSPECTED, ResourceState.ABSENT)


def check(
    tx: Tx,
    context: StepContext,
    *,
    now: float,
    finished: FinishedAttempts,
    unreachable: Mapping[str, float] | None = None,
) -> list[Effect]:
    """Do what its time has come for. `unreachable`: nodes whose connection is lost, with since when."""
    away = unreachable or {}
    jumped = facts.read_clock_jumps(tx)
    overdue = _deadlines_passed(tx, jumped, now=int(now))
    dying = moves.kills_under_way(tx)
    # Thousands may run; those for whom something has to happen are few.
    unit = UnitOfWork(tx, context, now, {*overdue, *(number for number, _, _ in dying)})
    for number, deadline in overdue.items():
        _overdue(unit, unit.jobs[number], deadline, away, finished)
    _insist_on_kills(unit, dying, away, jumped)
    finish.release_again(unit, finished, away)
    silent = {node: "its connection is lost" for node, since in away.items() if now - since >= _SILENCE}
    node_states.suspect_unreachable(unit, silent)
    node_states.suspect_expired(unit)
    _mark_dead(unit, jumped)
    power.manage_power(unit)
    node_states.heal_suspected(unit)
    suspend.close_events_of_ended_jobs(tx)
    return [
        *unit.write(),
        *suspend.suspend_again(tx, context, now=now, away=away),
        *suspend.resume_where_free(tx, context, now=now, away=away),
        *walltime.look_again(tx, context, now=now),
    ]


def clock_jumped(tx: Tx, context: StepContext, *, now: float, seconds: int) -> list[Effect]:
    """Note that the server's clock jumped; no walltime ends because of it. Reservations follow the clock."""
    facts.add_clock_jump(tx, now=int(now), seconds=seconds)
    unit = UnitOfWork(tx, context, now)
    unit.event(EventType.CLOCK_JUMP, f"the server's clock jumped by {seconds:+d} s")
    unit.add_effects(ScheduleAgain())
    return unit.write()


def _deadlines_passed(tx: Tx, jumped: ClockJumps, *, now: int) -> dict[int, int]:
    """Return the jobs whose walltime is over, and since when; time spent suspended does not count."""
    waited = jobs.suspended_seconds(tx, now=now)
    ends = {
        number: jumped.today(start) + walltime + waited.get(number, 0)
        for number, start, walltime in shapes.starts_and_walltimes(tx, _ACTIVE)
    }
    return {number: end for number, end in ends.items() if end <= now}


def _overdue(unit: UnitOfWork, job: Job, deadline: int, away: Mapping[str, float], finished: FinishedAttempts) -> None:
    if parse_types(job.types).noop:
        unit.event(EventType.WALLTIME, "its walltime is over", job.id)
        kill.end(unit, job, "its walltime is over")
        return
    config = unit.config
    attempt = unit.attempts.get(job.id)
    if attempt is None or attempt.closed_us is not None:
        return
    lost = [name for name in finished.nodes_left(attempt) if name in away]
    for name in lost:
        if unit.now >= deadline + config.lease_grace:
            finish.attempt_lost(
                unit, unit.attempts[job.id], name, finished, f"{name} cannot be reached and its lease is over"
            )
    # The node ends the job by itself at its walltime; the kill is sent only if that does not happen.
    late = config.jobdel_softwalltime + config.watch_frequency
    if not lost and job.state is JobState.RUNNING and unit.now >= deadline + late:
        _end_at_walltime(unit, job)


def _end_at_walltime(unit: UnitOfWork, job: Job) -> None:
    if moves.request_kills(unit.tx, [job.id], at=unit.now):
        unit.event(EventType.WALLTIME, "its walltime is over and its node has not ended it", job.id)
        kill.end(unit, job, "its walltime is over")


def _insist_on_kills(
    unit: UnitOfWork, dying: Sequence[tuple[int, FragState, int]], away: Mapping[str, float], jumped: ClockJumps
) -> None:
    """Repeat kills that had no effect, then give the job up. Nodes out of reach are waited for."""
    config = unit.config
    for number, state, since in dying:
        job = unit.jobs.get(number)
        # Asked for too late, or by whoever wrote the row: there is nothing left to kill.
        if job is None or job.state in FINAL:
            unit.set_kill_state(number, FragState.FRAGGED)
            continue
        if job.state not in _ON_NODES or _out_of_reach(unit, number, away):
            continue
        age = unit.now - jumped.today(since)
        if age >= config.jobdel_walltime:
            unit.set_kill_state(number, FragState.LEON_EXTERMINATE)
            kill.give_up(unit, job, f"it did not end within {config.jobdel_walltime} s")
        elif state is FragState.LEON or age >= config.jobdel_softwalltime:
            kill.send(unit, job)


def _out_of_reach(unit: UnitOfWork, number: int, away: Collection[str]) -> bool:
    attempt = unit.attempts.get(number)
    return attempt is not None and attempt.closed_us is None and any(node.name in away for node in attempt.nodes)


def _mark_dead(unit: UnitOfWork, jumped: ClockJumps) -> None:
    """Declare resources Dead that have been Suspected or Absent for DEAD_SWITCH_TIME; those asleep can be woken."""
    limit = unit.config.dead_switch_time
    if not limit:
        return
    since = resources.states_since(unit.tx)
    dead = [
        resource.id
        for resource in resources.listed(unit.tx)
        if resource.properties["type"] == DEFAULT_TYPE
        and resource.properties["state"] in _SWITCHED
        and not power.is_asleep(resource, unit.now)
        and unit.now - jumped.today(since.get(resource.id, unit.now)) >= limit
    ]
    if dead:
        resources.set_state(unit.tx, dead, ResourceState.DEAD, at=unit.now)
