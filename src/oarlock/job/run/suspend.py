"""Hold and resume: waiting jobs are kept from starting; running ones are suspended on their nodes and resumed later."""

from collections.abc import Callable, Collection, Sequence

from oarlock.job.run import kill
from oarlock.job.run.effects import ActionOutcome, ActionResult, Effect, Resume, Suspend, refused
from oarlock.job.run.reports import JobResumed, JobSuspended
from oarlock.job.run.starting.launch_result import message_without_hold
from oarlock.job.run.unit_of_work import AWAITS_NODES, StepContext, UnitOfWork
from oarlock.model.errors import IllegalMove, UnknownJob
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, HOLDS_RESOURCES, Job, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import jobs, moves
from oarlock.store.queries.job.attempts import Attempt

_TO_SUSPEND = frozenset({JobState.RUNNING, JobState.SUSPENDED})
_ACTIVE = HOLDS_RESOURCES - {JobState.SUSPENDED, JobState.RESUMING}


def hold(
    tx: Tx, context: StepContext, ids: Sequence[int], *, by: str, now: float, running: bool = False
) -> ActionOutcome:
    """Keep waiting jobs from starting; with `running`, stop running ones (as a rule, for an administrator)."""
    unit = UnitOfWork(tx, context, now, ids)
    return _each(unit, ids, lambda job: _hold(unit, job, by, running=running))


def _hold(unit: UnitOfWork, job: Job, by: str, *, running: bool) -> str:
    if job.state is JobState.WAITING:
        unit.event(EventType.HOLD_WAITING_JOB, f"held by {by}", job.id)
        unit.move(job.id, JobState.HOLD, f"held by {by}")
        return f"Job {job.id} is held."
    if not running or job.state not in {JobState.RUNNING, JobState.RESUMING}:
        suspends = job.state is JobState.RUNNING and not running
        hint = "`oarhold -r` suspends a running job." if suspends else "Only jobs that wait or run are held."
        raise IllegalMove(f"Job {job.id} is {job.state}; it cannot be held.", hint=hint)
    unit.event(EventType.HOLD_RUNNING_JOB, f"suspended by {by}", job.id)
    if job.state is JobState.RESUMING:
        # Its nodes may have been told to resume it.
        _check_off(unit, job, EventType.RESUME_JOB)
        unit.move(job.id, JobState.SUSPENDED, f"suspended again by {by}")
    if attempt := _attempt(unit, job):
        unit.add_effects(Suspend(_names(attempt), job.id, attempt.number))
    return f"Job {job.id} will be suspended."


def resume(tx: Tx, context: StepContext, ids: Sequence[int], *, by: str, now: float) -> ActionOutcome:
    """Release held jobs, and resume suspended ones as soon as no other job uses their resources."""
    unit = UnitOfWork(tx, context, now, ids)
    outcome = _each(unit, ids, lambda job: _resume(unit, job, by))
    return ActionOutcome(outcome.answers, (*outcome.effects, *resume_where_free(tx, context, now=now)))


def _resume(unit: UnitOfWork, job: Job, by: str) -> str:
    if job.state is JobState.HOLD:
        unit.event(EventType.RESUME_JOB, f"released by {by}", job.id)
        unit.move(job.id, JobState.WAITING, f"released by {by}", message=message_without_hold(job))
        return f"Job {job.id} waits again."
    if job.state is not JobState.SUSPENDED:
        raise IllegalMove(
            f"Job {job.id} is {job.state}; there is nothing to resume.",
            hint="Only jobs that are held or suspended go on.",
        )
    _check_off(unit, job, EventType.HOLD_RUNNING_JOB)
    unit.event(EventType.RESUME_JOB, f"resumed by {by}", job.id)
    unit.move(job.id, JobState.RESUMING, f"resumed by {by}")
    return f"Job {job.id} goes on as soon as its resources are free."


def _each(unit: UnitOfWork, ids: Sequence[int], action: Callable[[Job], str]) -> ActionOutcome:
    results = []
    for number in ids:
        job = unit.jobs.get(number)
        try:
            results.append(
                ActionResult(number, done=True, says=action(job)) if job else refused(number, UnknownJob(number))
            )
        except IllegalMove as error:
            results.append(refused(number, error))
    return ActionOutcome(tuple(results), tuple(unit.write()))


