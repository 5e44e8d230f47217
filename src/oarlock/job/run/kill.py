"""Kill: waiting jobs end at once; running ones get the kill, get it again, and are given up at last.

Also what `oardel` does instead: signals, checkpoints, and making running jobs best-effort jobs.
"""

from collections.abc import Callable, Collection, Sequence

from oarlock.job.run.effects import (
    ActionOutcome,
    ActionResult,
    Checkpoint,
    Effect,
    Kill,
    ScheduleAgain,
    Signal,
    refused,
)
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.errors import IllegalMove, JobNotRunning, UnknownJob
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, FragState, Job, JobKind, JobState
from oarlock.model.job_type import JobType, parse_types
from oarlock.store.engine import journal
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, moves

_NOT_STARTED = frozenset(
    {JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR, JobState.TO_LAUNCH}
)


def request(
    tx: Tx, context: StepContext, ids: Sequence[int], *, by: str, now: float, exterminate: bool = False
) -> ActionOutcome:
    """End jobs on request. A second request for the same job is refused; extermination gives it up at once.

    A job that ended by itself needs no kill: scripts that clean up race with the end of jobs, and that is no error.
    """
    unit = UnitOfWork(tx, context, now, ids)
    ended = {number for number, job in unit.jobs.items() if job.state in FINAL}
    killed = moves.kills_requested(tx, ended)
    new = set(
        moves.request_kills(tx, [number for number in ids if number in unit.jobs and number not in ended], at=unit.now)
    )
    results = []
    for number in ids:
        job = unit.jobs.get(number)
        if job is None:
            results.append(refused(number, UnknownJob(number)))
        elif number in ended:
            results.append(_already_over(job, killed=number in killed))
        elif exterminate:
            give_up(unit, job, f"{by} gave it up")
            results.append(ActionResult(number, done=True, says=f"Job {number} was given up."))
        elif number not in new:
            says = f"Job {number} is being killed already."
            hint = "Give it some time; `oarstat -ej` tells what happens."
            results.append(ActionResult(number, done=False, says=says, kind="KillAsked", hint=hint))
        else:
            unit.event(EventType.FRAG_JOB_REQUEST, f"{by} asked for its end", number)
            results.append(ActionResult(number, done=True, says=end(unit, job, f"killed by {by}")))
    return ActionOutcome(tuple(results), tuple(unit.write()))


def _already_over(job: Job, *, killed: bool) -> ActionResult:
    """Answer for a job that is over. To a command it is an error only if the job was killed before."""
    if killed:
        return ActionResult(job.id, done=False, says=f"Job {job.id} was killed already.", kind="AlreadyKilled")
    return ActionResult(job.id, done=False, says=f"Job {job.id} is already {job.state}.", kind="JobOver")


def end_all(unit: UnitOfWork, ids: Collection[int], why: str) -> None:
    """End jobs for a reason of the system's own; those that are being ended already are left alone."""
    for number in moves.request_kills(unit.tx, ids, at=unit.now):
        unit.event(EventType.FRAG_JOB_REQUEST, why, number)
        end(unit, unit.jobs[number], why)


def client_vanished(tx: Tx, context: StepContext, ids: Collection[int], *, now: float) -> list[Effect]:
    """End interactive jobs whose waiting client is gone; those that are over or being ended are left alone."""
    unit = UnitOfWork(tx, context, now, ids)
    left = [
        job.id
        for job in unit.jobs.values()
        if job.kind is JobKind.INTERACTIVE and job.state not in FINAL and not unit.is_being_killed(job.id)
    ]
    for number in left:
        unit.event(EventType.CANNOT_NOTIFY_OARSUB, "the oarsub that waited for it is gone", number)
    end_all(unit, left, "the oarsub that waited for it is gone")
    return unit.write()


def end(unit: UnitOfWork, job: Job, why: str) -> str:
    """End a job now if it has not started, else tell its node; say which."""
    if job.state in _NOT_STARTED:
        unit.event(EventType.SWITCH_INTO_ERROR_STATE, why, job.id)
        unit.move(job.id, JobState.ERROR, why, message=why)
        return f"Job {job.id} is deleted."
    if job.state is JobState.RUNNING and parse_types(job.types).noop:
        unit.event(EventType.SWITCH_INTO_TERMINATE_STATE, why, job.id)
        unit.move(job.id, JobState.TERMINATED, why)
        return f"Job {job.id} is over."
    send(unit, job)
    return f"Job {job.id} will be deleted in the near future."


