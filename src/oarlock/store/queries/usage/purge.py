"""Jobs that ended long ago, moved from the database into an archive file: an SQLite database of the same tables.

A slice is copied first and deleted then, so that a server that is killed in between has it twice and loses nothing;
copying it again replaces the first copy.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Delete, Select, Table, and_, delete, exists, func, literal_column, or_, select

from oarlock.model.job import FINAL
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx, highest_id, skip_ids
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.usage.accounting import compare_accounts_from
from oarlock.store.tables import (
    archive_pins,
    array_texts,
    assigned_resources,
    attempt_nodes,
    attempts,
    challenges,
    event_log_hostnames,
    event_logs,
    finding_warnings,
    frag_jobs,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_scripts,
    job_state_logs,
    job_summaries,
    job_types,
    jobs,
    moldable_job_descriptions,
    monitoring_samples,
    start_predictions,
    walltime_change,
)

_OVER = [state.value for state in FINAL]


class JobSlice(NamedTuple):
    """Jobs and the rows of all that belongs to them, by table, parents first."""

    ids: list[int]
    rows: dict[str, list[tuple[Any, ...]]]


def _over_before(date: int) -> Select[Any]:
    """Choose the jobs that ended before an instant and that nothing is waiting for."""
    job = jobs.c
    dependent = jobs.alias("dependent")
    needed = exists().where(
        job_dependencies.c.job_id_required == job.job_id, dependent.c.job_id == job_dependencies.c.job_id,
        dependent.c.state.not_in(_OVER),
    )  # fmt: skip
    sibling = jobs.alias("sibling")
    unfinished = exists().where(
        job.array_id > 0, sibling.c.array_id == job.array_id,
        or_(sibling.c.state.not_in(_OVER), sibling.c.stop_time >= date),
    )  # fmt: skip
    return select(job.job_id).where(
        job.state.in_(_OVER), job.stop_time > 0, job.stop_time < date, job.accounted == literal_column("'YES'"),
        ~needed, ~unfinished,
        ~exists().where(attempts.c.job_id == job.job_id, attempts.c.closed_us.is_(None)),
        ~exists().where(archive_pins.c.job_id == job.job_id),
        ~exists().where(job_summaries.c.job_id == job.job_id, job_summaries.c.booked == literal_column("0")),
    )  # fmt: skip


def count(tx: Tx, date: int) -> int:
    """Return how many jobs would be moved."""
    return int(tx.execute(select(func.count()).select_from(_over_before(date).subquery())).scalar_one())


def read_slice(tx: Tx, date: int, most: int) -> JobSlice:
    """Read the jobs that ended first, with everything that belongs to them."""
    ids = list(tx.execute(_over_before(date).order_by(jobs.c.stop_time, jobs.c.job_id).limit(most)).scalars())
    if not ids:
        return JobSlice([], {})
    bound = bind_ids(tx, ids)
    return JobSlice(
        ids,
        {
            table.name: [tuple(row) for row in tx.execute(select(table).where(condition), bound)]
            for table, condition in _parts(tx.dialect.name)
        },
    )


@cache
def _parts(engine: str) -> list[tuple[Table, ColumnElement[bool]]]:
    """Return what belongs to the jobs bound by `bind_ids`, parents before what refers to them."""
    moldable, group, event = moldable_job_descriptions.c, job_resource_groups.c, event_logs.c
    moldables = select(moldable.moldable_id).where(id_in(engine, moldable.moldable_job_id))
    groups = select(group.res_group_id).where(group.res_group_moldable_id.in_(moldables))
    of_jobs = and_(event.job_id != literal_column("0"), id_in(engine, event.job_id))
    texts = select(jobs.c.texts_id).where(id_in(engine, jobs.c.job_id), jobs.c.texts_id > 0)
    own = (
        job_state_logs, job_types, job_dependencies, start_predictions, finding_warnings, job_summaries,
        walltime_change, challenges, monitoring_samples, attempts, attempt_nodes,
    )  # fmt: skip
    return [
        (array_texts, array_texts.c.array_id.in_(texts)),
        (jobs, id_in(engine, jobs.c.job_id)),
        (job_scripts, and_(job_scripts.c.cluster == literal_column("''"), id_in(engine, job_scripts.c.job))),
        (frag_jobs, id_in(engine, frag_jobs.c.frag_id_job)),
        *((table, id_in(engine, table.c.job_id)) for table in own),
        (moldable_job_descriptions, id_in(engine, moldable.moldable_job_id)),
        (job_resource_groups, group.res_group_moldable_id.in_(moldables)),
        (job_resource_descriptions, job_resource_descriptions.c.res_job_group_id.in_(groups)),
        (assigned_resources, assigned_resources.c.moldable_job_id.in_(moldables)),
        (event_logs, of_jobs),
        (event_log_hostnames, event_log_hostnames.c.event_id.in_(select(event.event_id).where(of_jobs))),
    ]


def remove(tx: Tx, ids: Sequence[int], date: int) -> int:
    """Delete jobs that were copied; return how many. Their numbers are never given again."""
    still = select(jobs.c.job_id).where(id_in(tx.dialect.name, jobs.c.job_id), jobs.c.job_id.in_(_over_before(date)))
    chosen = list(tx.execute(still, bind_ids(tx, ids)).scalars())
    if not chosen:
        return 0
    for key in (
        jobs.c.job_id, moldable_job_descriptions.c.moldable_id, job_resource_groups.c.res_group_id,
        job_types.c.job_type_id, job_state_logs.c.job_state_log_id, event_logs.c.event_id,
    ):  # fmt: skip
        skip_ids(tx, key, highest_id(tx, key))
    bound = bind_ids(tx, chosen)
    for statement in _removals(tx.dialect.name):
        tx.execute(statement, bound)
    used = select(jobs.c.texts_id).where(jobs.c.texts_id > 0)
    unused = and_(array_texts.c.stored == literal_column("'YES'"), array_texts.c.array_id.not_in(used))
    tx.execute(delete(array_texts).where(unused))
    compare_accounts_from(tx, date)
    return len(chosen)


@cache
def _removals(engine: str) -> list[Delete]:
    return [delete(table).where(condition) for table, condition in reversed(_parts(engine)) if table is not array_texts]


class SiteResources(NamedTuple):
    """All resources: the types of their columns, and their rows."""

    types: dict[str, type]
    rows: list[tuple[Any, ...]]


def all_resources(tx: Tx) -> SiteResources:
    """Return the resources as they are now, with the site's properties: an archive names the nodes of its jobs."""
    types = properties.types(tx)
    return SiteResources(types, [tuple(row) for row in tx.execute(select(properties.clause(types)))])


def store(tx: Tx, moved: JobSlice, site: SiteResources) -> None:
    """Write a slice into an archive; what it has of these jobs already is replaced."""
    existing = properties.types(tx)
    for name, kind in site.types.items():
        if name not in existing:
            properties.add(tx, name, kind)
    # A resource that was removed since an earlier purge keeps its row here.
    _replace(tx, "resources", list(site.types), site.rows)
    for name, values in moved.rows.items():
        _replace(tx, name, [column.name for column in jobs.metadata.tables[name].columns], values)


def _replace(tx: Tx, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        listed = ", ".join(f'"{column}"' for column in columns)
        marks = ", ".join("?" * len(columns))
        tx.exec_driver_sql(f'INSERT OR REPLACE INTO "{name}" ({listed}) VALUES ({marks})', list(rows))  # noqa: S608
