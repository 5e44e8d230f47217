"""Kill: jobs that wait end at once; jobs that run are told to end, told again, and at last given up."""

from collections.abc import Callable, Collection, Sequence

from oarlock.job.run.action_result import ActionOutcome, ActionResult, refused
from oarlock.job.run.effects import Checkpoint, Effect, Kill, Signal
from oarlock.job.run.launch import NOOP
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.errors import IllegalMove, UnknownJob
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, FragState, Job, JobState
from oarlock.store.engine import journal
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import kills

_NOT_STARTED = frozenset(
    {JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION, JobState.TO_ERROR, JobState.TO_LAUNCH}
)


def ask(
    tx: Tx, site: StepContext, ids: Sequence[int], *, by: str, now: float, exterminate: bool = False
) -> ActionOutcome:
    """End jobs on somebody's wish. The second wish for the same job is refused; extermination gives it up at once.

    A job that ended by itself needs no kill: scripts that clean up race with the end of jobs, and that is no error.
    """
    ledger = UnitOfWork(tx, site, now, ids)
    over = {number for number, job in ledger.jobs.items() if job.state in FINAL}
    killed = kills.requested(tx, over)
    new = set(
        kills.request(tx, [number for number in ids if number in ledger.jobs and number not in over], at=ledger.now)
    )
    answers = []
    for number in ids:
        job = ledger.jobs.get(number)
        if job is None:
            answers.append(refused(number, UnknownJob(number)))
        elif number in over:
            answers.append(_over(job, killed=number in killed))
        elif exterminate:
            give_up(ledger, job, f"{by} gave it up")
            answers.append(ActionResult(number, done=True, says=f"Job {number} was given up."))
        elif number not in new:
            says = f"Job {number} is being killed already."
            hint = "Give it some time; `oarstat -ej` tells what happens."
            answers.append(ActionResult(number, done=False, says=says, kind="KillAsked", hint=hint))
        else:
            ledger.event(EventType.FRAG_JOB_REQUEST, f"{by} asked for its end", number)
            answers.append(ActionResult(number, done=True, says=end(ledger, job, f"killed by {by}")))
    return ActionOutcome(tuple(answers), tuple(ledger.write()))


def _over(job: Job, *, killed: bool) -> ActionResult:
    """Answer for a job that is over. To a command it is an error only if the job was killed before."""
    if killed:
        return ActionResult(job.id, done=False, says=f"Job {job.id} was killed already.", kind="AlreadyKilled")
    return ActionResult(job.id, done=False, says=f"Job {job.id} is already {job.state}.", kind="JobOver")


def end_all(ledger: UnitOfWork, ids: Collection[int], why: str) -> None:
    """End jobs for a reason of the system's own; those that are being ended already are left alone."""
    for number in kills.request(ledger.tx, ids, at=ledger.now):
        ledger.event(EventType.FRAG_JOB_REQUEST, why, number)
        end(ledger, ledger.jobs[number], why)


def end(ledger: UnitOfWork, job: Job, why: str) -> str:
    """End a job now if it has not started, else tell its node; say which."""
    if job.state in _NOT_STARTED:
        ledger.event(EventType.SWITCH_INTO_ERROR_STATE, why, job.id)
        ledger.move(job.id, JobState.ERROR, why, message=why)
        return f"Job {job.id} is deleted."
    if job.state is JobState.RUNNING and NOOP in job.types:
        ledger.event(EventType.SWITCH_INTO_TERMINATE_STATE, why, job.id)
        ledger.move(job.id, JobState.TERMINATED, why)
        return f"Job {job.id} is over."
    tell(ledger, job)
    return f"Job {job.id} will be deleted in the near future."


def tell(ledger: UnitOfWork, job: Job) -> None:
    """Tell the first node of a job to end it; the clock for doing so again runs."""
    ledger.killed(job.id, FragState.TIMER_ARMED)
    attempt = ledger.attempts.get(job.id)
    if job.state is JobState.FINISHING or attempt is None or attempt.closed_us is not None:
        return
    node = attempt.nodes[0].name
    ledger.event(EventType.SEND_KILL_JOB, f"{node} is told to end it", job.id, (node,))
    ledger.tell(Kill(node, job.id, attempt.number))


def give_up(ledger: UnitOfWork, job: Job, why: str) -> None:
    """Exterminate: the job is over for us, whatever still lives of it; its nodes are Suspected until somebody looks."""
    if job.state in _NOT_STARTED:
        end(ledger, job, why)
        return
    ledger.event(EventType.EXTERMINATE_JOB, why, job.id)
    if job.state is not JobState.FINISHING:
        ledger.move(job.id, JobState.FINISHING, why)
    attempt = ledger.attempts.get(job.id)
    if attempt is not None and attempt.closed_us is None:
        ledger.close(ledger.attempt(attempt, outcome="given up"))
    ledger.move(job.id, JobState.ERROR, why, message=why)


def signal(tx: Tx, site: StepContext, ids: Sequence[int], number: int, *, by: str, now: float) -> ActionOutcome:
    """Send a signal to running jobs; there is no event for it, so the log says who sent it."""
    answered = _on_running(
        UnitOfWork(tx, site, now, ids),
        ids,
        f"signal itself with {number}",
        lambda node, key: Signal(node, *key, number),
    )
    for answer in answered.answers:
        if answer.done:
            journal.note(tx, journal.JOBS, "signal sent", {"job": answer.job_id, "signal": number, "by": by})
    return answered


def checkpoint(tx: Tx, site: StepContext, ids: Sequence[int], *, by: str, now: float) -> ActionOutcome:
    """Send running jobs their checkpoint signal."""
    ledger = UnitOfWork(tx, site, now, ids)
    for number in ids:
        if number in ledger.jobs and ledger.jobs[number].state is JobState.RUNNING:
            ledger.event(EventType.CHECKPOINT, f"{by} asked for the checkpoint signal", number)
    return _on_running(ledger, ids, "checkpoint itself", lambda node, key: Checkpoint(node, *key))


def _on_running(
    ledger: UnitOfWork, ids: Sequence[int], what: str, instruction: Callable[[str, tuple[int, int]], Effect]
) -> ActionOutcome:
    answers = []
    for number in ids:
        job, attempt = ledger.jobs.get(number), ledger.attempts.get(number)
        if job is None:
            answers.append(refused(number, UnknownJob(number)))
        elif job.state is not JobState.RUNNING or attempt is None:
            hint = "Only jobs that run are sent signals."
            answers.append(
                refused(number, IllegalMove(f"Job {number} is {job.state}; it is sent no signal.", hint=hint))
            )
        else:
            ledger.tell(instruction(attempt.nodes[0].name, (number, attempt.number)))
            says = f"The job {number} was notified to {what} on {attempt.nodes[0].name}."
            answers.append(ActionResult(number, done=True, says=says))
    return ActionOutcome(tuple(answers), tuple(ledger.write()))
