"""Unknown jobs: what nodes still know of another generation of the database. It is named, held, and never believed."""

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from oarlock.config import UnknownAttempts
from oarlock.job.run.effects import DiscardAttempt, Effect, EndUnknown, ForgetAttempts, ScheduleAgain, SurveyNodes
from oarlock.job.run.reports import Hello, LaunchDelayed, UnknownEnded
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.unknown import UnknownAttempt
from oarlock.store.engine import facts, generation
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import attempts, resources, unknown

log = logging.getLogger(__name__)

_MOST_JOBS = 2**53  # no number above this is believed


def load(tx: Tx, site: StepContext) -> list[Effect]:
    """Read the generation and what is unknown; after a new generation began, ask all nodes what they run."""
    site.lineage.generation = generation.current(tx)
    site.lineage.unknown_nodes = {found.node for found in unknown.listed(tx)}
    return [SurveyNodes(_nodes(tx))] if generation.pop_survey_request(tx) else []


def _nodes(tx: Tx) -> tuple[str, ...]:
    listed = [one.properties for one in resources.listed(tx)]
    names = {str(about["network_address"]) for about in listed if about["type"] == DEFAULT_TYPE}
    return tuple(sorted(names - {""}))


def compare(ledger: UnitOfWork, node: str, hello: Hello) -> None:
    """Begin a generation if a node has seen jobs of this instance that the database does not know."""
    if not generation.highest_job(ledger.tx) < hello.highest_job < _MOST_JOBS:
        return
    if hello.instance == facts.get(ledger.tx, "identity"):
        _begin(ledger, node, hello.highest_job)
    else:
        first = generation.skip_jobs(ledger.tx, hello.highest_job)
        log.warning("a node has seen jobs of another instance", extra={"node": node, "next_job": first})


def _begin(ledger: UnitOfWork, node: str, job: int) -> None:
    why = f"{node} has seen job {job}, which this database does not know: an older state of it was put back"
    ledger.site.lineage.generation = generation.begin(ledger.tx, why, above=job, now=ledger.now)
    if generation.pop_survey_request(ledger.tx):
        ledger.tell(SurveyNodes(_nodes(ledger.tx)))


def met(ledger: UnitOfWork, node: str, found: Sequence[UnknownAttempt]) -> None:
    """Take what a node has that nobody here awaits: all of it, whenever the node is reached."""
    before = {(one.job, one.attempt, one.tag): one for one in unknown.of_node(ledger.tx, node)}
    if not found and not before:
        return
    lost = [one for one in found if not _is_ours(ledger, one)]
    # Signed by this server, in this generation, and not in its database: the number may have been given again already.
    if same := [one.job for one in lost if one.tag and one.generation == ledger.site.lineage.generation]:
        _begin(ledger, node, max(same))
    new = [one for one in lost if one.alive and (one.job, one.attempt, one.tag) not in before]
    unknown.add(ledger.tx, [_dated(one, ledger.now) for one in new])
    for one in new:
        ledger.event(EventType.UNKNOWN_JOB_FOUND, _found(one), None, (node,))
    for one in lost:
        _go_on(ledger, one)
    there = {(one.job, one.attempt, one.tag) for one in lost if one.alive}
    gone = [one for key, one in before.items() if key not in there]
    for one in (*gone, *(one for one in lost if not one.alive and (one.job, one.attempt, one.tag) not in before)):
        ledger.event(EventType.UNKNOWN_JOB_ENDED, f"{_named(one)} is over", None, (node,))
    unknown.remove(ledger.tx, [one.id for one in gone])
    _note_nodes(ledger)


def _dated(one: UnknownAttempt, now: int) -> UnknownAttempt:
    return replace(one, since=one.since or now)


def _is_ours(ledger: UnitOfWork, one: UnknownAttempt) -> bool:
    """Return whether the database knows an attempt by its secret; one whose end is written down may be forgotten.

    A server that died may have had no time to say so.
    """
    for attempt in attempts.of_jobs(ledger.tx, [one.job]):
        if attempt.number == one.attempt and attempt.secret_hash == one.tag:
            if attempt.closed_us is not None and not one.alive:
                ledger.tell(ForgetAttempts(one.node, ((one.job, one.attempt),)))
            return True
    return False


def _go_on(ledger: UnitOfWork, one: UnknownAttempt) -> None:
    if not one.alive:
        ledger.tell(DiscardAttempt(one.node, one.job, one.attempt, one.tag))
    elif ledger.config.restore_unknown_attempts is UnknownAttempts.END:
        ledger.tell(EndUnknown(one.node, one.job, one.attempt, one.tag))


def _named(one: UnknownAttempt) -> str:
    whose = f" of {one.user}" if one.user else ""
    signed = f"generation {one.generation or 'unknown'}" if one.tag else "not signed by this server"
    return f"job {one.job} (attempt {one.attempt}{whose}; {signed}) on {one.node}"


def _found(one: UnknownAttempt) -> str:
    return (
        f"{_named(one)} runs, and this database does not know it; its resources are held until it ends. "
        "`oarlock unknown list` shows it, `oarlock unknown end NUMBER` ends it."
    )


def heard(ledger: UnitOfWork, news: UnknownEnded | LaunchDelayed) -> None:
    """Take what is said of one unknown job."""
    if isinstance(news, UnknownEnded):
        _ended(ledger, news)
    elif ledger.live(news.job, news.attempt) is not None:
        ledger.event(EventType.UNKNOWN_JOB_FOUND, f"the launch waits: {news.says}", news.job, (news.node,))


def _ended(ledger: UnitOfWork, news: UnknownEnded) -> None:
    """Note that an unknown job is over: what it held is free again."""
    for one in unknown.of_node(ledger.tx, news.node):
        if (one.job, one.attempt, one.tag) == (news.job, news.attempt, news.tag):
            unknown.remove(ledger.tx, [one.id])
            ledger.event(EventType.UNKNOWN_JOB_ENDED, f"{_named(one)} is over", None, (news.node,))
    ledger.tell(DiscardAttempt(news.node, news.job, news.attempt, news.tag))
    _note_nodes(ledger)


def _note_nodes(ledger: UnitOfWork) -> None:
    ledger.site.lineage.unknown_nodes = {one.node for one in unknown.listed(ledger.tx)}
    ledger.tell(ScheduleAgain())


def end(tx: Tx, number: int) -> list[Effect]:
    """Return the instruction that ends an unknown job; what it holds is given back when its node says that it ended."""
    one = unknown.get(tx, number)
    return [EndUnknown(one.node, one.job, one.attempt, one.tag)]
