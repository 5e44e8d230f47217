"""Pins: jobs whose file of measurements is neither thinned nor deleted."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select

from oarlock.store.engine.tx import Tx
from oarlock.store.tables import archive_pins


class ArchivePin(NamedTuple):
    """A job, who pinned its file, and when."""

    job_id: int
    user: str
    date: int


def add(tx: Tx, pin: ArchivePin) -> None:
    """Pin the file of a job; a pin that is there already is replaced."""
    remove(tx, pin.job_id)
    tx.execute(insert(archive_pins).values(job_id=pin.job_id, user_name=pin.user, date=pin.date))


def remove(tx: Tx, job_id: int) -> bool:
    """Remove the pin of a job; return whether there was one."""
    return tx.execute(delete(archive_pins).where(archive_pins.c.job_id == job_id)).rowcount > 0


def listed(tx: Tx, *, user: str | None = None) -> list[ArchivePin]:
    """Return the pins of a user, or of all, by job."""
    query = select(archive_pins.c.job_id, archive_pins.c.user_name, archive_pins.c.date).order_by(archive_pins.c.job_id)
    if user is not None:
        query = query.where(archive_pins.c.user_name == user)
    return [ArchivePin(*row) for row in tx.execute(query)]


def jobs(tx: Tx) -> frozenset[int]:
    """Return all jobs whose file is pinned."""
    return frozenset(tx.execute(select(archive_pins.c.job_id)).scalars())
