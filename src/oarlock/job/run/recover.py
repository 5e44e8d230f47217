"""Recover after a restart: adopt what runs, finish what ended, and launch only what certainly never ran."""

from oarlock.job import notices
from oarlock.job.run import finish, launch, suspend, unknown, walltime
from oarlock.job.run.effects import AwaitReport, Effect, Kill
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import AttemptMissing
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import FragState, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import attempts, jobs, moves, new_jobs


def begin(tx: Tx, context: StepContext, *, now: float) -> list[Effect]:
    """Return the first effects: await every attempt that is not closed, continue launches, kills, suspensions, notices.

    Of arrays that were not stored to their end nothing is left.

    Nothing is decided yet: nodes report what became of their attempts, or that they have none (`AttemptMissing`).
    """
    for numbers in new_jobs.unfinished_arrays(tx):
        new_jobs.remove_array(tx, numbers)
    survey = unknown.load(tx, context)
    live = attempts.live(tx)
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
    unit.close(unit.update_attempt(attempt, outcome="never arrived"))
    if job.state is JobState.LAUNCHING:
        says = f"the launch never arrived at {report.node}"
        unit.event(EventType.LAUNCHING_OAREXEC_TIMEOUT, says, job.id)  # no host: the way to it was lost, not the node
        launch.requeue(unit, job, EventType.LAUNCHING_OAREXEC_TIMEOUT, says, tries=attempt.number)
