"""What findings and reports need to know of jobs beside their measurements: what they held, when, and what happened."""

from collections import defaultdict
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, literal_column, null, or_, select

from oarlock.model.event import EventType
from oarlock.model.job import FINAL, JobState
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import properties
from oarlock.store.tables import (
    assigned_resources,
    event_log_hostnames,
    event_logs,
    job_summaries,
    jobs,
    moldable_job_descriptions,
)

_FINAL = tuple(state.value for state in FINAL)


class JudgedJob(NamedTuple):
    """A job that ran or runs. `stop` is 0 while it runs; `exit_code` is the raw wait status.

    `cores` are its resources of type default, and `nodes` the hosts that it has or had them on.
    """

    id: int
    user: str
    project: str
    queue: str
    name: str | None
    state: JobState
    start: int
    stop: int
    exit_code: int | None
    walltime: int
    cores: int
    nodes: tuple[str, ...]
    gpus: int
    walltime_exceeded: bool


class HostEvent(NamedTuple):
    """An event of a node."""

    node: str
    at: int


def by_id(tx: Tx, ids: Collection[int], *, gpu_property: str = "") -> list[JudgedJob]:
    """Return jobs by number; those that never held resources are left out.

    `gpu_property` is the property of resources that has the number of their GPU.
    """
    held = _held(tx, ids, gpu_property)
    over_time = _over_time(tx, ids)
    return [
        JudgedJob(
            row.job_id, row.job_user, row.project, row.queue_name, row.job_name, JobState(row.state), row.start_time,
            row.stop_time, row.exit_code, row.walltime, *held[row.job_id], row.job_id in over_time,
        )
        for row in tx.execute(_jobs(tx.dialect.name), bind_ids(tx, ids))
        if row.job_id in held
    ]  # fmt: skip


def ids_between(tx: Tx, since: int, until: int, *, user: str | None, project: str | None, most: int) -> list[int]:
    """Return the jobs with a summary that ended in [since, until), or run, newest first; `most` at most."""
    ended = and_(jobs.c.stop_time >= since, jobs.c.stop_time < until)
    query = (
        select(jobs.c.job_id)
        .join(job_summaries, job_summaries.c.job_id == jobs.c.job_id)
        .where(or_(ended, jobs.c.state == JobState.RUNNING.value), jobs.c.start_time > 0, jobs.c.start_time < until)
        .order_by(jobs.c.job_id.desc())
        .limit(most)
    )
    if user is not None:
        query = query.where(jobs.c.job_user == user)
    if project is not None:
        query = query.where(jobs.c.project == project)
    return list(tx.execute(query).scalars())


def memory_of_nodes(tx: Tx, nodes: Collection[str], name: str = "memnode") -> dict[str, int]:
    """Return the memory of nodes in MB, where a property of theirs has it."""
    columns = properties.types(tx)
    if columns.get(name) is not int:
        return {}
    resource = properties.clause(columns)
    memory = func.max(resource.c[name])
    query = select(resource.c.network_address, memory).where(resource.c.network_address.in_(sorted(nodes)))
    rows = tx.execute(query.group_by(resource.c.network_address))
    return {node: amount for node, amount in rows if amount}


def host_events(tx: Tx, since: int, until: int, *, most: int) -> list[HostEvent]:
    """Return the events of nodes in [since, until), oldest first; events of single jobs are not the node's."""
    query = (
        select(event_log_hostnames.c.hostname, event_logs.c.date)
        .join(event_logs, event_logs.c.event_id == event_log_hostnames.c.event_id)
        .where(event_logs.c.date >= since, event_logs.c.date < until, event_logs.c.job_id == literal_column("0"))
        .order_by(event_logs.c.date)
        .limit(most)
    )
    return [HostEvent(*row) for row in tx.execute(query)]


def short_jobs(tx: Tx, user: str, since: int, until: int, *, shorter_than: int) -> int:
    """Count the jobs of a user that began in [since, until) and ran for less than so many seconds."""
    query = select(func.count()).where(
        jobs.c.job_user == user,
        jobs.c.stop_time >= since,
        jobs.c.start_time >= since,
        jobs.c.start_time < until,
        jobs.c.state.in_(_FINAL),
        jobs.c.stop_time - jobs.c.start_time < shorter_than,
    )
    return int(tx.execute(query).scalar_one())


def energy_of_runs(tx: Tx, user: str, name: str, *, most: int) -> dict[int, float]:
    """Return the joules of a user's last jobs of a name, by number, as far as they were measured."""
    query = (
        select(jobs.c.job_id, job_summaries.c.energy_joules)
        .join(job_summaries, job_summaries.c.job_id == jobs.c.job_id)
        .where(jobs.c.job_user == user, jobs.c.job_name == name, job_summaries.c.energy_joules.is_not(None))
        .order_by(jobs.c.job_id.desc())
        .limit(most)
    )
    return dict(tuple(row) for row in tx.execute(query))


@cache
def _jobs(engine: str) -> Select[Any]:
    chosen = moldable_job_descriptions
    return (
        select(
            jobs.c.job_id, jobs.c.job_user, jobs.c.project, jobs.c.queue_name, jobs.c.job_name, jobs.c.state,
            jobs.c.start_time, jobs.c.stop_time, jobs.c.exit_code, chosen.c.moldable_walltime.label("walltime"),
        )
        .join(chosen, chosen.c.moldable_id == jobs.c.assigned_moldable_job)
        .where(id_in(engine, jobs.c.job_id))
        .order_by(jobs.c.job_id)
    )  # fmt: skip


def _held(tx: Tx, ids: Collection[int], gpu_property: str) -> dict[int, tuple[int, tuple[str, ...], int]]:
    """Return how many cores, which nodes and how many GPUs each job has or had."""
    resource = properties.clause(columns := properties.types(tx))
    gpu = resource.c[gpu_property] if gpu_property in columns else null()
    query = (
        select(jobs.c.job_id, resource.c.network_address, func.count(), func.count(gpu.distinct()))
        .join(assigned_resources, assigned_resources.c.moldable_job_id == jobs.c.assigned_moldable_job)
        .join(resource, resource.c.resource_id == assigned_resources.c.resource_id)
        .where(id_in(tx.dialect.name, jobs.c.job_id), resource.c.type == DEFAULT_TYPE)
        .group_by(jobs.c.job_id, resource.c.network_address)
        .order_by(resource.c.network_address)
    )
    by_job: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for job, node, cores, gpus in tx.execute(query, bind_ids(tx, ids)):
        by_job[job].append((node, cores, gpus))
    return {
        job: (sum(cores for _, cores, _ in rows), tuple(node for node, _, _ in rows), sum(gpus for _, _, gpus in rows))
        for job, rows in by_job.items()
    }


def _over_time(tx: Tx, ids: Collection[int]) -> frozenset[int]:
    query = select(event_logs.c.job_id).where(
        event_logs.c.type == EventType.WALLTIME.value,
        id_in(tx.dialect.name, event_logs.c.job_id),
        event_logs.c.job_id != literal_column("0"),
    )
    return frozenset(tx.execute(query, bind_ids(tx, ids)).scalars())
