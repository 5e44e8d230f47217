"""What the database says about jobs whose samples are kept."""

from collections.abc import Collection

from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.model.job import FINAL, Job
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs, attempts, jobs
from oarlock.store.queries.job.agent_jobs import AgentJob


def describe_jobs(tx: Tx, ids: Collection[int]) -> dict[int, ArchivedJob]:
    """Describe those of these jobs that exist."""
    others = {number: _of_agent(job) for number, job in agent_jobs.by_number(tx, ids).items()}
    return others | _described(tx, jobs.existing(tx, ids))


def describe_ended(tx: Tx, ids: Collection[int]) -> dict[int, ArchivedJob | None]:
    """Describe those of these jobs that are over; None for numbers that no job has."""
    existing, others = jobs.existing(tx, ids), agent_jobs.by_number(tx, ids)
    missing: dict[int, ArchivedJob | None] = dict.fromkeys(set(ids) - {job.id for job in existing} - others.keys())
    over = {number: _of_agent(job) for number, job in others.items() if job.ended}
    return missing | over | _described(tx, [job for job in existing if job.state in FINAL])


def _of_agent(job: AgentJob) -> ArchivedJob:
    return ArchivedJob(
        job=job.number,
        owner=job.user,
        project=job.account,
        name=job.name,
        nodes=job.nodes,
        start=job.first_seen,
        stop=job.ended,
        cluster=job.cluster,
        manager=job.manager,
        label=job.job,
    )


def _described(tx: Tx, selected: Collection[Job]) -> dict[int, ArchivedJob]:
    if not selected:
        return {}
    nodes: dict[int, dict[str, None]] = {}
    numbers: dict[int, int] = {}
    for attempt in attempts.of_jobs(tx, [job.id for job in selected]):
        nodes.setdefault(attempt.job_id, {}).update(dict.fromkeys(node.name for node in attempt.nodes))
        numbers[attempt.job_id] = max(numbers.get(attempt.job_id, 0), attempt.number)
    return {
        job.id: ArchivedJob(
            job=job.id,
            owner=job.user,
            project=job.project,
            name=job.name or "",
            request=job.initial_request,
            nodes=tuple(nodes.get(job.id, ())),
            attempts=numbers.get(job.id, 0),
            state=job.state.value,
            start=job.start,
            stop=job.stop,
        )
        for job in selected
    }
