"""What became of a launch: the command runs, or the job waits again, is held, or ends in Error."""

from collections.abc import Sequence

from oarlock.job.admission.private_key import fingerprint_of
from oarlock.job.run import unknown_users
from oarlock.job.run.blame import BEFORE_JOB
from oarlock.job.run.effects import ReleaseNodes, ScheduleAgain
from oarlock.job.run.reports import NotLaunched, Started
from oarlock.job.run.unit_of_work import UnitOfWork
from oarlock.model.event import EVENTS, Blame, EventType
from oarlock.model.job import Job, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.store.queries.job import attempts, job_keys, jobs
from oarlock.store.queries.job.job_keys import JobKey
from oarlock.store.queries.users import user_records

MOST_ATTEMPTS = 3
WAITS_FOR_ACCOUNT = "waits for its account"
"""The outcome of an attempt that does not count: the user was not found."""

_HELD = " (held: "

WAITS_FOR_SITE = "waits for the site"
"""The outcome of an attempt that does not count: a program of the site failed."""

SERVER_DIED = "never arrived, the server died"
"""The outcome of an attempt that does not count: it was under way when the server ended."""

_NOT_COUNTED = frozenset({WAITS_FOR_ACCOUNT, WAITS_FOR_SITE, SERVER_DIED})


def started(unit: UnitOfWork, report: Started) -> None:
    """Note that the user's command runs; what is left of an attempt that was given up is told to end."""
    attempt = unit.open_attempt(report.job, report.attempt)
    if attempt is None:
        # Its launch failed elsewhere, or it was given up, while this node was out of reach.
        if report.job in unit.jobs:
            unit.add_effects(ReleaseNodes((report.node,), report.job, report.attempt))
        return
    if attempt.started_us is not None or report.node != attempt.nodes[0].name:
        return
    unit.context.failures.started(report.node)
    job = unit.jobs[report.job]
    if report.key:
        _store_generated(unit, report)
    if attempt.number > 1:
        user_records.remove_doubts(unit.tx, job.user)
    unit.update_attempt(attempt, started_us=unit.us(report.at))
    unit.context.programs.worked(BEFORE_JOB)
    if job.state is JobState.LAUNCHING:
        message = unknown_users.message_without(job)
        unit.move(report.job, JobState.RUNNING, f"its command runs on {report.node}", message=message)


def _store_generated(unit: UnitOfWork, report: Started) -> None:
    """Store the public half of the pair that the first node made; what is no key changes nothing."""
    try:
        fingerprint = fingerprint_of(report.key)
    except (ValueError, IndexError):
        return
    job_keys.set_generated(unit.tx, report.job, JobKey(fingerprint, report.key))


def failed(unit: UnitOfWork, report: NotLaunched) -> None:
    """Requeue a job that certainly did not run; after several attempts, or where no retry helps, end it.

    Places on other nodes were given back by whoever carried the launch out.
    """
    job = unit.jobs.get(report.job)
    if job is None or job.state not in {JobState.TO_LAUNCH, JobState.LAUNCHING}:
        return
    attempt = unit.open_attempt(report.job, report.attempt)
    if attempt is None and (report.attempt or job.state is JobState.LAUNCHING):
        return
    blame = note_failure(unit, report.event, report.says, job.id, report.hosts, cause=report.cause)
    if attempt is not None:
        unit.close(unit.update_attempt(attempt, outcome=outcome_of(report.event, blame, "not launched")))
    host = "".join(report.hosts[:1])
    requeue(unit, job, report.event, report.says, tries=report.attempt, host=host, blame=blame)


def note_failure(
    unit: UnitOfWork, event: EventType, says: str, job_id: int, hosts: Sequence[str], *, cause: str
) -> Blame:
    """Note why a launch failed; a job whose user is not found is noted once, however often it is tried."""
    if event not in unknown_users.NOT_FOUND or not unit.has_event(job_id, event):
        return unit.event(event, says, job_id, hosts, cause=cause)
    return EVENTS[event].blame


