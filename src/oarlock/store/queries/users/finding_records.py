"""What was done about findings: set aside by staff for some time, or told to users before their job is ended."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import delete, insert, select

from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import finding_snoozes, finding_warnings


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


def warnings_of_jobs(tx: Tx, ids: Collection[int]) -> Mapping[tuple[int, str], dict[int, int]]:
    """Return when jobs were warned, by job and rule, and then by the idle minutes of the warning."""
    row = finding_warnings.c
    warned: defaultdict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    query = select(row.job_id, row.rule, row.idle_minutes, row.date).where(id_in(tx.dialect.name, row.job_id))
    for job, rule, minutes, at in tx.execute(query, bind_ids(tx, ids)):
        warned[job, rule][minutes] = at
    return warned


def put_warning(tx: Tx, job: int, rule: str, minutes: int, *, at: int) -> None:
    """Store a warning; it takes the place of the one of an earlier idle stretch."""
    row = finding_warnings.c
    tx.execute(delete(finding_warnings).where(row.job_id == job, row.rule == rule, row.idle_minutes == minutes))
    values = {"job_id": job, "rule": rule, "idle_minutes": minutes, "date": at}
    tx.execute(insert(finding_warnings), values)
