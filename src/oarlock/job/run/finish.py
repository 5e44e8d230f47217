"""Finish: reports → Finishing → everything cleaned → Terminated or Error; exactly once, in any order of reports."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from oarlock.job.run import unknown_users
from oarlock.job.run.blame import AFTER_JOB, BEFORE_JOB
from oarlock.job.run.effects import CheckNodes, Effect, ForgetAttempts, ReleaseNodes, RunEpilogue, StageOut
from oarlock.job.run.reports import BadReport, EpilogueEnded, Exited, IncomingReport
from oarlock.job.run.starting import launch_result
from oarlock.job.run.unit_of_work import Place, UnitOfWork
from oarlock.model.event import EventType, event_type
from oarlock.model.job import Job, JobKind, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.node.wire.messages import EXITED, FAILED, KILLED, LOST, WALLTIME, Report
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import attempts, job_keys, jobs, new_jobs, scripts, shapes
from oarlock.store.queries.job.attempts import Attempt

_OUTCOME_TEXT = {
    EXITED: "its command ended",
    KILLED: "it was killed",
    WALLTIME: "its walltime was over",
    LOST: "its supervisor vanished",
}
_USERS_FAULT = frozenset({EventType.WORKING_DIRECTORY, EventType.OUTPUT_FILES})
"""Launches that fail for a reason of the user's own: another node would not help."""

AGAIN = 99 << 8
"""The wait status by which a program asks to be run again."""

_LEAST_RUN = 60  # seconds: a job that asks again at once would only run in a loop
_LONGEST_CHAIN = 100
_LONGEST_LOST = 3  # a job may be what brings its nodes down


class FinishedAttempts:
    """Which attempts are over on which nodes, and the last boot id of each node that answered.

    Kept in memory: after a restart the nodes report again. What a rolled back transaction added stays true,
    but counts as stored only after `mark_written`: until then the same reports are applied once more.
    """

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._written: set[Place] = set()
        self.boots: dict[str, str] = {}
        self.stage_outs: dict[tuple[int, int], StageOut] = {}  # of attempts that are not closed
        self.clocks: dict[str, int] = {}  # node → seconds by which its clock was ahead in the last event

    def add(self, unit: UnitOfWork, place: Place) -> bool:
        """Record that an attempt is over on a node; return whether that is new to this step and to the database."""
        self._places.add(place)
        if place in self._written or place in unit.reported:
            return False
        unit.reported.add(place)
        return True

    def mark_written(self, taken: Iterable[IncomingReport], effects: Iterable[Effect]) -> None:
        """Mark a step as committed: with the reports that it took, and the effects that it returned."""
        reports = ((item.report.job, item.report.attempt, item.node) for item in taken if isinstance(item, Exited))
        self._written.update(place for place in reports if place in self._places)
        for item in effects:
            if isinstance(item, ForgetAttempts):
                done = {(*key, item.node) for key in item.attempts}
                self._places -= done
                self._written -= done
                for key in item.attempts if self.stage_outs else ():
                    self.stage_outs.pop(key, None)

    def nodes_left(self, attempt: Attempt) -> list[str]:
        """Return the nodes on which an attempt may still be alive."""
        return [node.name for node in attempt.nodes if (attempt.job_id, attempt.number, node.name) not in self._places]


def attempt_exited(unit: UnitOfWork, exited: Exited, finished: FinishedAttempts) -> None:
    """Apply the report of a node; a late or repeated one changes nothing."""
    report = exited.report
    attempt = unit.open_attempt(report.job, report.attempt)
    if attempt is None:
        unit.add_effects(ForgetAttempts(exited.node, ((report.job, report.attempt),)))
        return
    if exited.node not in [node.name for node in attempt.nodes]:
        says = "it is not a node of this attempt"
        note_bad_report(unit, BadReport(exited.node, report.job, report.attempt, says))
        return
    if not finished.add(unit, (report.job, report.attempt, exited.node)):
        return
    unit.add_usage(report)
    for name, says in report.events:
        unit.event(event_type(name), says, report.job, (exited.node,), cause=report.causes.get(name, ""))
    _note_programs(unit, report)
    if report.stage_out and exited.node == attempt.nodes[0].name:
        finished.stage_outs[_key(attempt)] = StageOut(exited.node, report.stage_out, report.stage_out_size)
    if exited.node == attempt.nodes[0].name and attempt.ended_us is None:
        _first_ended(unit, attempt, report, finished)
    conclude(unit, report.job, finished)


def _note_programs(unit: UnitOfWork, report: Report) -> None:
    """Note which programs of the site did what they should."""
    if report.outcome not in {FAILED, LOST}:
        happened = {event_type(name) for name, _ in report.events}
        before = BEFORE_JOB if report.started is not None else ()
        unit.context.programs.worked((*before, *(kind for kind in AFTER_JOB if kind not in happened)))


