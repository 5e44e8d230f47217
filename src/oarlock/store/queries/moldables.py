"""Moldable alternatives of jobs: their walltimes, which shrink when a reservation starts late."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Select, select, update

from oarlock.model.job import JobState
from oarlock.store.engine.rows import BoundRows, bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import jobs, moldable_job_descriptions
from oarlock.store.tables.columns import INTEGER

_WALLTIMES = BoundRows("lasting", id=INTEGER, seconds=INTEGER)


def walltimes(tx: Tx, ids: Collection[int]) -> dict[int, int]:
    """Return the walltimes of moldable alternatives, in seconds."""
    return dict(tuple(row) for row in tx.execute(_walltimes(tx.dialect.name), bind_ids(tx, ids)))


@cache
def _walltimes(engine: str) -> Select[Any]:
    moldable = moldable_job_descriptions.c
    return select(moldable.moldable_id, moldable.moldable_walltime).where(id_in(engine, moldable.moldable_id))


def starts_and_walltimes(tx: Tx, states: Collection[JobState]) -> list[tuple[int, int, int]]:
    """Return the jobs in these states with their start and the walltime of the alternative that was chosen (else 0)."""
    moldable = moldable_job_descriptions.c
    rows = tx.execute(
        select(jobs.c.job_id, jobs.c.start_time, moldable.moldable_walltime)
        .outerjoin(moldable_job_descriptions, moldable.moldable_id == jobs.c.assigned_moldable_job)
        .where(jobs.c.state.in_([state.value for state in states]))
        .order_by(jobs.c.job_id)
    )
    return [(number, start, walltime or 0) for number, start, walltime in rows]


def set_walltimes(tx: Tx, walltimes: Mapping[int, int]) -> None:
    """Update the walltimes of moldable alternatives."""
    new_walltimes = _WALLTIMES.table(tx.dialect.name)
    tx.execute(
        update(moldable_job_descriptions)
        .where(moldable_job_descriptions.c.moldable_id == new_walltimes.c.id)
        .values(moldable_walltime=new_walltimes.c.seconds),
        _WALLTIMES.parameters(tx, list(walltimes.items())),
    )
