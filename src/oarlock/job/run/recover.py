"""Recover after a restart: adopt what runs, finish what ended, and launch only what certainly never ran.

Attempts on nodes that belong to another generation of the database are unknown jobs: they are listed and their
resources are held; nothing that they report is applied to a job of this database.
"""

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from oarlock.job.run import finish, notices, suspend, walltime
from oarlock.job.run.effects import (
    AwaitReport,
    DiscardAttempt,
    Effect,
    EndUnknown,
    ForgetAttempts,
    Kill,
    ScheduleAgain,
    SurveyNodes,
)
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import AttemptMissing, Hello, LaunchDelayed, UnknownEnded
from oarlock.job.run.starting import launch, launch_result
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import FragState, JobState, UnknownAttempt
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.settings.kinds import UnknownAttempts
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import attempts, jobs, moves, new_jobs
from oarlock.store.queries.site import generation

log = logging.getLogger(__name__)

_MOST_JOBS = 2**53  # no number above this is believed


def load_unknown(tx: Tx, context: StepContext) -> list[Effect]:
    """Read the generation and what is unknown; after a new generation began, ask all nodes what they run."""
    context.lineage.generation = generation.current(tx)
    context.lineage.unknown_nodes = {attempt.node for attempt in attempts.all_unknown(tx)}
    return [SurveyNodes(_nodes(tx))] if generation.pop_survey_request(tx) else []


def _nodes(tx: Tx) -> tuple[str, ...]:
    listed = [resource.properties for resource in resources.listed(tx)]
    names = {str(values["network_address"]) for values in listed if values["type"] == DEFAULT_TYPE}
    return tuple(sorted(names - {""}))


def compare_generation(unit: UnitOfWork, node: str, hello: Hello) -> None:
    """Begin a generation if a node has seen jobs of this instance that the database does not know."""
    if not generation.highest_job(unit.tx) < hello.highest_job < _MOST_JOBS:
        return
    if hello.instance == facts.get(unit.tx, "identity"):
        _begin_generation(unit, node, hello.highest_job)
    else:
        first = generation.skip_jobs(unit.tx, hello.highest_job)
        log.warning("a node has seen jobs of another instance", extra={"node": node, "next_job": first})


def _begin_generation(unit: UnitOfWork, node: str, job: int) -> None:
    why = f"{node} has seen job {job}, which this database does not know: an older state of it was put back"
    unit.context.lineage.generation = generation.begin(unit.tx, why, above=job, now=unit.now)
    if generation.pop_survey_request(unit.tx):
        unit.add_effects(SurveyNodes(_nodes(unit.tx)))


def compare_attempts(unit: UnitOfWork, node: str, reported: Sequence[UnknownAttempt]) -> None:
    """Compare all attempts of a node that no step awaits with the stored ones, whenever the node is reached."""
    before = {
        (attempt.job, attempt.attempt, attempt.tag): attempt for attempt in attempts.unknown_of_node(unit.tx, node)
    }
    if not reported and not before:
        return
    lost = [attempt for attempt in reported if not _is_ours(unit, attempt)]
    # Signed by this server, in this generation, and not in its database: the number may have been given again already.
    if same := [
        attempt.job for attempt in lost if attempt.tag and attempt.generation == unit.context.lineage.generation
    ]:
        _begin_generation(unit, node, max(same))
    new = [attempt for attempt in lost if attempt.alive and (attempt.job, attempt.attempt, attempt.tag) not in before]
    attempts.add_unknown(unit.tx, [_dated(attempt, unit.now) for attempt in new])
    for attempt in new:
        unit.event(EventType.UNKNOWN_JOB_FOUND, _unknown_text(attempt), None, (node,))
    for attempt in lost:
        _discard_or_end(unit, attempt)
    there = {(attempt.job, attempt.attempt, attempt.tag) for attempt in lost if attempt.alive}
    gone = [attempt for key, attempt in before.items() if key not in there]
    for attempt in (
        *gone,
        *(
            attempt
            for attempt in lost
            if not attempt.alive and (attempt.job, attempt.attempt, attempt.tag) not in before
        ),
    ):
        unit.event(EventType.UNKNOWN_JOB_ENDED, f"{_named(attempt)} is over", None, (node,))
    attempts.remove_unknown(unit.tx, [attempt.id for attempt in gone])
    _note_nodes(unit)


def _dated(attempt: UnknownAttempt, now: int) -> UnknownAttempt:
    return replace(attempt, since=attempt.since or now)


def _is_ours(unit: UnitOfWork, attempt: UnknownAttempt) -> bool:
    """Return whether the database knows an attempt by its secret; one whose end is written down ends, and is forgotten.

    A server that died may have had no time to say so, and a node may have been out of reach.
    """
    for stored in attempts.of_jobs(unit.tx, [attempt.job]):
        if stored.number == attempt.attempt and stored.secret_hash == attempt.tag:
            if stored.closed_us is not None and attempt.alive:
                unit.add_effects(EndUnknown(attempt.node, attempt.job, attempt.attempt, attempt.tag))
            elif stored.closed_us is not None:
                unit.add_effects(ForgetAttempts(attempt.node, ((attempt.job, attempt.attempt),)))
            return True
    return False


def _discard_or_end(unit: UnitOfWork, attempt: UnknownAttempt) -> None:
    if not attempt.alive:
        unit.add_effects(DiscardAttempt(attempt.node, attempt.job, attempt.attempt, attempt.tag))
    elif unit.config.restore_unknown_attempts is UnknownAttempts.END:
        unit.add_effects(EndUnknown(attempt.node, attempt.job, attempt.attempt, attempt.tag))


