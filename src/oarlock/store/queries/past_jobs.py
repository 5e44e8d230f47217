"""Jobs that are over, as a replay needs them: from a database of Oarlock, or of OAR 2, which has the same tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, ColumnElement, Select, Subquery, case, func, inspect, select
from sqlalchemy.exc import DBAPIError

from oarlock.model.errors import DatabaseRefused
from oarlock.model.job import FINAL
from oarlock.model.job_type import JobType
from oarlock.model.resource import DEFAULT_ORDER, DEFAULT_TYPE, ResourceState
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.store.engine import engines
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import properties, resource_table, shapes
from oarlock.store.tables import assigned_resources, job_types, jobs, moldable_job_descriptions, resources

_NEEDED = (
    "jobs", "moldable_job_descriptions", "assigned_resources", "resources", "job_resource_groups",
    "job_resource_descriptions", "job_types",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that ran. `shape` is None where what it asked for cannot be read any more.

    `held` is how many resources of type `default` it had; licences and the like are no processors.
    """

    id: int
    user: str
    project: str
    submitted: int
    start: int
    stop: int
    walltime: int
    held: int
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class PastJobs:
    """Jobs by the instant of their submission, and the resources: those of today, and those that these jobs had.

    `dead`: how many of the resources are Dead today. `inner`: jobs that ran inside of others' resources, left out here.
    """

    jobs: list[PastJob]
    resources: ResourceTable
    dead: int
    inner: int


def read(where: Path | URL, *, since: int, until: int) -> PastJobs:
    """Read the jobs that were submitted in [since, until) and ran; nothing is ever written. `DatabaseRefused`."""
    if isinstance(where, Path) and not where.is_file():
        raise DatabaseRefused(f"There is no database at {where}.", hint="Name the file of SQLite, or postgresql://….")
    engine = engines.reader(where)
    try:
        with engine.connect() as tx, tx.begin():
            missing = sorted(set(_NEEDED) - set(inspect(tx).get_table_names()))
            if missing:
                raise DatabaseRefused(
                    f"The database has no table `{missing[0]}`, so it is neither Oarlock's nor OAR's.",
                    hint="Name the database of the server, as in DB_BASE_NAME.",
                )
            return _history(tx, _ran(since, until))
    except DBAPIError as error:
        raise DatabaseRefused(f"The history cannot be read: {' '.join(str(error.orig).split())}") from error
    finally:
        engine.dispose()


def _ran(since: int, until: int) -> tuple[ColumnElement[bool], ...]:
    """Find the jobs that were submitted in [since, until) and ran."""
    job = jobs.c
    return (
        job.state.in_([state.value for state in FINAL]),
        job.start_time > 0,
        job.stop_time >= job.start_time,
        job.submission_time >= since,
        job.submission_time < until,
    )


def _history(tx: Tx, conditions: tuple[ColumnElement[bool], ...]) -> PastJobs:
    types = properties.types(tx)
    inner = jobs.c.job_id.in_(select(job_types.c.job_id).where(job_types.c.type.startswith(f"{JobType.INNER}=")))
    used = select(assigned_resources.c.resource_id).where(
        assigned_resources.c.moldable_job_id.in_(select(jobs.c.assigned_moldable_job).where(*conditions))
    )
    table = resource_table.read(tx, types, DEFAULT_ORDER, also=used)
    return PastJobs(
        _past(tx, types, (*conditions, ~inner)),
        table,
        dead=sum(state == ResourceState.DEAD.value for state in table.columns["state"]),
        inner=tx.execute(select(func.count()).where(*conditions, inner)).scalar_one(),
    )


def _past(tx: Tx, types: Mapping[str, type], conditions: tuple[ColumnElement[bool], ...]) -> list[PastJob]:
    job, moldable = jobs.c, moldable_job_descriptions.c
    requests = shapes.read(tx, select(job.job_id).where(*conditions), types)
    chosen = {
        choice.moldable_id: requests.shapes[choice.shape] for choices in requests.choices.values() for choice in choices
    }
    held = _held(select(job.assigned_moldable_job).where(*conditions))
    rows = tx.execute(
        select(
            job.job_id, job.job_user, job.project, job.submission_time, job.start_time, job.stop_time,
            moldable.moldable_walltime, held.c.held, moldable.moldable_id,
        )
        .join(moldable_job_descriptions, moldable.moldable_id == job.assigned_moldable_job)
        .join(held, held.c.moldable_job_id == moldable.moldable_id)
        .where(*conditions)
        .order_by(job.submission_time, job.job_id)
    )  # fmt: skip
    return [PastJob(*row[:8], chosen.get(row.moldable_id)) for row in rows]


def _held(of: Select[Any]) -> Subquery:
    """Count the processors that jobs had, of their chosen alternatives; a resource that was removed since was one."""
    given = assigned_resources.c
    other = resources.c.type != DEFAULT_TYPE
    return (
        select(given.moldable_job_id, func.sum(case((other, 0), else_=1)).label("held"))
        .join_from(assigned_resources, resources, resources.c.resource_id == given.resource_id, isouter=True)
        .where(given.moldable_job_id.in_(of))
        .group_by(given.moldable_job_id)
        .subquery()
    )
