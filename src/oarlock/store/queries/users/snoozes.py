"""Findings about jobs of a user that staff have set aside for some time."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select

from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import finding_snoozes


class Snooze(NamedTuple):
    """Findings of a rule about a user's jobs, set aside until an instant, why and by whom."""

    id: int
    date: int
    until: int
    rule: str
    user: str
    reason: str
    author: str


def add(tx: Tx, rule: str, user: str, *, until: int, reason: str, author: str, now: int) -> int:
    """Set findings aside, in place of an earlier time; return the number."""
    row = finding_snoozes.c
    same = (row.rule == rule) & (row.user_name == user)
    tx.execute(delete(finding_snoozes).where(same | (row.until <= now)))
    [number] = allocate_ids(tx, row.snooze_id, 1)
    values = {"snooze_id": number, "date": now, "until": until, "rule": rule, "user_name": user}
    tx.execute(insert(finding_snoozes), values | {"reason": reason, "author": author})
    return number


def current(tx: Tx, *, now: int) -> list[Snooze]:
    """Return what is set aside now, what ends first first."""
    query = select(finding_snoozes).where(finding_snoozes.c.until > now)
    return [Snooze(*row) for row in tx.execute(query.order_by(finding_snoozes.c.until, finding_snoozes.c.snooze_id))]


def remove(tx: Tx, number: int) -> bool:
    """Show findings again that were set aside; return whether they were."""
    return tx.execute(delete(finding_snoozes).where(finding_snoozes.c.snooze_id == number)).rowcount > 0