def _named(attempt: UnknownAttempt) -> str:
    whose = f" of {attempt.user}" if attempt.user else ""
    signed = f"generation {attempt.generation or 'unknown'}" if attempt.tag else "not signed by this server"
    return f"job {attempt.job} (attempt {attempt.attempt}{whose}; {signed}) on {attempt.node}"


def _unknown_text(attempt: UnknownAttempt) -> str:
    return (
        f"{_named(attempt)} runs, and this database does not know it; its resources are held until it ends. "
        "`oarlock unknown list` shows it, `oarlock unknown end NUMBER` ends it."
    )


def apply_unknown_report(unit: UnitOfWork, report: UnknownEnded | LaunchDelayed) -> None:
    """Apply a report about one unknown job."""
    if isinstance(report, UnknownEnded):
        _ended(unit, report)
    elif unit.open_attempt(report.job, report.attempt) is not None:
        unit.event(EventType.UNKNOWN_JOB_FOUND, f"the launch waits: {report.says}", report.job, (report.node,))


def _ended(unit: UnitOfWork, report: UnknownEnded) -> None:
    """Note that an unknown job is over: what it held is free again."""
    for attempt in attempts.unknown_of_node(unit.tx, report.node):
        if (attempt.job, attempt.attempt, attempt.tag) == (report.job, report.attempt, report.tag):
            attempts.remove_unknown(unit.tx, [attempt.id])
            unit.event(EventType.UNKNOWN_JOB_ENDED, f"{_named(attempt)} is over", None, (report.node,))
    unit.add_effects(DiscardAttempt(report.node, report.job, report.attempt, report.tag))
    _note_nodes(unit)


def _note_nodes(unit: UnitOfWork) -> None:
    unit.context.lineage.unknown_nodes = {attempt.node for attempt in attempts.all_unknown(unit.tx)}
    unit.add_effects(ScheduleAgain())


def end_unknown(tx: Tx, number: int) -> list[Effect]:
    """Return the effect that ends an unknown job; its resources are released when its node reports the end."""
    attempt = attempts.get_unknown(tx, number)
    return [EndUnknown(attempt.node, attempt.job, attempt.attempt, attempt.tag)]


def begin(tx: Tx, context: StepContext, *, now: float) -> list[Effect]:
    """Return the first effects: await every attempt that is not closed, continue launches, kills, suspensions, notices.

    Of arrays that were not stored to their end nothing is left.

    Nothing is decided yet: nodes report what became of their attempts, or that they have none (`AttemptMissing`).
    """
    for numbers in new_jobs.unfinished_arrays(tx):
        new_jobs.remove_array(tx, numbers)
    survey = load_unknown(tx, context)
    live = attempts.live(tx)
    context.interrupted.clear()
    context.interrupted.update((attempt.job_id, attempt.number) for attempt in live)
    effects: list[Effect] = [
        AwaitReport(node.name, attempt.job_id, attempt.number, context.secret(attempt))
        for attempt in live
        for node in attempt.nodes
    ]
    by_job = {attempt.job_id: attempt for attempt in live}
    for number, state, _ in moves.kills_under_way(tx):
        if state is not FragState.FRAGGED and number in by_job:
            attempt = by_job[number]
            effects.append(Kill(attempt.nodes[0].name, number, attempt.number))
    waiting = [job.id for job in jobs.in_states(tx, [JobState.TO_LAUNCH])]
    return [
        *survey,
        *effects,
        *launch.begin_reached(tx, context, waiting, {}, now=now),
        *suspend.suspend_again(tx, context, now=now),
        *suspend.resume_where_free(tx, context, now=now),
        *walltime.look_again(tx, context, now=now),
        *notices.unsent(tx),
    ]


def attempt_missing(unit: UnitOfWork, report: AttemptMissing, finished: FinishedAttempts) -> None:
    """A node does not know an attempt: it never arrived there, or the node was started again since.

    Only when the node was not started again, and nothing was heard of the command, is it certain that it never ran; and
    only in the generation that began it: in a lost one it may have run and been forgotten.
    """
    attempt = unit.open_attempt(report.job, report.attempt)
    if attempt is None:
        return
    place = next((node for node in attempt.nodes if node.name == report.node), None)
    if place is None:
        return
    never_ran = place.boot_id == finished.boots.get(report.node) and attempt.started_us is None
    never_ran = never_ran and attempt.generation == unit.context.lineage.generation
    if never_ran and report.node == attempt.nodes[0].name and attempt.ended_us is None:
        _again(unit, report)
    else:
        finish.attempt_lost(unit, attempt, report.node, finished, f"{report.node} does not know the job any more")


def _again(unit: UnitOfWork, report: AttemptMissing) -> None:
    attempt, job = unit.attempts[report.job], unit.jobs[report.job]
    # A server that died while it launched the job is no fault of the job, however often that happens.
    died = (report.job, report.attempt) in unit.context.interrupted
    unit.close(unit.update_attempt(attempt, outcome=launch_result.SERVER_DIED if died else "never arrived"))
    if job.state is JobState.LAUNCHING:
        says = f"the launch never arrived at {report.node}"
        unit.event(EventType.LAUNCHING_OAREXEC_TIMEOUT, says, job.id)  # no host: the way to it was lost, not the node
        launch_result.requeue(unit, job, EventType.LAUNCHING_OAREXEC_TIMEOUT, says, tries=attempt.number)
