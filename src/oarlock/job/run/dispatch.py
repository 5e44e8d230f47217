"""Follow: many news in one transaction. Each is taken by the step it belongs to; everything is written together."""

from collections.abc import Sequence

from oarlock.job.cluster import health, node_states, power
from oarlock.job.run import finish, launch, recover, suspend, unknown
from oarlock.job.run.effects import Instruction
from oarlock.job.run.finish import Over
from oarlock.job.run.reports import (
    Back,
    BadReport,
    Checked,
    Checkpointed,
    Exited,
    HeldUp,
    Lost,
    Missing,
    News,
    Notified,
    NotLaunched,
    NotNotified,
    ScriptEnded,
    Signalled,
    Started,
    Stopped,
    UnknownEnded,
    WentOn,
    Woken,
)
from oarlock.job.run.unit_of_work import Ledger, Site
from oarlock.model.event import EventType
from oarlock.store.engine.tx import Tx


def follow(tx: Tx, site: Site, news: Sequence[News], over: Over, *, now: float) -> list[Instruction]:
    """Take news in their order; the same news told twice change nothing."""
    ledger = Ledger(tx, site, now, {number for one in news if (number := _job(one))})
    for one in news:
        _take(ledger, one, over)
    return ledger.write()


def _job(one: News) -> int:
    match one:
        case Exited():
            return one.report.job
        case Lost() | Back() | UnknownEnded() | Checked() | Woken() | Notified():
            return 0
        case _:
            return one.job


def _take(ledger: Ledger, one: News, over: Over) -> None:
    match one:
        case Started():
            launch.started(ledger, one)
        case Exited():
            finish.reported(ledger, one, over)
        case NotLaunched():
            launch.failed(ledger, one)
        case Back():
            node_states.back(ledger, one, over)
        case Missing():
            recover.missing(ledger, one, over)
        case _:
            _take_rare(ledger, one, over)


def _take_rare(ledger: Ledger, one: News, over: Over) -> None:
    match one:
        case Checkpointed():
            _checkpointed(ledger, one)
        case BadReport():
            finish.unbelieved(ledger, one)
        case UnknownEnded() | HeldUp():
            unknown.heard(ledger, one)
        case ScriptEnded():
            finish.epilogue_ran(ledger, one, over)
        case Stopped():
            suspend.stopped(ledger, one)
        case WentOn():
            suspend.went_on(ledger, one)
        case Signalled():
            _signalled(ledger, one)
        case Checked():
            health.checked(ledger, one)
        case Woken():
            power.woken(ledger, one)
        case NotNotified():
            ledger.event(one.event, one.says, one.job or None)
        case Notified():
            ledger.notified(one.number)
        case _:
            pass  # a lost connection says nothing about jobs


def _checkpointed(ledger: Ledger, news: Checkpointed) -> None:
    if ledger.live(news.job, news.attempt) is not None and not ledger.happened(news.job, EventType.CHECKPOINT):
        ledger.event(EventType.CHECKPOINT, f"{news.node} sends the checkpoint signal", news.job, (news.node,))


def _signalled(ledger: Ledger, news: Signalled) -> None:
    if ledger.live(news.job, news.attempt) is not None and news.problem:
        ledger.event(EventType.CHECKPOINT_ERROR, news.problem, news.job)
