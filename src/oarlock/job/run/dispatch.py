"""Follow: many news in one transaction. Each is taken by the step it belongs to; everything is written together."""

from collections.abc import Sequence

from oarlock.job.cluster import health, node_states, power
from oarlock.job.run import finish, launch, recover, suspend, unknown
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
    NodesWoken,
    NotificationFailed,
    NotificationSent,
    NotLaunched,
    Started,
    UnknownEnded,
)
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.store.engine.tx import Tx


def follow(
    tx: Tx, site: StepContext, news: Sequence[IncomingReport], over: FinishedAttempts, *, now: float
) -> list[Effect]:
    """Take news in their order; the same news told twice change nothing."""
    ledger = UnitOfWork(tx, site, now, {number for one in news if (number := _job(one))})
    for one in news:
        _take(ledger, one, over)
    return ledger.write()


def _job(one: IncomingReport) -> int:
    match one:
        case Exited():
            return one.report.job
        case ConnectionLost() | NodeReachable() | UnknownEnded() | NodesChecked() | NodesWoken() | NotificationSent():
            return 0
        case _:
            return one.job


def _take(ledger: UnitOfWork, one: IncomingReport, over: FinishedAttempts) -> None:
    match one:
        case Started():
            launch.started(ledger, one)
        case Exited():
            finish.reported(ledger, one, over)
        case NotLaunched():
            launch.failed(ledger, one)
        case NodeReachable():
            node_states.back(ledger, one, over)
        case AttemptMissing():
            recover.missing(ledger, one, over)
        case _:
            _take_rare(ledger, one, over)


def _take_rare(ledger: UnitOfWork, one: IncomingReport, over: FinishedAttempts) -> None:
    match one:
        case Checkpointed():
            _checkpointed(ledger, one)
        case BadReport():
            finish.unbelieved(ledger, one)
        case UnknownEnded() | LaunchDelayed():
            unknown.heard(ledger, one)
        case EpilogueEnded():
            finish.epilogue_ran(ledger, one, over)
        case JobSuspended():
            suspend.stopped(ledger, one)
        case JobResumed():
            suspend.went_on(ledger, one)
        case CheckpointSignalled():
            _signalled(ledger, one)
        case NodesChecked():
            health.checked(ledger, one)
        case NodesWoken():
            power.woken(ledger, one)
        case NotificationFailed():
            ledger.event(one.event, one.says, one.job or None)
        case NotificationSent():
            ledger.notified(one.number)
        case _:
            pass  # a lost connection says nothing about jobs


def _checkpointed(ledger: UnitOfWork, news: Checkpointed) -> None:
    if ledger.live(news.job, news.attempt) is not None and not ledger.happened(news.job, EventType.CHECKPOINT):
        ledger.event(EventType.CHECKPOINT, f"{news.node} sends the checkpoint signal", news.job, (news.node,))


def _signalled(ledger: UnitOfWork, news: CheckpointSignalled) -> None:
    if ledger.live(news.job, news.attempt) is not None and news.problem:
        ledger.event(EventType.CHECKPOINT_ERROR, news.problem, news.job)
