"""Jobs and nodes as lists show them: many at once, few columns, in as many queries for thousands as for one."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, and_, case, func, literal_column, or_, select

from oarlock.model.job import FINAL, HOLDS_RESOURCES, JobState
from oarlock.model.resource import DEFAULT_TYPE, NextState, ResourceState
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import job_pages
from oarlock.store.queries.job import jobs as stored_jobs
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.tables import (
    assigned_resources,
    gantt_jobs_predictions_visu,
    gantt_jobs_resources_visu,
    job_dependencies,
    job_types,
    jobs,
    moldable_job_descriptions,
    resources,
)

LIVE = tuple(state for state in JobState if state not in FINAL)
_LIVE_STATES = [state.value for state in LIVE]


class JobRow(NamedTuple):
    """A job of a list. `scheduled` is when it started, or is planned to start."""

    id: int
    state: str
    user: str
    queue: str
    name: str | None
    project: str
    message: str
    submitted: int
    start: int
    stop: int
    array_id: int
    exit_code: int | None
    walltime: int | None
    types: list[str]
    scheduled: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Selects jobs; all conditions that are set must hold. [since, until) overlaps the life of the job.

    `requires`: those that wait, or waited, for the job of that number.
    """

    ids: Collection[int] | None = None
    array_id: int | None = None
    user: str | None = None
    states: Collection[JobState] | None = None
    since: int | None = None
    until: int | None = None
    project: str | None = None
    queue: str | None = None
    name: str | None = None
    node: str | None = None
    requires: int | None = None
    recent: int | None = None
    sight: JobSight | None = None


_COLUMNS = (
    jobs.c.job_id,
    jobs.c.state,
    jobs.c.job_user,
    jobs.c.queue_name,
    jobs.c.job_name,
    jobs.c.project,
    jobs.c.message,
    jobs.c.submission_time,
    jobs.c.start_time,
    jobs.c.stop_time,
    jobs.c.array_id,
    jobs.c.exit_code,
    jobs.c.assigned_moldable_job,
)


_START = [column.name for column in _COLUMNS].index("start_time")


def rows(tx: Tx, which: JobFilter, *, most: int) -> list[JobRow]:
    """Return the wanted jobs, oldest first; not more than `most`."""
    holds, bound = _chosen(tx, which)
    rows = tx.execute(select(*_COLUMNS).where(*holds).order_by(jobs.c.job_id).limit(most), bound).all()
    numbers = select(jobs.c.job_id).where(*holds)
    types = _types(tx, numbers, bound)
    choices = _choices(tx, numbers, bound)
    return [_line(row, types, choices) for row in rows]


def charted(tx: Tx, since: int, until: int, *, most: int) -> list[JobRow]:
    """Return the jobs that may have resources in [since, until), past, present or planned, oldest first.

    Of ten thousand that wait only those that the plan starts before `until` are read. If there are more than `most`,
    there are more than `most` in the answer, too, but not all of them.
    """
    begun = and_(jobs.c.start_time > 0, jobs.c.start_time < until)
    over = select(jobs.c.job_id).where(jobs.c.stop_time >= max(since, 1), begun)
    live = select(jobs.c.job_id).where(jobs.c.state.in_(_LIVE_STATES), begun)
    choice, plan = moldable_job_descriptions.c, gantt_jobs_predictions_visu.c
    planned = select(choice.moldable_job_id).where(
        choice.moldable_id.in_(select(plan.moldable_job_id).where(plan.start_time < until))
    )
    numbers: set[int] = set()
    for query in (over, live, planned):
        numbers.update(tx.execute(query.limit(most + 1)).scalars())
    ids = sorted(numbers)[: most + 1]
    return rows(tx, JobFilter(ids=ids), most=len(ids))


def page(tx: Tx, which: JobFilter, *, order: str, after: int | None, most: int) -> list[JobRow]:
    """Return the first jobs of a list in some order (`job_pages.ORDERS`), or those after one of them.

    Types and alternatives are read of the jobs of the page alone.
    """
    holds, bound = _chosen(tx, which)
    ids = job_pages.page(tx, holds, bound, order=order, after=after, most=most)
    by_id = {row.id: row for row in rows(tx, JobFilter(ids=ids), most=len(ids))}
    return [by_id[number] for number in ids if number in by_id]


