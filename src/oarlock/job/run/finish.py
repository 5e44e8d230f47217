"""Finish: reports → Finishing → everything cleaned → Terminated or Error; exactly once, in whatever order they come."""

from collections.abc import Iterable

from oarlock.job.run import launch, resubmit, unknown_users
from oarlock.job.run.blame import AFTER_JOB, BEFORE_JOB
from oarlock.job.run.effects import CheckNodes, Effect, ForgetAttempts, ReleaseNodes, RunEpilogue
from oarlock.job.run.reports import BadReport, EpilogueEnded, Exited, IncomingReport
from oarlock.job.run.unit_of_work import Place, UnitOfWork
from oarlock.model.event import EventType, event_type
from oarlock.model.job import Job, JobState
from oarlock.node.wire.messages import EXITED, FAILED, KILLED, LOST, WALLTIME, Report
from oarlock.store.queries.attempts import Attempt

_HOW = {
    EXITED: "its command ended",
    KILLED: "it was killed",
    WALLTIME: "its walltime was over",
    LOST: "its supervisor vanished",
}
_USERS_OWN = frozenset({EventType.WORKING_DIRECTORY, EventType.OUTPUT_FILES})
"""Launches that fail for a reason of the user's own: another node would not help."""


class FinishedAttempts:
    """Which attempts are over on which nodes, and the last boot id of each node that answered.

    Kept in memory: after a restart the nodes are asked again. What is noted in a transaction that is undone stays true,
    but counts as written down only when `written` says so: the same reports are then taken once more.
    """

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._written: set[Place] = set()
        self.boots: dict[str, str] = {}
        self.clocks: dict[str, int] = {}  # node → seconds by which its clock was last told to be ahead

    def add(self, ledger: UnitOfWork, place: Place) -> bool:
        """Note that an attempt is over on a node; say whether that is news, in this step and to the database."""
        self._places.add(place)
        if place in self._written or place in ledger.heard:
            return False
        ledger.heard.add(place)
        return True

    def written(self, news: Iterable[IncomingReport], instructions: Iterable[Effect]) -> None:
        """Hear that a step is on disk: with the news that it took, and what it wants done."""
        reports = ((one.report.job, one.report.attempt, one.node) for one in news if isinstance(one, Exited))
        self._written.update(place for place in reports if place in self._places)
        for one in instructions:
            if isinstance(one, ForgetAttempts):
                done = {(*key, one.node) for key in one.attempts}
                self._places -= done
                self._written -= done

    def left(self, attempt: Attempt) -> list[str]:
        """Give the nodes on which an attempt may still be alive."""
        return [node.name for node in attempt.nodes if (attempt.job_id, attempt.number, node.name) not in self._places]


def reported(ledger: UnitOfWork, news: Exited, over: FinishedAttempts) -> None:
    """Take the report of a node; what is late or was told before changes nothing."""
    report = news.report
    attempt = ledger.live(report.job, report.attempt)
    if attempt is None:
        ledger.tell(ForgetAttempts(news.node, ((report.job, report.attempt),)))
        return
    if news.node not in [node.name for node in attempt.nodes]:
        says = "it is not a node of this attempt"
        unbelieved(ledger, BadReport(news.node, report.job, report.attempt, says))
        return
    if not over.add(ledger, (report.job, report.attempt, news.node)):
        return
    ledger.used(report)
    for name, says in report.events:
        ledger.event(event_type(name), says, report.job, (news.node,), cause=report.causes.get(name, ""))
    _note_programs(ledger, report)
    if news.node == attempt.nodes[0].name and attempt.ended_us is None:
        _first_ended(ledger, attempt, report, over)
    conclude(ledger, report.job, over)


def _note_programs(ledger: UnitOfWork, report: Report) -> None:
    """Note which programs of the site did what they should."""
    if report.outcome not in {FAILED, LOST}:
        happened = {event_type(name) for name, _ in report.events}
        before = BEFORE_JOB if report.started is not None else ()
        ledger.site.programs.worked((*before, *(kind for kind in AFTER_JOB if kind not in happened)))


def unbelieved(ledger: UnitOfWork, news: BadReport) -> None:
    """Note a report that nobody can have sent."""
    known = news.job in ledger.jobs
    kind = EventType.BIPBIP_CHALLENGE if known else EventType.BIPBIP_BAD_JOBID
    says = f"a report of attempt {news.attempt} from {news.node} was refused: {news.why}"
    ledger.event(kind, says, news.job if known else None, (news.node,))


