"""Notices to be sent: inserted in the transaction of their cause, deleted once they were sent."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

from sqlalchemy import Delete, delete, select

from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import notices

_COLUMNS = [column.name for column in notices.columns]
_PENDING = select(notices).order_by(notices.c.notice_id)


class PendingNotice(NamedTuple):
    """A notice: its job and user, how it is sent, and its text."""

    job: int
    user: str
    name: str
    how: str
    tag: str
    comment: str


def add(tx: Tx, new: Sequence[PendingNotice]) -> range:
    """Store notices until they are sent; return their numbers."""
    numbers = allocate_ids(tx, notices.c.notice_id, len(new))
    insert_rows(tx, "notices", _COLUMNS, [(number, *notice) for number, notice in zip(numbers, new, strict=True)])
    return numbers


def pending(tx: Tx) -> dict[int, PendingNotice]:
    """Return the notices that were not sent, oldest first."""
    return {row[0]: PendingNotice(*row[1:]) for row in tx.execute(_PENDING)}


def sent(tx: Tx, numbers: Collection[int]) -> None:
    """Delete notices that were sent."""
    tx.execute(_sent(tx.dialect.name), bind_ids(tx, numbers))


@cache
def _sent(engine: str) -> Delete:
    return delete(notices).where(id_in(engine, notices.c.notice_id))
