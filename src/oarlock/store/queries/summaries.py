"""Summaries: what each job really used, one row a job."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import Delete, Select, delete, select

from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import job_summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was measured of a whole job. Absent is not zero; `detail` is JSON for what has no column."""

    job_id: int
    date: int
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    energy_joules: float | None = None
    gpu_seconds: float | None = None
    detail: str = "{}"


_COLUMNS = [column.name for column in job_summaries.columns]
_VALUES = attrgetter(*_COLUMNS)


def save(tx: Tx, summaries: Sequence[Summary]) -> None:
    """Store summaries; the one that a job may have is replaced."""
    tx.execute(_forget(tx.dialect.name), bind_ids(tx, [s.job_id for s in summaries]))
    insert_rows(tx, "job_summaries", _COLUMNS, [_VALUES(summary) for summary in summaries])


def of_jobs(tx: Tx, ids: Collection[int]) -> list[Summary]:
    """Return the summaries of jobs, by number; jobs without one are not in the answer."""
    return [Summary(**row._mapping) for row in tx.execute(_of_jobs(tx.dialect.name), bind_ids(tx, ids))]


@cache
def _of_jobs(engine: str) -> Select[Any]:
    return select(job_summaries).where(id_in(engine, job_summaries.c.job_id)).order_by(job_summaries.c.job_id)


@cache
def _forget(engine: str) -> Delete:
    return delete(job_summaries).where(id_in(engine, job_summaries.c.job_id))
