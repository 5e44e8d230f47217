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


def load(tx: Tx, context: StepContext) -> list[Effect]:
    """Read the generation and what is unknown; after a new generation began, ask all nodes what they run."""
    context.lineage.generation = generation.current(tx)
    context.lineage.unknown_nodes = {found.node for found in unknown.listed(tx)}
    return [SurveyNodes(_nodes(tx))] if generation.pop_survey_request(tx) else []


def _nodes(tx: Tx) -> tuple[str, ...]:
    listed = [one.properties for one in resources.listed(tx)]
    names = {str(about["network_address"]) for about in listed if about["type"] == DEFAULT_TYPE}
    return tuple(sorted(names - {""}))


def compare_generation(unit: UnitOfWork, node: str, hello: Hello) -> None:
    """Begin a generation if a node has seen jobs of this instance that the database does not know."""
    if not generation.highest_job(unit.tx) < hello.highest_job < _MOST_JOBS:
        return
    if hello.instance == facts.get(unit.tx, "identity"):
        _begin(unit, node, hello.highest_job)
    else:
        first = generation.skip_jobs(unit.tx, hello.highest_job)
        log.warning("a node has seen jobs of another instance", extra={"node": node, "next_job": first})


def _begin(unit: UnitOfWork, node: str, job: int) -> None:
    why = f"{node} has seen job {job}, which this database does not know: an older state of it was put back"
    unit.context.lineage.generation = generation.begin(unit.tx, why, above=job, now=unit.now)
    if generation.pop_survey_request(unit.tx):
        unit.add_effects(SurveyNodes(_nodes(unit.tx)))


def compare_attempts(unit: UnitOfWork, node: str, found: Sequence[UnknownAttempt]) -> None:
    """Take what a node has that nobody here awaits: all of it, whenever the node is reached."""
    before = {(one.job, one.attempt, one.tag): one for one in unknown.of_node(unit.tx, node)}
    if not found and not before:
        return
    lost = [one for one in found if not _is_ours(unit, one)]
    # Signed by this server, in this generation, and not in its database: the number may have been given again already.
    if same := [one.job for one in lost if one.tag and one.generation == unit.context.lineage.generation]:
        _begin(unit, node, max(same))
    new = [one for one in lost if one.alive and (one.job, one.attempt, one.tag) not in before]
    unknown.add(unit.tx, [_dated(one, unit.now) for one in new])
    for one in new:
        unit.event(EventType.UNKNOWN_JOB_FOUND, _found(one), None, (node,))
    for one in lost:
        _discard_or_end(unit, one)
    there = {(one.job, one.attempt, one.tag) for one in lost if one.alive}
    gone = [one for key, one in before.items() if key not in there]
    for one in (*gone, *(one for one in lost if not one.alive and (one.job, one.attempt, one.tag) not in before)):
        unit.event(EventType.UNKNOWN_JOB_ENDED, f"{_named(one)} is over", None, (node,))
    unknown.remove(unit.tx, [one.id for one in gone])
    _note_nodes(unit)


def _dated(one: UnknownAttempt, now: int) -> UnknownAttempt:
    return replace(one, since=one.since or now)


def _is_ours(unit: UnitOfWork, one: UnknownAttempt) -> bool:
    """Return whether the database knows an attempt by its secret; one whose end is written down may be forgotten.

    A server that died may have had no time to say so.
    """
    for attempt in attempts.of_jobs(unit.tx, [one.job]):
        if attempt.number == one.attempt and attempt.secret_hash == one.tag:
            if attempt.closed_us is not None and not one.alive:
                unit.add_effects(ForgetAttempts(one.node, ((one.job, one.attempt),)))
            return True
    return False


def _discard_or_end(unit: UnitOfWork, one: UnknownAttempt) -> None:
    if not one.alive:
        unit.add_effects(DiscardAttempt(one.node, one.job, one.attempt, one.tag))
    elif unit.config.restore_unknown_attempts is UnknownAttempts.END:
        unit.add_effects(EndUnknown(one.node, one.job, one.attempt, one.tag))


def _named(one: UnknownAttempt) -> str:
    whose = f" of {one.user}" if one.user else ""
    signed = f"generation {one.generation or 'unknown'}" if one.tag else "not signed by this server"
    return f"job {one.job} (attempt {one.attempt}{whose}; {signed}) on {one.node}"


def _found(one: UnknownAttempt) -> str:
    return (
        f"{_named(one)} runs, and this database does not know it; its resources are held until it ends. "
        "`oarlock unknown list` shows it, `oarlock unknown end NUMBER` ends it."
    )


def apply_report(unit: UnitOfWork, report: UnknownEnded | LaunchDelayed) -> None:
    """Take what is said of one unknown job."""
    if isinstance(report, UnknownEnded):
        _ended(unit, report)
    elif unit.open_attempt(report.job, report.attempt) is not None:
        unit.event(EventType.UNKNOWN_JOB_FOUND, f"the launch waits: {report.says}", report.job, (report.node,))


def _ended(unit: UnitOfWork, report: UnknownEnded) -> None:
    """Note that an unknown job is over: what it held is free again."""
    for one in unknown.of_node(unit.tx, report.node):
        if (one.job, one.attempt, one.tag) == (report.job, report.attempt, report.tag):
            unknown.remove(unit.tx, [one.id])
            unit.event(EventType.UNKNOWN_JOB_ENDED, f"{_named(one)} is over", None, (report.node,))
    unit.add_effects(DiscardAttempt(report.node, report.job, report.attempt, report.tag))
    _note_nodes(unit)


def _note_nodes(unit: UnitOfWork) -> None:
    unit.context.lineage.unknown_nodes = {one.node for one in unknown.listed(unit.tx)}
    unit.add_effects(ScheduleAgain())


def end(tx: Tx, number: int) -> list[Effect]:
    """Return the instruction that ends an unknown job; what it holds is given back when its node says that it ended."""
    one = unknown.get(tx, number)
    return [EndUnknown(one.node, one.job, one.attempt, one.tag)]