class JobDetails(NamedTuple):
    """What a chart shows of a job beside its row."""

    command: str | None
    kind: str
    directory: str
    properties: str
    uid: int | None


def details(tx: Tx, ids: Collection[int]) -> dict[int, JobDetails]:
    """Return what a chart shows of these jobs, by job."""
    return {
        job.id: JobDetails(job.command, job.kind.value, job.directory, job.properties, job.uid)
        for job in stored_jobs.iterate(tx, ids)
    }


def on_resources(tx: Tx) -> dict[int, list[int]]:
    """Return the jobs that hold each resource now; a resource that nobody holds is not in the answer."""
    rows = tx.execute(
        select(assigned_resources.c.resource_id, jobs.c.job_id)
        .join(jobs, jobs.c.assigned_moldable_job == assigned_resources.c.moldable_job_id)
        .where(
            jobs.c.state.in_([state.value for state in HOLDS_RESOURCES]),
            assigned_resources.c.assigned_resource_index == "CURRENT",
        )
        .order_by(jobs.c.job_id)
    )
    held: defaultdict[int, list[int]] = defaultdict(list)
    for resource, job in rows:
        held[resource].append(job)
    return dict(held)


def planned_resources(tx: Tx, ids: Collection[int]) -> dict[int, list[int]]:
    """Return the resources that the last plan has for jobs that still wait, by job."""
    plan, choice = gantt_jobs_resources_visu.c, moldable_job_descriptions.c
    rows = tx.execute(
        select(choice.moldable_job_id, plan.resource_id)
        .join(gantt_jobs_resources_visu, plan.moldable_job_id == choice.moldable_id)
        .where(id_in(tx.dialect.name, choice.moldable_job_id))
        .order_by(plan.resource_id),
        bind_ids(tx, ids),
    )
    by_job: defaultdict[int, list[int]] = defaultdict(list)
    for job, resource in rows.all():
        by_job[job].append(resource)
    return dict(by_job)


def addresses(tx: Tx, ids: Collection[int]) -> dict[int, str]:
    """Return the node of each of these resources; those that were removed are not in the answer."""
    rows = tx.execute(
        select(resources.c.resource_id, resources.c.network_address)
        .where(id_in(tx.dialect.name, resources.c.resource_id))
        .order_by(resources.c.resource_id),
        bind_ids(tx, ids),
    )
    return {row.resource_id: row.network_address for row in rows}


def at_nodes(tx: Tx, names: Collection[str]) -> dict[str, list[int]]:
    """Return the resources of nodes, by node; a node that has none is not in the answer."""
    rows = tx.execute(
        select(resources.c.network_address, resources.c.resource_id)
        .where(resources.c.network_address.in_(names))
        .order_by(resources.c.resource_id)
    )
    by_node: defaultdict[str, list[int]] = defaultdict(list)
    for name, number in rows:
        by_node[name].append(number)
    return dict(by_node)


def _chosen(tx: Tx, which: JobFilter) -> tuple[list[ColumnElement[bool]], dict[str, Any]]:
    holds: list[ColumnElement[bool]] = []
    bound: dict[str, Any] = {}
    if which.ids is not None:
        holds.append(id_in(tx.dialect.name, jobs.c.job_id))
        bound = bind_ids(tx, which.ids)
    if which.array_id is not None:
        holds.append(jobs.c.array_id == which.array_id)
    if which.requires is not None:
        dependent = select(job_dependencies.c.job_id).where(job_dependencies.c.job_id_required == which.requires)
        holds.append(jobs.c.job_id.in_(dependent))
    if which.user is not None:
        holds.append(jobs.c.job_user == which.user)
    if which.states is not None:
        holds.append(jobs.c.state.in_([state.value for state in which.states]))
    holds += [
        column == value
        for column, value in (
            (jobs.c.project, which.project),
            (jobs.c.queue_name, which.queue),
            (jobs.c.job_name, which.name),
        )
        if value is not None
    ]
    if which.recent is not None:
        holds.append(job_pages.among_recent(which.user, which.recent))
    if which.node is not None:
        holds.append(job_pages.on_node(which.node))
    if which.sight is not None:
        holds.append(which.sight.clause())
    if which.until is not None:
        holds.append(jobs.c.submission_time < which.until)
    if which.since is not None:
        live = jobs.c.state.in_(_LIVE_STATES)
        holds.append(or_(live, and_(jobs.c.stop_time > 0, jobs.c.stop_time >= which.since)))
    return holds, bound


