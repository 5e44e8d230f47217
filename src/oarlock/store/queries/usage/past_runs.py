"""Past runs of a user's jobs that have the same name, or run the same command."""

from typing import NamedTuple

from sqlalchemy import func, select

from oarlock.model.job import Job, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import array_texts, job_summaries, jobs, moldable_job_descriptions

_MOST = 20


class PastRun(NamedTuple):
    """How long a job ran, and how much memory of its own it had at most; None if it was not measured."""

    seconds: int
    memory_bytes: int | None


def runs_like(tx: Tx, job: Job) -> list[PastRun]:
    """Return the last runs that ended by themselves, of the same user and name; without a name, of the same command."""
    past, summary = jobs.c, job_summaries.c
    query = (
        select(past.start_time, past.stop_time, summary.memory_own_peak_bytes, summary.memory_peak_bytes)
        .select_from(
            jobs.outerjoin(job_summaries, summary.job_id == past.job_id).outerjoin(
                array_texts, array_texts.c.array_id == past.texts_id
            )
        )
        .where(past.job_user == job.user, past.state == JobState.TERMINATED.value, past.start_time > 0)
        .order_by(past.job_id.desc())
        .limit(_MOST)
    )
    if job.name:
        query = query.where(past.job_name == job.name)
    else:
        same = (past.command == job.command) | ((past.texts_id > 0) & (array_texts.c.command == job.command))
        query = query.where(same)
    return [
        PastRun(max(stop - start, 0), own if own is not None else whole)
        for start, stop, own, whole in tx.execute(query)
    ]


def walltime_of(tx: Tx, job_id: int) -> int:
    """Return the longest walltime that a job asks for."""
    moldable = moldable_job_descriptions.c
    return int(
        tx.execute(select(func.max(moldable.moldable_walltime)).where(moldable.moldable_job_id == job_id)).scalar() or 0
    )
