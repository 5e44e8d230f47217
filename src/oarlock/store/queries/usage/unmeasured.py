"""Jobs of a copied cluster that are to be measured: whose summary is missing or old, and who held what where."""

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import and_, func, or_, select

from oarlock.model.job import FINAL, JobState
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import assigned_resources, job_summaries, jobs, resources

_FINAL = tuple(sorted(state.value for state in FINAL))


class UnmeasuredJob(NamedTuple):
    """A job that ran or runs (`stop` is 0), with the cores of each of its nodes, also those that it does not have."""

    id: int
    start: int
    stop: int
    node_cores: dict[str, int]


def find(tx: Tx, *, since: int, now: int, settled: int, renewed: int, most: int) -> list[UnmeasuredJob]:
    """Return such jobs, the newest first.

    Those that ended from `since` on count `settled` seconds after their end, those that run if their summary is older
    than `renewed` seconds.
    """
    job, summary = jobs.c, job_summaries.c
    ended = and_(
        job.state.in_(_FINAL), job.stop_time >= since, job.stop_time <= now - settled,
        or_(summary.job_id.is_(None), summary.date < job.stop_time),
    )  # fmt: skip
    runs = and_(
        job.state == JobState.RUNNING.value, job.start_time <= now - renewed,
        or_(summary.job_id.is_(None), summary.date <= now - renewed),
    )  # fmt: skip
    rows = tx.execute(
        select(job.job_id, job.start_time, job.stop_time)
        .outerjoin(job_summaries, summary.job_id == job.job_id)
        .where(job.start_time > 0, or_(ended, runs))
        .order_by(job.start_time.desc(), job.job_id.desc())
        .limit(most)
    ).all()
    nodes = _nodes(tx, [row.job_id for row in rows])
    cores = node_cores(tx)
    return [
        UnmeasuredJob(
            row.job_id, row.start_time, row.stop_time, {node: cores.get(node, 0) for node in nodes[row.job_id]}
        )
        for row in rows
    ]


def _nodes(tx: Tx, ids: list[int]) -> defaultdict[int, list[str]]:
    nodes: defaultdict[int, list[str]] = defaultdict(list)
    query = (
        select(jobs.c.job_id, resources.c.network_address)
        .join(assigned_resources, assigned_resources.c.moldable_job_id == jobs.c.assigned_moldable_job)
        .join(resources, resources.c.resource_id == assigned_resources.c.resource_id)
        .where(id_in(tx.dialect.name, jobs.c.job_id), resources.c.type == DEFAULT_TYPE)
        .distinct()
    )
    for number, node in tx.execute(query, bind_ids(tx, ids)):
        nodes[number].append(node)
    return nodes


def node_cores(tx: Tx) -> dict[str, int]:
    """Return how many cores each node has."""
    query = select(resources.c.network_address, func.count()).where(resources.c.type == DEFAULT_TYPE)
    return dict(tuple(row) for row in tx.execute(query.group_by(resources.c.network_address)))


class EndedJob(NamedTuple):
    """A job that ended, and whose it was."""

    id: int
    user: str


def ended_between(tx: Tx, *, since: int, until: int) -> list[EndedJob]:
    """Return jobs that ran, ended behind an instant and up to another, and have a summary; who held most first."""
    job, summary = jobs.c, job_summaries.c
    query = (
        select(job.job_id, job.job_user)
        .join(job_summaries, summary.job_id == job.job_id)
        .where(job.state.in_(_FINAL), job.start_time > 0, job.stop_time > since, job.stop_time <= until)
        .order_by(func.coalesce(summary.core_seconds, 0).desc(), job.job_id)
    )
    return [EndedJob(*row) for row in tx.execute(query)]


def first_without(tx: Tx, *, since: int, until: int) -> int | None:
    """Return when the first job ended between two instants that has no summary of its end yet."""
    job, summary = jobs.c, job_summaries.c
    query = (
        select(func.min(job.stop_time))
        .outerjoin(job_summaries, summary.job_id == job.job_id)
        .where(
            job.state.in_(_FINAL), job.start_time > 0, job.stop_time > since, job.stop_time <= until,
            or_(summary.job_id.is_(None), summary.date < job.stop_time),
        )
    )  # fmt: skip
    return tx.execute(query).scalar()


def measured_to_their_end(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return those of these jobs whose summary was written after their end."""
    job, summary = jobs.c, job_summaries.c
    query = (
        select(job.job_id)
        .join(job_summaries, summary.job_id == job.job_id)
        .where(id_in(tx.dialect.name, job.job_id), job.state.in_(_FINAL), summary.date >= job.stop_time)
    )
    return set(tx.execute(query, bind_ids(tx, ids)).scalars())


class HeldCores(NamedTuple):
    """A job that had so many cores of a node from one instant to another; `stop` is 0 while it has them."""

    job: int
    node: str
    cores: int
    start: int
    stop: int


def held_between(tx: Tx, since: int, until: int) -> list[HeldCores]:
    """Return who held cores between two instants."""
    job, resource = jobs.c, resources.c
    query = (
        select(job.job_id, resource.network_address, func.count(), job.start_time, job.stop_time)
        .join(assigned_resources, assigned_resources.c.moldable_job_id == job.assigned_moldable_job)
        .join(resources, resource.resource_id == assigned_resources.c.resource_id)
        .where(
            resource.type == DEFAULT_TYPE, job.start_time > 0, job.start_time < until,
            or_(job.stop_time > since, job.state.not_in(_FINAL)),
        )
        .group_by(job.job_id, resource.network_address, job.start_time, job.stop_time)
        .order_by(resource.network_address, job.start_time, job.job_id)
    )  # fmt: skip
    return [HeldCores(*row) for row in tx.execute(query)]
