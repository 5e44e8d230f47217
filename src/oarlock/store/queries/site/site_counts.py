"""What the overview counts: resources of nodes by state and holder, jobs of queues, dates of the last plan."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ColumnElement, Integer, case, func, literal, literal_column, select

from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.model.resource import DEFAULT_TYPE, NextState, ResourceState
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.job_pages import JobSight, seen
from oarlock.store.queries.job.listing import LIVE
from oarlock.store.tables import assigned_resources, gantt_jobs_predictions_visu, jobs, resources

_STAYS = (NextState.UNCHANGED.value, NextState.ALIVE.value)


class NodeCount(NamedTuple):
    """Resources of the default type that a node has: all, those that are not Alive, those that leave or are drained.

    `absent` of those that are not Alive were taken out or sleep; `wakes`: until when sleeping ones may be woken.
    """

    node: str
    total: int
    alive: int
    absent: int
    dead: int
    leaving: int
    drained: int
    wakes: int


def nodes(tx: Tx, ids: Collection[int] | None = None) -> list[NodeCount]:
    """Count the resources of every node, or those of some resources; by name."""
    row = resources.c

    def counted(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0), type_=Integer)

    query = (
        select(
            row.network_address,
            func.count(),
            counted(row.state == ResourceState.ALIVE.value),
            counted(row.state == ResourceState.ABSENT.value),
            counted(row.state == ResourceState.DEAD.value),
            counted(row.next_state.not_in(_STAYS)),
            counted(row.drain == literal_column("'YES'")),
            func.max(case((row.state == ResourceState.ABSENT.value, row.cm_availability), else_=0), type_=Integer),
        )
        .where(row.type == DEFAULT_TYPE, row.network_address != "")
        .group_by(row.network_address)
        .order_by(row.network_address)
    )
    bound = {}
    if ids is not None:
        query, bound = query.where(id_in(tx.dialect.name, row.resource_id)), bind_ids(tx, ids)
    return [NodeCount(*counts) for counts in tx.execute(query, bound)]


class HeldResources(NamedTuple):
    """How many resources of a node a job holds."""

    node: str
    job_id: int
    user: str
    start: int
    resources: int
    is_seen: bool = True


def held(tx: Tx, sight: JobSight | None = None) -> list[HeldResources]:
    """Count the resources that jobs hold now, by node and job; jobs that are not seen have neither number nor user."""
    row = resources.c
    query = (
        select(row.network_address, jobs.c.job_id, jobs.c.job_user, jobs.c.start_time, func.count())
        .select_from(assigned_resources)
        .join(resources, row.resource_id == assigned_resources.c.resource_id)
        .join(jobs, jobs.c.assigned_moldable_job == assigned_resources.c.moldable_job_id)
        .where(
            assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'"),
            jobs.c.state.in_([state.value for state in HOLDS_RESOURCES]),
            row.type == DEFAULT_TYPE,
        )
        .group_by(row.network_address, jobs.c.job_id, jobs.c.job_user, jobs.c.start_time)
        .order_by(row.network_address, jobs.c.job_id)
    )
    rows = [HeldResources(*counts) for counts in tx.execute(query)]
    shown = seen(tx, sight, {count.job_id for count in rows})
    return [count if count.job_id in shown else count._replace(is_seen=False) for count in rows]


class QueueCount(NamedTuple):
    """Jobs of a queue in one state, and when the oldest of them was submitted."""

    queue: str
    state: JobState
    jobs: int
    oldest: int


def queues(tx: Tx) -> list[QueueCount]:
    """Count the jobs that are not over, by queue and state."""
    row = jobs.c
    query = (
        select(row.queue_name, row.state, func.count(), func.min(row.submission_time))
        .where(row.state.in_([state.value for state in LIVE]))
        .group_by(row.queue_name, row.state)
        .order_by(row.queue_name)
    )
    return [QueueCount(queue, JobState(state), count, oldest) for queue, state, count, oldest in tx.execute(query)]


def planned_starts(tx: Tx, *, now: int, limits: tuple[int, ...]) -> list[int]:
    """Count planned starts from now on: those within each limit (seconds, increasing), and those after the last."""
    start = gantt_jobs_predictions_visu.c.start_time
    place = case(
        *((start < now + limit, literal(at)) for at, limit in enumerate(limits)), else_=literal(len(limits))
    ).label("place")
    rows = tx.execute(select(place, func.count()).where(start >= now).group_by(place))
    counted = {number: count for number, count in rows}  # noqa: C416  (rows are tuples for the type checker, too)
    return [counted.get(at, 0) for at in range(len(limits) + 1)]