def note_bad_report(unit: UnitOfWork, report: BadReport) -> None:
    """Record a report whose sender cannot be right, as an event."""
    job_exists = report.job in unit.jobs
    kind = EventType.BIPBIP_CHALLENGE if job_exists else EventType.BIPBIP_BAD_JOBID
    says = f"a report of attempt {report.attempt} from {report.node} was refused: {report.why}"
    unit.event(kind, says, report.job if job_exists else None, (report.node,))


def _first_ended(unit: UnitOfWork, attempt: Attempt, report: Report, finished: FinishedAttempts) -> None:
    job = unit.jobs[report.job]
    others = tuple(node for node in finished.nodes_left(attempt) if node != report.node)
    if others:
        unit.add_effects(ReleaseNodes(others, *_key(attempt)))
    if report.outcome == FAILED and not _is_users_fault(report):
        _launch_failed(unit, job, attempt, report)
        return
    if report.outcome == FAILED:
        unit.event(event_type(report.event), report.says, job.id, (report.node,))
    if job.state is JobState.LAUNCHING and report.started is not None:
        unit.context.failures.started(report.node)
        message = unknown_users.message_without(job)
        job = unit.move(job.id, JobState.RUNNING, f"its command ran on {report.node}", message=message)
    started = attempt.started_us if report.started is None else unit.us(report.started)
    unit.update_attempt(
        attempt,
        started_us=started,
        ended_us=unit.us(report.ended),
        exit_code=report.status,
        outcome=report.outcome,
    )
    if report.outcome == LOST:
        unit.event(EventType.EXIT_VALUE_OAREXEC, report.says or "its supervisor vanished", job.id, (report.node,))
    if job.state is not JobState.FINISHING:
        unit.move(job.id, JobState.FINISHING, report.says or _OUTCOME_TEXT[report.outcome])


def release_again(unit: UnitOfWork, finished: FinishedAttempts, away: Collection[str]) -> None:
    """Release again what ended jobs hold on nodes in reach: those may have missed it the first time."""
    for attempt in attempts.ending(unit.tx):
        others = {node.name for node in attempt.nodes[1:]} - set(away)
        if left := tuple(node for node in finished.nodes_left(attempt) if node in others):
            unit.add_effects(ReleaseNodes(left, *_key(attempt)))


def _is_users_fault(report: Report) -> bool:
    return event_type(report.event) in _USERS_FAULT


def _launch_failed(unit: UnitOfWork, job: Job, attempt: Attempt, report: Report) -> None:
    """Requeue the job: nothing of the user's ran."""
    event, cause = event_type(report.event), report.causes.get(report.event, "")
    blame = launch_result.note_failure(unit, event, report.says, job.id, (report.node,), cause=cause)
    outcome = launch_result.outcome_of(event, blame, report.outcome)
    unit.close(unit.update_attempt(attempt, outcome=outcome, ended_us=unit.us()))
    unit.add_effects(ForgetAttempts(report.node, (_key(attempt),)))
    if job.state is JobState.LAUNCHING:
        launch_result.requeue(unit, job, event, report.says, tries=attempt.number, host=report.node, blame=blame)


def conclude(unit: UnitOfWork, job_id: int, finished: FinishedAttempts, *, epilogue_ran: bool = False) -> None:
    """End a job as soon as it is over on all its nodes, what it wrote is here, and the server's epilogue has run."""
    job, attempt = unit.jobs[job_id], unit.attempts[job_id]
    if attempt.closed_us is not None or attempt.ended_us is None or finished.nodes_left(attempt):
        return
    stage_out = finished.stage_outs.get(_key(attempt))
    if (unit.config.server_epilogue_exec_file or stage_out) and not epilogue_ran:
        unit.add_effects(RunEpilogue(*_key(attempt), stage_out))
        return
    _close(unit, attempt)
    if attempt.outcome == EXITED:
        end(unit, job, JobState.TERMINATED, exit_code=attempt.exit_code)
    else:
        end(unit, job, JobState.ERROR, why=_OUTCOME_TEXT.get(attempt.outcome, "it could not start"))
    resubmit_if_due(unit, job, attempt)


def _close(unit: UnitOfWork, attempt: Attempt) -> None:
    unit.close(attempt)
    nodes = tuple(node.name for node in attempt.nodes)
    unit.add_effects(*(ForgetAttempts(node, (_key(attempt),)) for node in nodes))
    if unit.config.activate_pingchecker_at_job_end:
        unit.add_effects(CheckNodes(nodes))


