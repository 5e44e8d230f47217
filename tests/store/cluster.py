"""Jobs for the tests of the store."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState, move
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, moves, new_jobs
from tests.clusters import NOW


def new(
    asked: str | Sequence[str] = "/network_address=1/core=1,walltime=1",
    *,
    where: str | None = None,
    after: tuple[int, ...] = (),
    **fields: Any,
) -> new_jobs.NewJob:
    """Describe a job as the submission step does."""
    job = Job(**{"id": 0, "state": JobState.WAITING, "user": "ada", "queue": "default", "submitted": NOW, **fields})
    return new_jobs.NewJob(job, requests.parse([asked] if isinstance(asked, str) else asked, where=where), after)


def add_job(tx: Tx, *args: Any, **fields: Any) -> Job:
    [job] = new_jobs.add(tx, [new(*args, **fields)])
    return job


def choice(tx: Tx, job: Job) -> int:
    """Give the number of a job's first moldable alternative."""
    found = tx.exec_driver_sql(
        f"SELECT min(moldable_id) FROM moldable_job_descriptions WHERE moldable_job_id = {job.id}"
    )
    return int(found.scalar_one())


def run(tx: Tx, job: Job, on: Sequence[int], *, at: int = NOW, until: JobState = JobState.RUNNING) -> Job:
    """Let a waiting job hold resources: toLaunch, Launching, Running."""
    job = replace(job, start=at, assigned=choice(tx, job))
    jobs.assign(tx, {job.assigned: on})
    for state in (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING):
        job = step(tx, job, state, at=at)
        if state is until:
            break
    return job


def step(tx: Tx, job: Job, state: JobState, *, at: int = NOW, why: str = "because") -> Job:
    moved = move(job, state, at=at, why=why)
    moves.record(tx, [moved])
    return moved.job


def rows(tx: Tx, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in tx.exec_driver_sql(query)]
