"""Hold and resume: waiting jobs are kept from starting, running ones are stopped where they are and go on later."""

from collections.abc import Callable, Sequence

from oarlock.job.run import kill
from oarlock.job.run.action_result import ActionOutcome, ActionResult, refused
from oarlock.job.run.effects import Effect, Resume, Suspend
from oarlock.job.run.launch import message_without_hold
from oarlock.job.run.reports import JobResumed, JobSuspended
from oarlock.job.run.unit_of_work import LATER, StepContext, UnitOfWork
from oarlock.model.errors import IllegalMove, UnknownJob
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, HOLDS_RESOURCES, Job, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import events, jobs, kills
from oarlock.store.queries.attempts import Attempt

_ACTIVE = HOLDS_RESOURCES - {JobState.SUSPENDED, JobState.RESUMING}


def hold(tx: Tx, site: StepContext, ids: Sequence[int], *, by: str, now: float, running: bool = False) -> ActionOutcome:
    """Keep waiting jobs from starting; with `running`, stop running ones (an administrator's wish, as a rule)."""
    ledger = UnitOfWork(tx, site, now, ids)
    return _each(ledger, ids, lambda job: _hold(ledger, job, by, running=running))


def _hold(ledger: UnitOfWork, job: Job, by: str, *, running: bool) -> str:
    if job.state is JobState.WAITING:
        ledger.event(EventType.HOLD_WAITING_JOB, f"held by {by}", job.id)
        ledger.move(job.id, JobState.HOLD, f"held by {by}")
        return f"Job {job.id} is held."
    if not running or job.state not in {JobState.RUNNING, JobState.RESUMING}:
        suspends = job.state is JobState.RUNNING and not running
        hint = "`oarhold -r` suspends a running job." if suspends else "Only jobs that wait or run are held."
        raise IllegalMove(f"Job {job.id} is {job.state}; it cannot be held.", hint=hint)
    ledger.event(EventType.HOLD_RUNNING_JOB, f"suspended by {by}", job.id)
    if job.state is JobState.RESUMING:
        ledger.move(job.id, JobState.SUSPENDED, f"suspended again by {by}")
    elif attempt := _attempt(ledger, job):
        ledger.tell(Suspend(_names(attempt), job.id, attempt.number))
    return f"Job {job.id} will be suspended."


def resume(tx: Tx, site: StepContext, ids: Sequence[int], *, by: str, now: float) -> ActionOutcome:
    """Let held jobs wait again, and suspended ones go on as soon as nobody else uses their resources."""
    ledger = UnitOfWork(tx, site, now, ids)
    answered = _each(ledger, ids, lambda job: _resume(ledger, job, by))
    return ActionOutcome(answered.answers, (*answered.instructions, *go_on(tx, site, now=now)))


def _resume(ledger: UnitOfWork, job: Job, by: str) -> str:
    if job.state is JobState.HOLD:
        ledger.event(EventType.RESUME_JOB, f"released by {by}", job.id)
        ledger.move(job.id, JobState.WAITING, f"released by {by}", message=message_without_hold(job))
        return f"Job {job.id} waits again."
    if job.state is not JobState.SUSPENDED:
        raise IllegalMove(
            f"Job {job.id} is {job.state}; there is nothing to resume.",
            hint="Only jobs that are held or suspended go on.",
        )
    ledger.event(EventType.RESUME_JOB, f"resumed by {by}", job.id)
    ledger.move(job.id, JobState.RESUMING, f"resumed by {by}")
    return f"Job {job.id} goes on as soon as its resources are free."


def _each(ledger: UnitOfWork, ids: Sequence[int], wish: Callable[[Job], str]) -> ActionOutcome:
    answers = []
    for number in ids:
        job = ledger.jobs.get(number)
        try:
            answers.append(
                ActionResult(number, done=True, says=wish(job)) if job else refused(number, UnknownJob(number))
            )
        except IllegalMove as error:
            answers.append(refused(number, error))
    return ActionOutcome(tuple(answers), tuple(ledger.write()))