def resume_where_free(tx: Tx, context: StepContext, *, now: float, away: Collection[str] = frozenset()) -> list[Effect]:
    """Resume jobs that are Resuming where no active job uses their resources any more. `away`: nodes out of reach."""
    resuming = jobs.in_states(tx, [JobState.RESUMING])
    if not resuming:
        return []
    active = jobs.in_states(tx, _ACTIVE)
    given = jobs.resources_of(tx, [job.id for job in (*resuming, *active)])
    busy = {resource for job in active for resource in given.get(job.id, ())}
    unit = UnitOfWork(tx, context, now, [job.id for job in resuming])
    for job in resuming:
        attempt = _attempt(unit, job)
        if attempt is not None and not busy & set(given.get(job.id, ())):
            if set(_names(attempt)).isdisjoint(away):
                unit.add_effects(Resume(_names(attempt), job.id, attempt.number))
            busy |= set(given.get(job.id, ()))  # a node that is away may have heard it
    return unit.write()


def job_suspended(unit: UnitOfWork, report: JobSuspended) -> None:
    """Note that a job stands still; where it could not be stopped it is ended."""
    job = unit.jobs.get(report.job)
    if job is None or unit.open_attempt(report.job, report.attempt) is None:
        return
    _check_off(unit, job, EventType.HOLD_RUNNING_JOB)
    if report.says:
        unit.event(EventType.SUSPEND_ERROR, report.says, job.id, report.failed)
        _end(unit, job, f"it could not be suspended: {report.says}")
    elif job.state is JobState.RUNNING:
        unit.move(job.id, JobState.SUSPENDED, "it stands still on all its nodes")


def job_resumed(unit: UnitOfWork, report: JobResumed) -> None:
    """Note that a job goes on; where it could not it is ended."""
    job = unit.jobs.get(report.job)
    if job is None or unit.open_attempt(report.job, report.attempt) is None:
        return
    _check_off(unit, job, EventType.RESUME_JOB)
    if report.says:
        unit.event(EventType.RESUME_ERROR, report.says, job.id, report.failed)
        _end(unit, job, f"it could not go on: {report.says}")
    elif job.state is JobState.RESUMING:
        unit.move(job.id, JobState.RUNNING, "it goes on")
    elif job.state is JobState.SUSPENDED and (attempt := _attempt(unit, job)):  # suspended again meanwhile
        unit.add_effects(Suspend(_names(attempt), job.id, attempt.number))


def suspend_again(tx: Tx, context: StepContext, *, now: float, away: Collection[str] = frozenset()) -> list[Effect]:
    """Return the effects of suspensions that were requested and not reported: a restart or a connection lost them.

    `away`: nodes out of reach.
    """
    wanted = [noted.event.job for noted in events.to_check(tx) if noted.event.type is EventType.HOLD_RUNNING_JOB]
    if not wanted:
        return []
    unit = UnitOfWork(tx, context, now, [number for number in wanted if number])
    for job in unit.jobs.values():
        attempt = _attempt(unit, job)
        if attempt is None or job.state not in _TO_SUSPEND or unit.is_being_killed(job.id):
            continue
        if set(_names(attempt)).isdisjoint(away):
            unit.add_effects(Suspend(_names(attempt), job.id, attempt.number))
    return unit.write()


def close_events_of_ended_jobs(tx: Tx) -> None:
    """Check off what was asked of jobs that are over: no node will answer any more."""
    pending = [noted for noted in events.to_check(tx) if noted.event.type in AWAITS_NODES]
    ended = {job.id for job in jobs.existing(tx, [noted.event.job or 0 for noted in pending]) if job.state in FINAL}
    done = [noted.id for noted in pending if noted.event.job in ended]
    if done:
        events.check_off(tx, done)


def _check_off(unit: UnitOfWork, job: Job, kind: EventType) -> None:
    history = events.of_jobs(unit.tx, [job.id])
    done = [noted.id for noted in history if noted.to_check and noted.event.type is kind and kind in AWAITS_NODES]
    if done:
        events.check_off(unit.tx, done)


def _end(unit: UnitOfWork, job: Job, why: str) -> None:
    if moves.request_kills(unit.tx, [job.id], at=unit.now):
        kill.end(unit, job, why)


def _attempt(unit: UnitOfWork, job: Job) -> Attempt | None:
    attempt = unit.attempts.get(job.id)
    return attempt if attempt is not None and attempt.closed_us is None else None


def _names(attempt: Attempt) -> tuple[str, ...]:
    return tuple(node.name for node in attempt.nodes)
