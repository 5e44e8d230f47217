"""What findings and reports need to know of jobs beside their measurements: what they held, when, and what happened."""

from collections import defaultdict
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, literal_column, null, or_, select

from oarlock.model.event import EventType
from oarlock.model.job import FINAL, JobState
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.source import SLURM_TIMEOUT
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import agent_jobs as foreign_jobs
from oarlock.store.queries.job import scripts
from oarlock.store.queries.job.agent_jobs import AgentJob
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.tables import (
    agent_jobs,
    assigned_resources,
    event_log_hostnames,
    event_logs,
    job_summaries,
    job_types,
    jobs,
    moldable_job_descriptions,
)

_FINAL = tuple(state.value for state in FINAL)


class JudgedJob(NamedTuple):
    """A job that ran or runs. `stop` is 0 while it runs; `exit_code` is the raw wait status.

    `cores` are its resources of type default, and `nodes` the hosts that it has or had them on. `label` is what people
    call a job of another resource manager: of it nobody told the exit code, `walltime`, `cores` and `gpus` (0).
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
    label: str = ""
    walltime_chosen: bool = True


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
    own = [
        JudgedJob(
            row.job_id, row.job_user, row.project, row.queue_name, row.job_name, JobState(row.state), row.start_time,
            row.stop_time, row.exit_code, row.walltime, *held[row.job_id], row.job_id in over_time,
            walltime_chosen=not row.initial_request or "walltime" in row.initial_request,
        )
        for row in tx.execute(_jobs(tx.dialect.name), bind_ids(tx, ids))
        if row.job_id in held
    ]  # fmt: skip
    return own + [_of_agent(job) for _, job in sorted(foreign_jobs.by_number(tx, ids).items())]


def _of_agent(job: AgentJob) -> JudgedJob:
    state = JobState.TERMINATED if job.ended else JobState.RUNNING
    return JudgedJob(
        job.number, job.user, job.account, foreign_jobs.queue_of(job.cluster), job.name or None, state, job.first_seen,
        job.ended, None, 0, 0, job.nodes, 0, walltime_exceeded=False, label=f"{job.job}@{job.cluster}",
    )  # fmt: skip


def ids_between(
    tx: Tx,
    since: int,
    until: int,
    *,
    user: str | None,
    project: str | None,
    most: int,
    sight: JobSight | None = None,
) -> list[int]:
    """Return the jobs with a summary that ended in [since, until), or run, newest first; `most` at most.

    Of a user the newest are those with the highest numbers, else those that ended last: so an index has them in order.
    """
    last = jobs.c.job_id if user is not None else jobs.c.stop_time
    query = (
        select(jobs.c.start_time, jobs.c.job_id)
        .join(job_summaries, job_summaries.c.job_id == jobs.c.job_id)
        .where(jobs.c.start_time > 0, jobs.c.start_time < until)
        .limit(most)
    )
    if user is not None:
        query = query.where(jobs.c.job_user == user)
    elsewhere = _elsewhere(since, until, user=user, project=project).limit(most)
    if sight is not None:
        query = query.where(sight.clause())
        elsewhere = elsewhere.where(sight.holds(agent_jobs.c.user_name, agent_jobs.c.account))
    running = list(tx.execute(select(jobs.c.job_id).where(jobs.c.state == JobState.RUNNING.value)).scalars())
    runs = query.where(id_in(tx.dialect.name, jobs.c.job_id)).order_by(jobs.c.job_id.desc())
    ended = query.where(
        jobs.c.stop_time >= since, jobs.c.stop_time < until, jobs.c.state != JobState.RUNNING.value
    ).order_by(last.desc(), jobs.c.job_id.desc())
    if project is not None:
        ended = ended.where(jobs.c.project == project)
        # No index has this expression: SQLite would take that of projects, and read a year to find some hundred jobs.
        runs = runs.where(func.coalesce(jobs.c.project, "") == project)
    rows = [*tx.execute(ended), *tx.execute(runs, bind_ids(tx, running)), *tx.execute(elsewhere)]
    begun = [tuple(row) for row in rows]
    return [job for _, job in sorted(begun, reverse=True)[:most]]


def _elsewhere(since: int, until: int, *, user: str | None, project: str | None) -> Select[Any]:
    """Return the query for such jobs of other resource managers, by their beginning and number."""
    job = agent_jobs.c
    ended = and_(job.ended >= since, job.ended < until)
    query = (
        select(job.first_seen, job.number)
        .join(job_summaries, job_summaries.c.job_id == job.number)
        .where(or_(ended, job.ended == literal_column("0")), job.first_seen < until)
        .order_by(job.number.desc())
    )
    if user is not None:
        query = query.where(job.user_name == user)
    return query if project is None else query.where(job.account == project)


def running_with_gpus(tx: Tx, *, seen_since: int, most: int) -> list[int]:
    """Return jobs that run and have GPUs, as their summary says, where that is not older than an instant."""
    query = (
        select(jobs.c.job_id)
        .join(job_summaries, job_summaries.c.job_id == jobs.c.job_id)
        .where(
            jobs.c.state == JobState.RUNNING.value,
            job_summaries.c.gpu_seconds.is_not(None),
            job_summaries.c.date >= seen_since,
        )
        .order_by(jobs.c.job_id)
        .limit(most)
    )
    return list(tx.execute(query).scalars())


def types_of(tx: Tx, ids: Collection[int]) -> dict[int, list[str]]:
    """Return the types of jobs."""
    types: defaultdict[int, list[str]] = defaultdict(list)
    query = select(job_types.c.job_id, job_types.c.type).where(id_in(tx.dialect.name, job_types.c.job_id))
    for number, name in tx.execute(query, bind_ids(tx, ids)):
        types[number].append(name)
    return types


def scripts_of(tx: Tx, ids: Collection[int], *, cluster: str) -> dict[int, str]:
    """Return what jobs execute: the script that was sent, else the command. `cluster` is the name of our own."""
    commands = select(jobs.c.job_id, jobs.c.command).where(id_in(tx.dialect.name, jobs.c.job_id))
    executed = {number: command for number, command in tx.execute(commands, bind_ids(tx, ids)) if command}
    return executed | scripts.of_jobs(tx, ids, cluster=cluster)


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


def energy_of_runs(tx: Tx, user: str, *, among: int, most: int) -> dict[str, dict[int, float]]:
    """Return the joules of a user's last jobs by name and number, as far as they were measured.

    Only the last `among` jobs are looked at, and of each name `most` at most.
    """
    last = select(jobs.c.job_id, jobs.c.job_name).where(jobs.c.job_user == user).order_by(jobs.c.job_id.desc())
    recent = last.limit(among).subquery().c
    query = (
        select(recent.job_name, recent.job_id, job_summaries.c.energy_joules)
        .join(job_summaries, job_summaries.c.job_id == recent.job_id)
        .where(recent.job_name.is_not(None), job_summaries.c.energy_joules.is_not(None))
        .order_by(recent.job_id.desc())
    )
    runs: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for name, number, joules in tx.execute(query).all():
        if len(runs[name]) < most:
            runs[name][number] = joules
    return runs


@cache
def _jobs(engine: str) -> Select[Any]:
    chosen = moldable_job_descriptions
    return (
        select(
            jobs.c.job_id, jobs.c.job_user, jobs.c.project, jobs.c.queue_name, jobs.c.job_name, jobs.c.state,
            jobs.c.start_time, jobs.c.stop_time, jobs.c.exit_code, chosen.c.moldable_walltime.label("walltime"),
            jobs.c.initial_request,
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
    by_message = select(jobs.c.job_id).where(
        id_in(tx.dialect.name, jobs.c.job_id), jobs.c.message == SLURM_TIMEOUT, jobs.c.state.in_(_FINAL)
    )
    return frozenset(tx.execute(query.union(by_message), bind_ids(tx, ids)).scalars())
