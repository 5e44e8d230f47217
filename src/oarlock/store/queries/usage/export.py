"""What an export takes out of the database: jobs that are over, with their summaries."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Double, Integer, select

from oarlock.store.engine.tx import Tx
from oarlock.store.tables import agent_jobs, job_summaries, jobs

_AT_ONCE = 5_000
_HIDDEN = {"job_id", "booked"}  # twice, and of no use elsewhere
_COLUMNS = [
    *(getattr(jobs.c, name) for name in ("job_id", "job_name", "job_user", "project", "queue_name", "state",
                                         "submission_time", "start_time", "stop_time", "exit_code")),
    *(column for column in job_summaries.c if column.name not in _HIDDEN),
]  # fmt: skip


def summary_columns() -> Mapping[str, type]:
    """Return the columns of `ended_jobs`, each with what it holds: `int`, `float` or `str`."""
    return {column.name: _kind(column.type) for column in _COLUMNS}


def _kind(stored: object) -> type:
    if isinstance(stored, Double):
        return float
    return int if isinstance(stored, Integer) else str


def ended_jobs(tx: Tx, *, since: int, until: int) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the jobs that ran and ended in [since, until), in parts, by number, with their summaries."""
    query = (
        select(*_COLUMNS)
        .select_from(jobs.outerjoin(job_summaries, job_summaries.c.job_id == jobs.c.job_id))
        .where(jobs.c.stop_time >= since, jobs.c.stop_time < until, jobs.c.start_time > 0)
        .order_by(jobs.c.job_id)
    )
    streamed = {"stream_results": True, "yield_per": _AT_ONCE}
    with tx.execute(query, execution_options=streamed) as rows:
        for part in rows.partitions():
            yield [tuple(row) for row in part]


def ended_agent_jobs(tx: Tx, *, since: int, until: int) -> list[int]:
    """Return the numbers of jobs of other resource managers that ended in [since, until)."""
    query = select(agent_jobs.c.number).where(agent_jobs.c.ended >= since, agent_jobs.c.ended < until)
    return list(tx.execute(query.order_by(agent_jobs.c.number)).scalars())