def send(unit: UnitOfWork, job: Job) -> None:
    """Send the kill to the first node of a job, and start the timer after which it is sent again."""
    unit.set_kill_state(job.id, FragState.TIMER_ARMED)
    attempt = unit.attempts.get(job.id)
    if job.state is JobState.FINISHING or attempt is None or attempt.closed_us is not None:
        return
    node = attempt.nodes[0].name
    unit.event(EventType.SEND_KILL_JOB, f"{node} is told to end it", job.id, (node,))
    unit.add_effects(Kill(node, job.id, attempt.number))


def give_up(unit: UnitOfWork, job: Job, why: str) -> None:
    """Exterminate: the job ends in the database, whatever still runs of it; its nodes become Suspected."""
    if job.state in _NOT_STARTED:
        end(unit, job, why)
        return
    unit.event(EventType.EXTERMINATE_JOB, why, job.id)
    if job.state is not JobState.FINISHING:
        unit.move(job.id, JobState.FINISHING, why)
    attempt = unit.attempts.get(job.id)
    if attempt is not None and attempt.closed_us is None:
        unit.close(unit.update_attempt(attempt, outcome="given up"))
    unit.move(job.id, JobState.ERROR, why, message=why)


def signal(tx: Tx, context: StepContext, ids: Sequence[int], number: int, *, by: str, now: float) -> ActionOutcome:
    """Send a signal to running jobs; there is no event for it, so the log says who sent it."""
    outcome = _on_running(
        UnitOfWork(tx, context, now, ids),
        ids,
        f"signal itself with {number}",
        lambda node, key: Signal(node, *key, number),
    )
    for result in outcome.answers:
        if result.done:
            journal.note(tx, journal.JOBS, "signal sent", {"job": result.job_id, "signal": number, "by": by})
    return outcome


def checkpoint(tx: Tx, context: StepContext, ids: Sequence[int], *, by: str, now: float) -> ActionOutcome:
    """Send running jobs their checkpoint signal."""
    unit = UnitOfWork(tx, context, now, ids)
    for number in ids:
        if number in unit.jobs and unit.jobs[number].state is JobState.RUNNING:
            unit.event(EventType.CHECKPOINT, f"{by} asked for the checkpoint signal", number)
    return _on_running(unit, ids, "checkpoint itself", lambda node, key: Checkpoint(node, *key))


def switch_besteffort(tx: Tx, context: StepContext, ids: Sequence[int], *, by: str, now: float) -> ActionOutcome:
    """Make running jobs best-effort jobs, which go as soon as others need their resources; those that are, ordinary."""
    unit = UnitOfWork(tx, context, now, ids)
    results = []
    for number in ids:
        job = unit.jobs.get(number)
        if job is None:
            results.append(refused(number, UnknownJob(number)))
        elif job.state is not JobState.RUNNING:
            says, hint = (
                f"Job {number} is not running: its state is {job.state}.",
                "Only a running job changes its kind.",
            )
            results.append(ActionResult(number, done=False, says=says, kind=JobNotRunning.__name__, hint=hint))
        else:
            results.append(ActionResult(number, done=True, says=_switch(unit, job, by)))
    if any(result.done for result in results):
        unit.add_effects(ScheduleAgain())
    return ActionOutcome(tuple(results), tuple(unit.write()))


def _switch(unit: UnitOfWork, job: Job, by: str) -> str:
    if parse_types(job.types).besteffort:
        jobs.remove_type(unit.tx, job.id, JobType.BESTEFFORT)
        unit.event(EventType.DELETE_BESTEFFORT_JOB_TYPE, f"{by} removed the besteffort type", job.id)
        return f"Remove besteffort type for the job {job.id}."
    jobs.add_type(unit.tx, job.id, JobType.BESTEFFORT)
    unit.event(EventType.ADD_BESTEFFORT_JOB_TYPE, f"{by} added the besteffort type", job.id)
    return f"Add besteffort type for the job {job.id}."


def _on_running(
    unit: UnitOfWork, ids: Sequence[int], what: str, effect: Callable[[str, tuple[int, int]], Effect]
) -> ActionOutcome:
    results = []
    for number in ids:
        job, attempt = unit.jobs.get(number), unit.attempts.get(number)
        if job is None:
            results.append(refused(number, UnknownJob(number)))
        elif job.state is not JobState.RUNNING or attempt is None:
            hint = "Only jobs that run are sent signals."
            results.append(
                refused(number, IllegalMove(f"Job {number} is {job.state}; it is sent no signal.", hint=hint))
            )
        else:
            unit.add_effects(effect(attempt.nodes[0].name, (number, attempt.number)))
            says = f"The job {number} was notified to {what} on {attempt.nodes[0].name}."
            results.append(ActionResult(number, done=True, says=says))
    return ActionOutcome(tuple(results), tuple(unit.write()))