def outcome_of(event: EventType, blame: Blame, otherwise: str) -> str:
    """Return how an attempt ended that did not start because of an event."""
    if event in unknown_users.NOT_FOUND:
        return WAITS_FOR_ACCOUNT
    return WAITS_FOR_SITE if blame is Blame.SITE else otherwise


def requeue(
    unit: UnitOfWork,
    job: Job,
    event: EventType,
    says: str,
    *,
    tries: int,
    host: str = "",
    blame: Blame = Blame.NODE,
) -> None:
    """Return a job to Waiting without resources, hold it, or end it in Error.

    `host`: where the user was not found; empty: on the server.
    """
    if blame is Blame.SITE:
        _release_held(unit)
    if unit.is_being_killed(job.id):
        unit.move(job.id, JobState.ERROR, "it was to end before it started", message=says)
        return
    if event in unknown_users.NOT_FOUND:
        doubt = unknown_users.postpone(unit, job.user, host, event, says)
        if doubt is not None:
            put_back(unit, job, says, message=unknown_users.message(job, doubt))
            unit.add_effects(ScheduleAgain(doubt.until))
            return
    if blame is Blame.USER and event is EventType.PROLOGUE_ERROR:
        _hold(unit, job, says)
    elif _is_hopeless(unit, job, event, tries):
        unit.event(EventType.SWITCH_INTO_ERROR_STATE, f"it could not be launched: {says}", job.id)
        unit.move(job.id, JobState.ERROR, f"it could not be launched: {says}", message=says)
    else:
        put_back(unit, job, says)


def _is_hopeless(unit: UnitOfWork, job: Job, event: EventType, tries: int) -> bool:
    """Return whether a job that could not be launched is not tried again."""
    types = parse_types(job.types)
    if types.permissive and types.frontend is None:
        return True  # it asked for nodes that may not answer, and would get the same ones again
    return not EVENTS[event].copy or (tries >= MOST_ATTEMPTS and _failed_attempts(unit, job) >= MOST_ATTEMPTS)


def put_back(unit: UnitOfWork, job: Job, says: str, **changes: str) -> None:
    """Return a job to Waiting without its resources."""
    jobs.unassign(unit.tx, [job.assigned])
    unit.move(
        job.id, JobState.WAITING, f"the launch failed: {says}", assigned=0, start=_requested_start(job), **changes
    )


def _hold(unit: UnitOfWork, job: Job, says: str) -> None:
    """Hold a job that would fail anywhere, with the reason and the way on."""
    reason = f"{says}; `oarresume {job.id}` tries again"
    put_back(unit, job, says)
    unit.event(EventType.HOLD_WAITING_JOB, f"held: {reason}", job.id)
    unit.move(job.id, JobState.HOLD, f"held: {reason}", message=f"{message_without_hold(job)}{_HELD}{reason})")
    unit.context.programs.held.add(job.id)


def message_without_hold(job: Job) -> str:
    """Return the message of a job without the reason why the server held it."""
    return job.message.partition(_HELD)[0]


def _release_held(unit: UnitOfWork) -> None:
    """Return jobs to Waiting that were held for what has turned out to be the site's fault."""
    ids = unit.context.programs.held
    if not ids:
        return
    unit.load(set(ids) - unit.jobs.keys())
    for job in [unit.jobs[number] for number in sorted(ids) if number in unit.jobs]:
        if job.state is JobState.HOLD and _HELD in job.message:
            unit.event(EventType.RESUME_JOB, "it was not the job's fault", job.id)
            message = message_without_hold(job)
            unit.move(job.id, JobState.WAITING, "it was not the job's fault", message=message)
    ids.clear()


def _failed_attempts(unit: UnitOfWork, job: Job) -> int:
    """Count the attempts of a job that failed by their own or their nodes' fault; the last may not be written."""
    last = unit.attempts[job.id]
    before = [attempt for attempt in attempts.of_jobs(unit.tx, [job.id]) if attempt.number < last.number]
    return sum(attempt.outcome not in _NOT_COUNTED for attempt in (*before, last))


def _requested_start(job: Job) -> int:
    """Return the date that a reservation requested; other jobs have none until they start."""
    return 0 if job.reservation is Reservation.NONE else job.start
