"""Apply many reports in one transaction: each goes to the step it belongs to, and everything is written together."""

from collections.abc import Sequence

from oarlock.job.cluster import node_states, power
from oarlock.job.run import finish, recover, suspend
from oarlock.job.run.effects import Effect
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import (
    AttemptMissing,
    BadReport,
    Checkpointed,
    CheckpointSignalled,
    ConnectionLost,
    EpilogueEnded,
    Exited,
    IncomingReport,
    JobResumed,
    JobSuspended,
    LaunchDelayed,
    NodeReachable,
    NodesChecked,
    NodesHealed,
    NodesWoken,
    NotificationFailed,
    NotificationSent,
    NotLaunched,
    Started,
    UnknownEnded,
)
from oarlock.job.run.starting import launch_result
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.store.engine.tx import Tx


def apply_reports(
    tx: Tx, context: StepContext, reports: Sequence[IncomingReport], finished: FinishedAttempts, *, now: float
) -> list[Effect]:
    """Apply reports in their order; the same report twice changes nothing."""
    unit = UnitOfWork(tx, context, now, {number for report in reports if (number := _job(report))})
    for report in reports:
        _take(unit, report, finished)
    return unit.write()


def _job(report: IncomingReport) -> int:
    match report:
        case Exited():
            return report.report.job
        case ConnectionLost() | NodeReachable() | UnknownEnded() | NotificationSent():
            return 0
        case NodesChecked() | NodesWoken() | NodesHealed():
            return 0
        case _:
            return report.job


def _take(unit: UnitOfWork, report: IncomingReport, finished: FinishedAttempts) -> None:
    match report:
        case Started():
            launch_result.started(unit, report)
        case Exited():
            finish.attempt_exited(unit, report, finished)
        case NotLaunched():
            launch_result.failed(unit, report)
        case NodeReachable():
            node_states.node_reachable(unit, report, finished)
        case AttemptMissing():
            recover.attempt_missing(unit, report, finished)
        case _:
            _take_rare(unit, report, finished)


def _take_rare(unit: UnitOfWork, report: IncomingReport, finished: FinishedAttempts) -> None:
    match report:
        case Checkpointed():
            _checkpointed(unit, report)
        case BadReport():
            finish.note_bad_report(unit, report)
        case UnknownEnded() | LaunchDelayed():
            recover.apply_unknown_report(unit, report)
        case EpilogueEnded():
            finish.epilogue_ended(unit, report, finished)
        case JobSuspended():
            suspend.job_suspended(unit, report)
        case JobResumed():
            suspend.job_resumed(unit, report)
        case CheckpointSignalled():
            _signalled(unit, report)
        case NodesChecked() | NodesWoken() | NodesHealed():
            _take_about_nodes(unit, report)
        case NotificationFailed():
            unit.event(report.event, report.says, report.job or None)
        case NotificationSent():
            unit.notice_sent(report.number)
        case _:
            pass  # a lost connection says nothing about jobs


def _take_about_nodes(unit: UnitOfWork, report: NodesChecked | NodesWoken | NodesHealed) -> None:
    match report:
        case NodesChecked():
            node_states.nodes_checked(unit, report)
        case NodesWoken():
            power.nodes_woken(unit, report)
        case NodesHealed():
            node_states.nodes_healed(unit, report)


def _checkpointed(unit: UnitOfWork, report: Checkpointed) -> None:
    if unit.open_attempt(report.job, report.attempt) is not None and not unit.has_event(
        report.job, EventType.CHECKPOINT
    ):
        unit.event(EventType.CHECKPOINT, f"{report.node} sends the checkpoint signal", report.job, (report.node,))


def _signalled(unit: UnitOfWork, report: CheckpointSignalled) -> None:
    if unit.open_attempt(report.job, report.attempt) is not None and report.problem:
        unit.event(EventType.CHECKPOINT_ERROR, report.problem, report.job)
