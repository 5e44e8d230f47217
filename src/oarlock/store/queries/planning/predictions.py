"""Predicted starts: the first of each job is kept, and compared with the start that followed."""

from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Insert, Select, bindparam, exists, insert, select

from oarlock.store.engine.rows import BoundRows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import jobs, start_predictions
from oarlock.store.tables.columns import INTEGER

_DATES = BoundRows("dates", id=INTEGER, start=INTEGER)
_LOOKED_AT = 2000
"""So many jobs that ended last are compared: more say nothing new, and cost time at every look."""


class PredictedStart(NamedTuple):
    """The first start that was predicted for a job, and when (`at`)."""

    job_id: int
    at: int
    start: int


class PredictionError(NamedTuple):
    """A predicted start beside the real one: how long `ahead` it was made, and how much `later` the job started.

    Both in seconds; `later` is negative for a job that started sooner.
    """

    ahead: int
    later: int


def keep_first(tx: Tx, dates: Collection[tuple[int, int]], *, now: int) -> None:
    """Keep the starts of jobs that have none yet: pairs of job and start, in one statement."""
    if dates:
        tx.execute(_keep_first(tx.dialect.name), {**_DATES.parameters(tx, list(dates)), "now": now})


@cache
def _keep_first(engine: str) -> Insert:
    dates, kept = _DATES.table(engine), start_predictions
    new = select(dates.c.id, bindparam("now", type_=INTEGER), dates.c.start).where(
        ~exists().where(kept.c.job_id == dates.c.id)
    )
    return insert(kept).from_select(["job_id", "date", "start_time"], new)


def first_of(tx: Tx, job_id: int) -> PredictedStart | None:
    """Return the first predicted start of a job; None for one that started at once, or is a reservation."""
    kept = start_predictions.c
    row = tx.execute(select(kept.job_id, kept.date, kept.start_time).where(kept.job_id == job_id)).first()
    return None if row is None else PredictedStart(*row)


def errors(tx: Tx) -> list[PredictionError]:
    """Return how far the first predictions for the jobs that ended last were off."""
    return [PredictionError(predicted - at, start - predicted) for at, predicted, start in tx.execute(_ERRORS)]


def _predicted_and_real() -> Select[Any]:
    ended = (
        select(jobs.c.job_id, jobs.c.start_time)
        .where(jobs.c.stop_time > 0)
        .order_by(jobs.c.stop_time.desc())
        .limit(_LOOKED_AT)
        .subquery("ended")
    )
    kept = start_predictions.c
    return (
        select(kept.date, kept.start_time, ended.c.start_time)
        .join(ended, ended.c.job_id == kept.job_id)
        .where(ended.c.start_time > 0)
    )


_ERRORS: Select[Any] = _predicted_and_real()