def _first_ended(ledger: UnitOfWork, attempt: Attempt, report: Report, over: FinishedAttempts) -> None:
    job = ledger.jobs[report.job]
    others = tuple(node for node in over.left(attempt) if node != report.node)
    if others:
        ledger.tell(ReleaseNodes(others, *_key(attempt)))
    if report.outcome == FAILED and not _is_users_own(report):
        _launch_failed(ledger, job, attempt, report)
        return
    if report.outcome == FAILED:
        ledger.event(event_type(report.event), report.says, job.id, (report.node,))
    if job.state is JobState.LAUNCHING and report.started is not None:
        ledger.site.failures.started(report.node)
        message = unknown_users.message_without(job)
        job = ledger.move(job.id, JobState.RUNNING, f"its command ran on {report.node}", message=message)
    started = attempt.started_us if report.started is None else ledger.us(report.started)
    ledger.attempt(
        attempt,
        started_us=started,
        ended_us=ledger.us(report.ended),
        exit_code=report.status,
        outcome=report.outcome,
    )
    if report.outcome == LOST:
        ledger.event(EventType.EXIT_VALUE_OAREXEC, report.says or "its supervisor vanished", job.id, (report.node,))
    if job.state is not JobState.FINISHING:
        ledger.move(job.id, JobState.FINISHING, report.says or _HOW[report.outcome])


def _is_users_own(report: Report) -> bool:
    return event_type(report.event) in _USERS_OWN


def _launch_failed(ledger: UnitOfWork, job: Job, attempt: Attempt, report: Report) -> None:
    """Give the job back: nothing of the user's ran."""
    event, cause = event_type(report.event), report.causes.get(report.event, "")
    blame = launch.note_failure(ledger, event, report.says, job.id, (report.node,), cause=cause)
    outcome = launch.outcome_of(event, blame, report.outcome)
    ledger.close(ledger.attempt(attempt, outcome=outcome, ended_us=ledger.us()))
    ledger.tell(ForgetAttempts(report.node, (_key(attempt),)))
    if job.state is JobState.LAUNCHING:
        launch.give_back(ledger, job, event, report.says, tries=attempt.number, host=report.node, blame=blame)


def conclude(ledger: UnitOfWork, job_id: int, over: FinishedAttempts, *, epilogue_ran: bool = False) -> None:
    """End a job as soon as it is over on every node of its and the server's epilogue has run."""
    job, attempt = ledger.jobs[job_id], ledger.attempts[job_id]
    if attempt.closed_us is not None or attempt.ended_us is None or over.left(attempt):
        return
    if ledger.config.server_epilogue_exec_file and not epilogue_ran:
        ledger.tell(RunEpilogue(*_key(attempt)))
        return
    _close(ledger, attempt)
    if attempt.outcome == EXITED:
        end(ledger, job, JobState.TERMINATED, exit_code=attempt.exit_code)
    else:
        end(ledger, job, JobState.ERROR, why=_HOW.get(attempt.outcome, "it could not start"))
    resubmit.perhaps(ledger, job, attempt)


def _close(ledger: UnitOfWork, attempt: Attempt) -> None:
    ledger.close(attempt)
    nodes = tuple(node.name for node in attempt.nodes)
    ledger.tell(*(ForgetAttempts(node, (_key(attempt),)) for node in nodes))
    if ledger.config.activate_pingchecker_at_job_end:
        ledger.tell(CheckNodes(nodes))


def end(ledger: UnitOfWork, job: Job, state: JobState, *, exit_code: int | None = None, why: str = "") -> None:
    """Move a job to its final state, with the manual's event."""
    if state is JobState.TERMINATED:
        ledger.event(EventType.SWITCH_INTO_TERMINATE_STATE, why or "the job ended", job.id)
    else:
        ledger.event(EventType.SWITCH_INTO_ERROR_STATE, why or "the job was ended", job.id)
    ledger.move(job.id, state, why or "everything is cleaned", exit_code=exit_code)


def epilogue_ran(ledger: UnitOfWork, news: EpilogueEnded, over: FinishedAttempts) -> None:
    """Go on after the server's epilogue; if it failed the queues are stopped, and the job keeps how it ended."""
    if ledger.live(news.job, news.attempt) is None:
        return
    if news.event is not None:
        ledger.event(news.event, news.says, news.job)
    conclude(ledger, news.job, over, epilogue_ran=True)


def gone(ledger: UnitOfWork, attempt: Attempt, node: str, over: FinishedAttempts, why: str) -> None:
    """Note that an attempt is certainly over on a node that did not report how: it rebooted, or its time is over."""
    if not over.add(ledger, (*_key(attempt), node)):
        return
    if node == attempt.nodes[0].name and attempt.ended_us is None:
        report = Report(*_key(attempt), node, "", LOST, says=why)
        if attempt.started_us is not None:
            report = report._replace(started=attempt.started_us / 1_000_000)
        _first_ended(ledger, attempt, report, over)
    conclude(ledger, attempt.job_id, over)


def _key(attempt: Attempt) -> tuple[int, int]:
    return attempt.job_id, attempt.number
