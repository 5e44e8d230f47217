"""Recover: after a restart, adopt what runs, finish what ended, and launch only what certainly never ran."""

from oarlock.job import notices
from oarlock.job.run import finish, launch, suspend, unknown
from oarlock.job.run.effects import AwaitReport, Effect, Kill
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import AttemptMissing
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import FragState, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import arrays, attempts, jobs, kills


def begin(tx: Tx, site: StepContext, *, now: float) -> list[Effect]:
    """Say what to do first: await every attempt that is not closed, go on with launches, kills, suspensions, notices.

    Of arrays that were not stored to their end nothing is left.

    Nothing is decided yet: nodes report what became of their attempts, or that they have none (`AttemptMissing`).
    """
    for numbers in arrays.unfinished(tx):
        arrays.remove(tx, numbers)
    survey = unknown.load(tx, site)
    live = attempts.live(tx)
    instructions: list[Effect] = [
        AwaitReport(node.name, attempt.job_id, attempt.number, site.secret(attempt))
        for attempt in live
        for node in attempt.nodes
    ]
    by_job = {attempt.job_id: attempt for attempt in live}
    for number, state, _ in kills.under_way(tx):
        if state is not FragState.FRAGGED and number in by_job:
            attempt = by_job[number]
            instructions.append(Kill(attempt.nodes[0].name, number, attempt.number))
    waiting = [job.id for job in jobs.in_states(tx, [JobState.TO_LAUNCH])]
    return [
        *survey,
        *instructions,
        *launch.go_on(tx, site, waiting, {}, now=now),
        *suspend.again(tx, site, now=now),
        *suspend.go_on(tx, site, now=now),
        *notices.again(tx),
    ]


def missing(ledger: UnitOfWork, news: AttemptMissing, over: FinishedAttempts) -> None:
    """A node does not know an attempt: it never arrived there, or the node was started again since.

    Only when the node was not started again, and nothing was heard of the command, is it certain that it never ran; and
    only in the generation that began it: in a lost one it may have run and been forgotten.
    """
    attempt = ledger.live(news.job, news.attempt)
    if attempt is None:
        return
    place = next((node for node in attempt.nodes if node.name == news.node), None)
    if place is None:
        return
    never_ran = place.boot_id == over.boots.get(news.node) and attempt.started_us is None
    never_ran = never_ran and attempt.generation == ledger.site.lineage.generation
    if never_ran and news.node == attempt.nodes[0].name and attempt.ended_us is None:
        _again(ledger, news)
    else:
        finish.gone(ledger, attempt, news.node, over, f"{news.node} does not know the job any more")


def _again(ledger: UnitOfWork, news: AttemptMissing) -> None:
    attempt, job = ledger.attempts[news.job], ledger.jobs[news.job]
    ledger.close(ledger.attempt(attempt, outcome="never arrived"))
    if job.state is JobState.LAUNCHING:
        says = f"the launch never arrived at {news.node}"
        launch.give_back(ledger, job, EventType.LAUNCHING_OAREXEC_TIMEOUT, says, tries=attempt.number)
