"""Requests to change the walltime of running jobs, and what was granted of them (table `walltime_change`)."""

from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, bindparam, delete, func, select

from oarlock.model.job import JobState, Reservation
from oarlock.model.job_type import JobType
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import (
    gantt_jobs_predictions,
    gantt_jobs_resources,
    job_types,
    jobs,
    moldable_job_descriptions,
    walltime_change,
)

_COLUMNS = [column.name for column in walltime_change.columns]


class WalltimeChange(NamedTuple):
    """What was asked for and granted of a job's walltime, in seconds; pending may be negative."""

    job_id: int
    pending: int = 0
    force: bool = False
    delay_next_jobs: bool = False
    granted: int = 0
    granted_with_force: int = 0
    granted_with_delay_next_jobs: int = 0


def of_job(tx: Tx, job_id: int) -> WalltimeChange:
    """Return the change of a job; one of zeros if none was ever requested."""
    row = tx.execute(_OF_JOB, {"job": job_id}).one_or_none()
    return _change(row) if row is not None else WalltimeChange(job_id)


def pending(tx: Tx) -> list[WalltimeChange]:
    """Return the changes of running jobs that are not granted in full, oldest job first."""
    return [_change(row) for row in tx.execute(_PENDING)]


def granted(tx: Tx) -> list[int]:
    """Return the running jobs whose walltime is another than the one they were launched with."""
    return [row.job_id for row in tx.execute(_GRANTED)]


_OF_JOB = select(walltime_change).where(walltime_change.c.job_id == bindparam("job"))
_RUNNING = (
    select(walltime_change)
    .join(jobs, jobs.c.job_id == walltime_change.c.job_id)
    .where(jobs.c.state == JobState.RUNNING.value)
    .order_by(walltime_change.c.job_id)
)
_PENDING = _RUNNING.where(walltime_change.c.pending != 0)
_GRANTED = _RUNNING.where(walltime_change.c.granted != 0)


def write(tx: Tx, change: WalltimeChange) -> None:
    """Insert or replace the change of a job."""
    tx.execute(delete(walltime_change).where(walltime_change.c.job_id == change.job_id))
    flags = {"force": _flag(change.force), "delay_next_jobs": _flag(change.delay_next_jobs)}
    row = change._asdict() | flags
    insert_rows(tx, "walltime_change", _COLUMNS, [tuple(row[name] for name in _COLUMNS)])


def next_planned_start(
    tx: Tx, resources: Collection[int], *, after: int, reservations_only: bool = False
) -> int | None:
    """Return when the plan next gives any of these resources to a job that waits; best-effort jobs do not count."""
    statement = _next_start(tx.dialect.name, reservations_only)
    start: int | None = tx.execute(statement, {"after": after, **bind_ids(tx, resources)}).scalar()
    return start


@cache
def _next_start(engine: str, reservations_only: bool) -> Select[Any]:
    moldable, given, predicted = moldable_job_descriptions.c, gantt_jobs_resources.c, gantt_jobs_predictions.c
    best_effort = select(job_types.c.job_id).where(job_types.c.type == JobType.BESTEFFORT.value)
    statement = (
        select(func.min(predicted.start_time))
        .select_from(gantt_jobs_resources)
        .join(gantt_jobs_predictions, predicted.moldable_job_id == given.moldable_job_id)
        .join(moldable_job_descriptions, moldable.moldable_id == given.moldable_job_id)
        .join(jobs, jobs.c.job_id == moldable.moldable_job_id)
        .where(
            id_in(engine, given.resource_id),
            predicted.start_time >= bindparam("after"),
            jobs.c.state.in_([JobState.WAITING.value, JobState.HOLD.value, JobState.TO_ACK_RESERVATION.value]),
            jobs.c.job_id.not_in(best_effort),
        )
    )
    if reservations_only:
        statement = statement.where(jobs.c.reservation == Reservation.SCHEDULED.value)
    return statement


def _change(row: Any) -> WalltimeChange:
    values = dict(row._mapping)
    return WalltimeChange(
        **values | {"force": values["force"] == "YES", "delay_next_jobs": row.delay_next_jobs == "YES"}
    )


def _flag(value: bool) -> str:
    return "YES" if value else "NO"
