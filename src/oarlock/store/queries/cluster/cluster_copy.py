"""The copy of another cluster in our own tables: written from what its source says, and nowhere else."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, Delete, Table, bindparam, delete, func, select, update

from oarlock.model.errors import OarlockError
from oarlock.model.job import FINAL, JobState
from oarlock.model.resource import DEFAULT_TYPE, Value
from oarlock.model.source import SourceEvent, SourceJob, SourceQueue, SourceResource, StateChange
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries.cluster import properties
from oarlock.store.tables import (
    assigned_resources,
    event_log_hostnames,
    event_logs,
    gantt_jobs_predictions_visu,
    gantt_jobs_resources_visu,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
    queues,
    resource_logs,
    resources,
)

_CURRENT, _LOG = "CURRENT", "LOG"
_OVER = tuple(sorted(FINAL))


# Jobs.


def live_numbers(tx: Tx) -> set[int]:
    """Return the jobs of the copy that are not over."""
    return set(tx.execute(select(jobs.c.job_id).where(jobs.c.state.not_in(_OVER))).scalars())


def held_by_live(tx: Tx) -> dict[int, list[int]]:
    """Return the resources of the jobs that are not over, by job."""
    held: dict[int, list[int]] = {}
    query = (
        select(jobs.c.job_id, assigned_resources.c.resource_id)
        .join(assigned_resources, assigned_resources.c.moldable_job_id == jobs.c.assigned_moldable_job)
        .where(jobs.c.state.not_in(_OVER))
    )
    for number, resource in tx.execute(query):
        held.setdefault(number, []).append(resource)
    return held


def write_jobs(tx: Tx, changed: Sequence[SourceJob]) -> None:
    """Write jobs and all that belongs to them; what the copy had of them is replaced."""
    if not changed:
        return
    ids = [job.id for job in changed]
    _remove_parts(tx, ids)
    present = set(tx.execute(_present(tx.dialect.name), bind_ids(tx, ids)).scalars())
    rows = [_job_row(job) for job in changed]
    old = [{f"new_{name}": value for name, value in row.items()} for row in rows if row["job_id"] in present]
    if old:
        tx.execute(_replace_job(), old)
    names = list(rows[0])
    insert_rows(tx, "jobs", names, [list(row.values()) for row in rows if row["job_id"] not in present])
    _write_requests(tx, changed)
    _write_plans(tx, changed)
    _insert(
        tx, job_types,
        [(job.id, kind, _index(job)) for job in changed for kind in job.types],
        ("job_id", "type", "type_index"), job_types.c.job_type_id,
    )  # fmt: skip
    _insert(
        tx, job_state_logs,
        [(job.id, stay.state.value, stay.start, stay.stop, "") for job in changed for stay in job.stays],
        ("job_id", "job_state", "date_start", "date_stop", "why"), job_state_logs.c.job_state_log_id,
    )  # fmt: skip
    insert_rows(
        tx,
        "job_dependencies",
        ["job_id", "job_id_required", "job_dependency_index"],
        [(job.id, needed, _index(job)) for job in changed for needed in dict.fromkeys(job.needs)],
    )


def mark_vanished(tx: Tx, ids: Collection[int], *, now: int) -> None:
    """Mark jobs that the source does not know any more as over."""
    engine, bound = tx.dialect.name, bind_ids(tx, ids)
    says = "Its resource manager does not know it any more."
    over = {"state": JobState.ERROR.value, "stop_time": now, "message": says}
    tx.execute(update(jobs).where(id_in(engine, jobs.c.job_id)).values(over), bound)
    moldable = moldable_job_descriptions.c
    own = select(moldable.moldable_id).where(id_in(engine, moldable.moldable_job_id))
    held, planned = assigned_resources.c, gantt_jobs_predictions_visu.c
    tx.execute(
        update(assigned_resources).where(held.moldable_job_id.in_(own)).values(assigned_resource_index=_LOG), bound
    )
    tx.execute(delete(gantt_jobs_predictions_visu).where(planned.moldable_job_id.in_(own)), bound)
    tx.execute(update(job_types).where(id_in(engine, job_types.c.job_id)).values(type_index=_LOG), bound)


def end_running(tx: Tx, *, now: int) -> None:
    """End the jobs of the copy that run, at an instant: for a replay, they took that long."""
    begun = (jobs.c.state.not_in(_OVER), jobs.c.start_time > 0, jobs.c.start_time <= now)
    tx.execute(update(jobs).where(*begun).values(state=JobState.TERMINATED.value, stop_time=now))


def _index(job: SourceJob) -> str:
    return _LOG if job.state in FINAL else _CURRENT


def _job_row(job: SourceJob) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "job_name": job.name,
        "cpuset_name": f"{job.user}_{job.id}",
        "job_type": job.kind.value,
        "info_type": "",
        "state": job.state.value,
        "reservation": job.reservation.value,
        "message": job.message,
        "job_user": job.user,
        "command": job.command,
        "queue_name": job.queue,
        "properties": job.properties,
        "launching_directory": job.directory,
        "submission_time": job.submitted,
        "start_time": job.start,
        "stop_time": job.stop,
        "accounted": "YES",
        "assigned_moldable_job": job.assigned,
        "project": job.project,
        "suspended": "YES" if job.suspended else "NO",
        "exit_code": job.exit_code,
        "array_id": job.array_id or job.id,
        "array_index": job.array_index,
        "initial_request": job.initial_request,
        "job_uid": job.uid,
    }


@cache
def _replace_job() -> Any:
    names = [name for name in _job_row(_ANY_JOB) if name != "job_id"]
    changes: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    return update(jobs).where(jobs.c.job_id == bindparam("new_job_id")).values(changes)


_ANY_JOB = SourceJob(id=0, state=JobState.WAITING, user="")


@cache
def _present(engine: str) -> Any:
    return select(jobs.c.job_id).where(id_in(engine, jobs.c.job_id))


def _remove_parts(tx: Tx, ids: Sequence[int]) -> None:
    """Remove what belongs to jobs, the innermost first."""
    for statement in _removals(tx.dialect.name):
        tx.execute(statement, bind_ids(tx, ids))


@cache
def _removals(engine: str) -> list[Delete]:
    moldable, group = moldable_job_descriptions.c, job_resource_groups.c
    moldables = select(moldable.moldable_id).where(id_in(engine, moldable.moldable_job_id))
    groups = select(group.res_group_id).where(group.res_group_moldable_id.in_(moldables))
    return [
        delete(job_resource_descriptions).where(job_resource_descriptions.c.res_job_group_id.in_(groups)),
        delete(job_resource_groups).where(group.res_group_moldable_id.in_(moldables)),
        delete(assigned_resources).where(assigned_resources.c.moldable_job_id.in_(moldables)),
        delete(gantt_jobs_predictions_visu).where(gantt_jobs_predictions_visu.c.moldable_job_id.in_(moldables)),
        delete(gantt_jobs_resources_visu).where(gantt_jobs_resources_visu.c.moldable_job_id.in_(moldables)),
        delete(moldable_job_descriptions).where(id_in(engine, moldable.moldable_job_id)),
        delete(job_types).where(id_in(engine, job_types.c.job_id)),
        delete(job_state_logs).where(id_in(engine, job_state_logs.c.job_id)),
        delete(job_dependencies).where(id_in(engine, job_dependencies.c.job_id)),
    ]


def _write_requests(tx: Tx, changed: Sequence[SourceJob]) -> None:
    """Write what jobs asked for. Numbers of groups are ours: they mean nothing to anybody."""
    choices = [(job, choice) for job in changed for choice in job.choices]
    insert_rows(
        tx,
        "moldable_job_descriptions",
        ["moldable_id", "moldable_job_id", "moldable_walltime", "moldable_index"],
        [(choice.id, job.id, choice.walltime, _index(job)) for job, choice in choices],
    )
    groups = [(job, choice, group) for job, choice in choices for group in choice.groups]
    numbers = allocate_ids(tx, job_resource_groups.c.res_group_id, len(groups))
    insert_rows(
        tx,
        "job_resource_groups",
        ["res_group_id", "res_group_moldable_id", "res_group_property", "res_group_index"],
        [
            (number, choice.id, group.condition, _index(job))
            for number, (job, choice, group) in zip(numbers, groups, strict=True)
        ],
    )
    insert_rows(
        tx,
        "job_resource_descriptions",
        ["res_job_group_id", "res_job_resource_type", "res_job_value", "res_job_order", "res_job_index"],
        [
            (number, level.property, level.value, order, _index(job))
            for number, (job, _, group) in zip(numbers, groups, strict=True)
            for order, level in enumerate(group.levels)
        ],
    )


def _write_plans(tx: Tx, changed: Sequence[SourceJob]) -> None:
    """Write which resources jobs have, and which they will have."""
    insert_rows(
        tx,
        "assigned_resources",
        ["moldable_job_id", "resource_id", "assigned_resource_index"],
        [
            (job.assigned, number, _index(job))
            for job in changed
            if job.assigned
            for number in dict.fromkeys(job.resources)
        ],
    )
    planned = [(job, job.planned_choice) for job in changed if job.planned_choice and job.state not in FINAL]
    insert_rows(
        tx,
        "gantt_jobs_predictions_visu",
        ["moldable_job_id", "start_time"],
        [(choice, job.planned) for job, choice in planned],
    )
    insert_rows(
        tx,
        "gantt_jobs_resources_visu",
        ["moldable_job_id", "resource_id"],
        [(choice, number) for job, choice in planned for number in dict.fromkeys(job.planned_resources)],
    )


def _insert(
    tx: Tx, target: Table, rows: Sequence[tuple[Any, ...]], names: Sequence[str], key: Column[int]
) -> None:  # fmt: skip
    numbers = allocate_ids(tx, key, len(rows))
    columns = [key.name, *names]
    insert_rows(tx, target.name, columns, [(number, *row) for number, row in zip(numbers, rows, strict=True)])


# What the cluster has.


def numbered(tx: Tx) -> dict[tuple[str, str], int]:
    """Return the numbers of resources by node and CPU."""
    row = resources.c
    rows = tx.execute(select(row.network_address, row.cpuset, row.resource_id).where(row.type == DEFAULT_TYPE))
    return {(node, cpu): number for node, cpu, number in rows}


def highest_resource(tx: Tx) -> int:
    """Return the highest number that a resource has."""
    return tx.execute(select(func.max(resources.c.resource_id))).scalar() or 0


def write_resources(tx: Tx, rows: Sequence[SourceResource], kinds: Mapping[str, type]) -> list[str]:
    """Replace all resources; return the properties that could not be copied, because their names are words of SQL."""
    refused = []
    own = properties.types(tx)
    for name, kind in kinds.items():
        if name not in own:
            try:
                properties.add(tx, name, kind)
            except OarlockError:
                refused.append(name)
    own = properties.types(tx)
    names = [name for name in kinds if name in own and name != "resource_id"]
    tx.execute(delete(resources))
    defaults = {column.name: column.info.get("default") for column in resources.columns}
    insert_rows(
        tx,
        "resources",
        ["resource_id", *names],
        [
            (row.id, *(_converted(row.values.get(name), own[name], defaults.get(name)) for name in names))
            for row in rows
        ],
    )
    return refused


def _converted(value: Value, kind: type, default: Value) -> Value:
    if value is None:
        return default
    if kind is str:
        return str(value)
    try:
        return int(value)
    except ValueError:
        return default


def write_queues(tx: Tx, rows: Iterable[SourceQueue]) -> None:
    """Replace the queues."""
    tx.execute(delete(queues))
    names = ["queue_name", "priority", "scheduler_policy", "state"]
    insert_rows(
        tx, "queues", names, [(row.name, row.priority, "", "Active" if row.active else "notActive") for row in rows]
    )


def write_changes(tx: Tx, rows: Sequence[StateChange]) -> None:
    """Replace the history of states of resources."""
    tx.execute(delete(resource_logs))
    names = ["resource_log_id", "resource_id", "attribute", "value", "date_start", "date_stop", "finaud_decision"]
    insert_rows(tx, "resource_logs", names, [(r.id, r.resource, "state", r.state, r.start, r.stop, "NO") for r in rows])


# Events.


def last_event(tx: Tx) -> int:
    """Return the number of the last event that was copied."""
    return tx.execute(select(func.max(event_logs.c.event_id))).scalar() or 0


def write_events(tx: Tx, rows: Sequence[SourceEvent]) -> None:
    """Add events under the numbers that the source gave them."""
    names = [column.name for column in event_logs.columns]
    insert_rows(
        tx,
        "event_logs",
        names,
        [(row.id, row.event.type.value, row.event.job or 0, row.event.at, row.event.description, "NO") for row in rows],
    )
    hosts = [(row.id, host) for row in rows for host in dict.fromkeys(row.event.hosts)]
    insert_rows(tx, event_log_hostnames.name, ["event_id", "hostname"], hosts)
