"""Containers that are over: the jobs inside of them end, too, and those that wait for them never start."""

from collections.abc import Collection

from oarlock.job import kill
from oarlock.job.ledger import Ledger
from oarlock.model.job import FINAL, HOLDS_RESOURCES, Job, JobState
from oarlock.plan.containers import inside_of, is_container
from oarlock.store import jobs


def end_orphans(ledger: Ledger, ids: Collection[int]) -> None:
    """End inner jobs whose container is over. One that is held is not; and whoever waits for a name waits on."""
    orphans = [ledger.jobs[number] for number in ids if number in ledger.jobs]
    numbers = {int(name) for job in orphans if (name := inside_of(job.types) or "").isdecimal()}
    live = {job.id for job in jobs.known(ledger.tx, numbers) if is_container(job.types) and not _is_over(job)}
    lost = [job for job in orphans if _is_lost(job, live)]
    for job in lost:
        kill.end_all(ledger, [job.id], f"its container `{inside_of(job.types)}` is over")


def _is_lost(job: Job, live: set[int]) -> bool:
    name = inside_of(job.types) or ""
    if job.state in HOLDS_RESOURCES:
        return job.state is not JobState.FINISHING
    return job.state is JobState.WAITING and name.isdecimal() and int(name) not in live


def _is_over(job: Job) -> bool:
    return job.state in FINAL or job.state is JobState.FINISHING