def _types(tx: Tx, numbers: Select[Any], bound: Mapping[str, Any]) -> dict[int, list[str]]:
    rows = tx.execute(
        select(job_types.c.job_id, job_types.c.type)
        .where(job_types.c.job_id.in_(numbers))
        .order_by(job_types.c.job_type_id),
        bound,
    )
    by_job: defaultdict[int, list[str]] = defaultdict(list)
    for job, type_ in rows.all():
        by_job[job].append(type_)
    return by_job


_Choice = tuple[int, int, int | None]
"""A moldable alternative: its number, its walltime, and when the last plan starts it."""


def _choices(tx: Tx, numbers: Select[Any], bound: Mapping[str, Any]) -> dict[int, list[_Choice]]:
    choice, plan = moldable_job_descriptions.c, gantt_jobs_predictions_visu.c
    rows = tx.execute(
        select(choice.moldable_job_id, choice.moldable_id, choice.moldable_walltime, plan.start_time)
        .outerjoin(gantt_jobs_predictions_visu, plan.moldable_job_id == choice.moldable_id)
        .where(choice.moldable_job_id.in_(numbers))
        .order_by(choice.moldable_id),
        bound,
    )
    by_job: defaultdict[int, list[_Choice]] = defaultdict(list)
    for job, number, walltime, start in rows.all():
        by_job[job].append((number, walltime, start))
    return by_job


def _line(row: Sequence[Any], types: Mapping[int, list[str]], choices: Mapping[int, list[_Choice]]) -> JobRow:
    """Build the row of a job; its alternative is the assigned one, else the planned one, else the first."""
    number, start, assigned = row[0], row[_START], row[-1]
    walltime, scheduled = None, start or None
    alternatives = choices.get(number, ())
    for choice, length, planned in alternatives:
        if choice == assigned or (not assigned and planned is not None):
            walltime, scheduled = length, start or planned
            break
    else:
        if alternatives:
            walltime = alternatives[0][1]
    return JobRow._make((*row[:-1], walltime, types.get(number) or [], scheduled))


_ALLOCATED = select(assigned_resources.c.resource_id).where(
    assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'")
)


class NodeOccupation(NamedTuple):
    """Resources of the default type that a node has in one state; `leaving`: they are to change it."""

    node: str
    state: ResourceState
    leaving: bool
    total: int
    taken: int


def occupation_of_nodes(tx: Tx) -> list[NodeOccupation]:
    """Count resources by node and state."""
    row = resources.c
    taken = func.sum(case((row.resource_id.in_(_ALLOCATED), 1), else_=0))
    query = (
        select(row.network_address, row.state, row.next_state, func.count(), taken)
        .where(row.type == DEFAULT_TYPE)
        .group_by(row.network_address, row.state, row.next_state)
        .order_by(row.network_address, row.state, row.next_state)
    )
    stays = {NextState.UNCHANGED.value, NextState.ALIVE.value}
    return [
        NodeOccupation(node, ResourceState(state), following not in stays, total, int(used))
        for node, state, following, total, used in tx.execute(query)
    ]


class GpuCounts(NamedTuple):
    """GPUs of the site: all, those of jobs, and those free for jobs."""

    total: int
    taken: int
    free: int


def gpu_counts(tx: Tx, name: str) -> GpuCounts:
    """Count GPUs: a node and a value of the property `name` are one, however many resources share it."""
    columns = properties.types(tx)
    if columns.get(name) is not int:
        return GpuCounts(0, 0, 0)
    resource = properties.clause(columns)
    device, alive = resource.c[name], resource.c.state == ResourceState.ALIVE.value
    query = (
        select(
            func.max(case((resource.c.resource_id.in_(_ALLOCATED), 1), else_=0), type_=Integer),
            func.min(case((alive, 1), else_=0), type_=Integer),
        )
        .where(device.is_not(None), resource.c.network_address != "")
        .group_by(resource.c.network_address, device)
    )
    devices = tx.execute(query).all()
    return GpuCounts(len(devices), sum(taken for taken, _ in devices), sum(up and not taken for taken, up in devices))
