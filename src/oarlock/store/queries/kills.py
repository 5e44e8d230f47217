"""Kills (`frag_jobs`): requested, sent to the nodes, timed out, done."""

from collections.abc import Collection
from functools import cache
from typing import Any

from sqlalchemy import Select, Update, literal_column, select, update

from oarlock.model.job import FragState
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import frag_jobs


def request(tx: Tx, ids: Collection[int], *, at: int) -> list[int]:
    """Request the kill of jobs; return those for which it was not requested before."""
    before = requested(tx, ids)
    new = [number for number in dict.fromkeys(ids) if number not in before]
    rows = [(number, at, FragState.LEON.value) for number in new]
    insert_rows(tx, "frag_jobs", ["frag_id_job", "frag_date", "frag_state"], rows)
    return new


def requested(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return those of the jobs whose kill was requested, by a user or by the system."""
    return set(tx.execute(_requested(tx.dialect.name), bind_ids(tx, ids)).scalars())


@cache
def _requested(engine: str) -> Select[Any]:
    return select(frag_jobs.c.frag_id_job).where(id_in(engine, frag_jobs.c.frag_id_job))


def under_way(tx: Tx) -> list[tuple[int, FragState, int]]:
    """Return the kills that are not over: job, how far it has come, when it was asked for; oldest first."""
    return [(number, FragState(state), date) for number, state, date in tx.execute(_UNDER_WAY)]


_UNDER_WAY = (
    select(frag_jobs.c.frag_id_job, frag_jobs.c.frag_state, frag_jobs.c.frag_date)
    .where(frag_jobs.c.frag_state != literal_column("'FRAGGED'"))
    .order_by(frag_jobs.c.frag_date, frag_jobs.c.frag_id_job)
)


def set_state(tx: Tx, ids: Collection[int], state: FragState) -> None:
    """Update the state of the kills of these jobs."""
    tx.execute(_set_state(tx.dialect.name, state), bind_ids(tx, ids))


@cache
def _set_state(engine: str, state: FragState) -> Update:
    return update(frag_jobs).where(id_in(engine, frag_jobs.c.frag_id_job)).values(frag_state=state.value)
