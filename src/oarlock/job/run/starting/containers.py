"""Containers: inner jobs end with their container."""

from collections.abc import Collection

from oarlock.job.admission.containers import is_open
from oarlock.job.run import kill
from oarlock.job.run.unit_of_work import UnitOfWork
from oarlock.model.job import HOLDS_RESOURCES, Job, JobState
from oarlock.model.job_type import parse_types
from oarlock.store.queries.job import jobs


def end_orphans(unit: UnitOfWork, ids: Collection[int]) -> None:
    """End inner jobs whose container is over. One that is held is not; and whoever waits for a name waits on."""
    orphans = [unit.jobs[number] for number in ids if number in unit.jobs]
    numbers = {int(name) for job in orphans if (name := parse_types(job.types).inner or "").isdecimal()}
    live = {job.id for job in jobs.existing(unit.tx, numbers) if is_open(job)}
    lost = [job for job in orphans if _is_lost(job, live)]
    for job in lost:
        kill.end_all(unit, [job.id], f"its container `{parse_types(job.types).inner}` is over")


def _is_lost(job: Job, live: set[int]) -> bool:
    name = parse_types(job.types).inner or ""
    if job.state in HOLDS_RESOURCES:
        return job.state is not JobState.FINISHING
    return job.state is JobState.WAITING and name.isdecimal() and int(name) not in live