def end(unit: UnitOfWork, job: Job, state: JobState, *, exit_code: int | None = None, why: str = "") -> None:
    """Move a job to its final state, with the manual's event."""
    if state is JobState.TERMINATED:
        unit.event(EventType.SWITCH_INTO_TERMINATE_STATE, why or "the job ended", job.id)
    else:
        unit.event(EventType.SWITCH_INTO_ERROR_STATE, why or "the job was ended", job.id)
    unit.move(job.id, state, why or "everything is cleaned", exit_code=exit_code)


def epilogue_ended(unit: UnitOfWork, report: EpilogueEnded, finished: FinishedAttempts) -> None:
    """Go on after the server's epilogue; if it failed the queues are stopped, and the job keeps how it ended."""
    if unit.open_attempt(report.job, report.attempt) is None:
        return
    if report.event is not None:
        unit.event(report.event, report.says, report.job)
    if report.lost:
        unit.event(EventType.STAGE_OUT_ERROR, report.lost, report.job)
    conclude(unit, report.job, finished, epilogue_ran=True)


def attempt_lost(unit: UnitOfWork, attempt: Attempt, node: str, finished: FinishedAttempts, why: str) -> None:
    """Note that an attempt is certainly over on a node that did not report how: it rebooted, or its time is over."""
    if not finished.add(unit, (*_key(attempt), node)):
        return
    if node == attempt.nodes[0].name and attempt.ended_us is None:
        report = Report(*_key(attempt), node, "", LOST, says=why)
        if attempt.started_us is not None:
            report = report._replace(started=attempt.started_us / 1_000_000)
        _first_ended(unit, attempt, report, finished)
    conclude(unit, attempt.job_id, finished)


def _key(attempt: Attempt) -> tuple[int, int]:
    return attempt.job_id, attempt.number


def resubmit_if_due(unit: UnitOfWork, job: Job, attempt: Attempt) -> int | None:
    """Submit a copy of a job that just ended, if it is one to be run again; give the copy's number.

    Idempotent jobs are: after a checkpoint with exit 0; with exit 99 after more than a minute; when they were best
    effort and made room for others; when their desktop left; and when their node lost them. Jobs that wait for this one
    wait for the copy.
    """
    longest = _LONGEST_LOST if attempt.outcome == LOST else _LONGEST_CHAIN
    if not _may_be_copied(job) or not _wants_again(unit, job, attempt) or _chain(unit, job) >= longest:
        return None
    request = shapes.requests_of(unit.tx, [job.id], properties.types(unit.tx)).get(job.id)
    if request is None:
        return None
    after = tuple(jobs.dependencies(unit.tx, [job.id]).get(job.id, ()))
    [copy] = new_jobs.add(unit.tx, [new_jobs.NewJob(_fresh(job, unit.now), request, after)])
    jobs.wait_for_copy(unit.tx, job.id, copy.id)
    job_keys.copy(unit.tx, job.id, copy.id)
    scripts.copy_submitted(unit.tx, job.array_id, copy.id, now=unit.now)
    unit.event(EventType.RESUBMIT_JOB_AUTOMATICALLY, f"job {copy.id} is a copy of job {job.id}", job.id)
    return copy.id


def _may_be_copied(job: Job) -> bool:
    return (
        parse_types(job.types).idempotent
        and job.kind is JobKind.PASSIVE
        and job.reservation is Reservation.NONE
        and not parse_types(job.types).frontend
    )


def _wants_again(unit: UnitOfWork, job: Job, attempt: Attempt) -> bool:
    if attempt.outcome == EXITED and attempt.exit_code == AGAIN:
        return (attempt.ended_us or 0) - (attempt.started_us or 0) > _LEAST_RUN * 1_000_000
    if attempt.outcome == EXITED and attempt.exit_code == 0:
        return job.checkpoint > 0 and unit.has_event(job.id, EventType.CHECKPOINT_SUCCESS)
    if attempt.outcome == LOST and not unit.has_event(job.id, EventType.FRAG_JOB_REQUEST):
        return True
    if attempt.outcome in {KILLED, LOST} and unit.has_event(job.id, EventType.DESKTOP_LEFT):
        return True
    made_room = attempt.outcome in {KILLED, LOST} and parse_types(job.types).besteffort
    return made_room and unit.has_event(job.id, EventType.BESTEFFORT_KILL)


def _chain(unit: UnitOfWork, job: Job) -> int:
    """Count the copies that led to this job."""
    length, before = 0, job.resubmit_of
    while before and length < _LONGEST_CHAIN:
        length += 1
        before = jobs.get(unit.tx, before).resubmit_of
    return length


def _fresh(job: Job, now: int) -> Job:
    return replace(
        job,
        id=0,
        state=JobState.WAITING,
        submitted=now,
        start=0,
        stop=0,
        assigned=0,
        message=unknown_users.message_without(job),
        exit_code=None,
        resubmit_of=job.id,
        array_index=1,
        suspended=False,
        accounted=False,
    )