def go_on(tx: Tx, site: StepContext, *, now: float) -> list[Effect]:
    """Let jobs that are Resuming go on where no active job uses their resources any more."""
    resuming = jobs.in_states(tx, [JobState.RESUMING])
    if not resuming:
        return []
    active = jobs.in_states(tx, _ACTIVE)
    given = jobs.resources_of(tx, [job.id for job in (*resuming, *active)])
    busy = {resource for job in active for resource in given.get(job.id, ())}
    ledger = UnitOfWork(tx, site, now, [job.id for job in resuming])
    for job in resuming:
        attempt = _attempt(ledger, job)
        if attempt is not None and not busy & set(given.get(job.id, ())):
            ledger.tell(Resume(_names(attempt), job.id, attempt.number))
            busy |= set(given.get(job.id, ()))
    return ledger.write()


def stopped(ledger: UnitOfWork, news: JobSuspended) -> None:
    """Note that a job stands still; where it could not be stopped it is ended."""
    job = ledger.jobs.get(news.job)
    if job is None or ledger.live(news.job, news.attempt) is None:
        return
    _check_off(ledger, job, EventType.HOLD_RUNNING_JOB)
    if news.says:
        ledger.event(EventType.SUSPEND_ERROR, news.says, job.id, news.failed)
        _end(ledger, job, f"it could not be suspended: {news.says}")
    elif job.state is JobState.RUNNING:
        ledger.move(job.id, JobState.SUSPENDED, "it stands still on all its nodes")


def went_on(ledger: UnitOfWork, news: JobResumed) -> None:
    """Note that a job goes on; where it could not it is ended."""
    job = ledger.jobs.get(news.job)
    if job is None or ledger.live(news.job, news.attempt) is None:
        return
    _check_off(ledger, job, EventType.RESUME_JOB)
    if news.says:
        ledger.event(EventType.RESUME_ERROR, news.says, job.id, news.failed)
        _end(ledger, job, f"it could not go on: {news.says}")
    elif job.state is JobState.RESUMING:
        ledger.move(job.id, JobState.RUNNING, "it goes on")


def again(tx: Tx, site: StepContext, *, now: float) -> list[Effect]:
    """Give the instructions of suspensions that were asked for and not answered: a restart lost them."""
    wanted = [noted.event.job for noted in events.to_check(tx) if noted.event.type is EventType.HOLD_RUNNING_JOB]
    ledger = UnitOfWork(tx, site, now, [number for number in wanted if number])
    for job in ledger.jobs.values():
        attempt = _attempt(ledger, job)
        if attempt is not None and job.state is JobState.RUNNING:
            ledger.tell(Suspend(_names(attempt), job.id, attempt.number))
    return ledger.write()


def forget_answers(tx: Tx) -> None:
    """Check off what was asked of jobs that are over: no node will answer any more."""
    asked = [one for one in events.to_check(tx) if one.event.type in LATER]
    over = {job.id for job in jobs.existing(tx, [one.event.job or 0 for one in asked]) if job.state in FINAL}
    done = [one.id for one in asked if one.event.job in over]
    if done:
        events.check_off(tx, done)


def _check_off(ledger: UnitOfWork, job: Job, kind: EventType) -> None:
    noted = events.of_jobs(ledger.tx, [job.id])
    done = [one.id for one in noted if one.to_check and one.event.type is kind and kind in LATER]
    if done:
        events.check_off(ledger.tx, done)


def _end(ledger: UnitOfWork, job: Job, why: str) -> None:
    if kills.request(ledger.tx, [job.id], at=ledger.now):
        kill.end(ledger, job, why)


def _attempt(ledger: UnitOfWork, job: Job) -> Attempt | None:
    attempt = ledger.attempts.get(job.id)
    return attempt if attempt is not None and attempt.closed_us is None else None


def _names(attempt: Attempt) -> tuple[str, ...]:
    return tuple(node.name for node in attempt.nodes)
