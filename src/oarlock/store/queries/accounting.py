"""Accounting: resource-seconds used and requested by user, project and queue, in windows of time."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Select, Update, case, delete, func, literal_column, select, update

from oarlock.model.accounting import shares
from oarlock.model.job import FINAL
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import accounting, assigned_resources, jobs, moldable_job_descriptions, resources


class AccountingRow(NamedTuple):
    """One row of the table: resource-seconds of a user, for a project, in a queue, in one window."""

    window_start: int
    window_stop: int
    user: str
    project: str
    queue: str
    kind: str  # USED or ASKED
    consumption: int


class Booking(NamedTuple):
    """What one job added to one row: the row with its new sum, and whether it is a new row."""

    job_id: int
    account: AccountingRow
    created: bool


def update_accounts(
    tx: Tx,
    *,
    window: int,
    most: int = 10_000,
    ids: Collection[int] | None = None,
    bookings: list[Booking] | None = None,
) -> int:
    """Add ended jobs that were not accounted yet (of these, or of all), `most` at once; return how many jobs were read.

    Jobs that never ran, or had no resource that computes, count nothing and are not looked at again. What is added
    is noted in `bookings`, where somebody wants to know.
    """
    engine = tx.dialect.name
    ended = tx.execute(_ended().limit(most)) if ids is None else tx.execute(_ended_of(engine, most), bind_ids(tx, ids))
    rows = ended.all()
    amounts = {
        row.job_id: [
            *_amounts(row, "USED", row.stop_time, window),
            *_amounts(row, "ASKED", row.start_time + row.walltime, window),
        ]
        for row in rows
        if row.computing and row.start_time and row.stop_time > row.start_time
    }
    if bookings is not None:
        bookings += _booked(tx, amounts)
    sums: Counter[AccountingRow] = Counter()
    for account, amount in chain.from_iterable(amounts.values()):
        sums[account] += amount
    _store(tx, sums)
    tx.execute(_check_off(engine), bind_ids(tx, [r.job_id for r in rows]))
    return len(rows)


def listed(tx: Tx, *, since: int = 0, until: int = 2**62, user: str | None = None) -> list[AccountingRow]:
    """Return the rows of windows that touch [since, until), of one user or of all, oldest first."""
    row = accounting.c
    query = (
        select(accounting).where(row.window_stop >= since, row.window_start < until).order_by(*accounting.primary_key)
    )
    return _accounts(tx, query if user is None else query.where(row.accounting_user == user))


def used(tx: Tx, *, since: int) -> dict[tuple[str, str], int]:
    """Return the resource-seconds that each (user, project) used in windows that began since then."""
    row = accounting.c
    query = (
        select(row.accounting_user, row.accounting_project, func.sum(row.consumption))
        .where(row.window_start >= since, row.consumption_type == "USED")
        .group_by(row.accounting_user, row.accounting_project)
    )
    return {(user, project): int(consumed) for user, project, consumed in tx.execute(query)}


def count(tx: Tx) -> int:
    """Count the rows."""
    return tx.execute(select(func.count()).select_from(accounting)).scalar_one()


def reinitialize(tx: Tx) -> None:
    """Delete all rows; the next `update_accounts` computes them again from all jobs."""
    tx.execute(delete(accounting))
    tx.execute(update(jobs).where(jobs.c.accounted == "YES").values(accounted="NO"))


def delete_before(tx: Tx, date: int) -> int:
    """Delete windows that ended before a date; return the number of rows."""
    return tx.execute(delete(accounting).where(accounting.c.window_stop < date)).rowcount


def _ended() -> Select[Any]:
    """Read jobs that are over and not accounted, with the walltime of what they got and how many resources."""
    moldable, assigned = moldable_job_descriptions, assigned_resources
    # A resource that was removed since is taken for one that computes.
    computes = func.coalesce(resources.c.type, DEFAULT_TYPE) == DEFAULT_TYPE
    return (
        select(
            jobs.c.job_id,
            jobs.c.job_user,
            jobs.c.project,
            jobs.c.queue_name,
            jobs.c.start_time,
            jobs.c.stop_time,
            func.coalesce(moldable.c.moldable_walltime, 0).label("walltime"),
            func.count(assigned.c.resource_id).label("resources"),
            func.sum(case((assigned.c.resource_id.is_(None), 0), (computes, 1), else_=0)).label("computing"),
        )
        .select_from(jobs)
        .outerjoin(moldable, moldable.c.moldable_id == jobs.c.assigned_moldable_job)
        .outerjoin(assigned, assigned.c.moldable_job_id == jobs.c.assigned_moldable_job)
        .outerjoin(resources, resources.c.resource_id == assigned.c.resource_id)
        .where(jobs.c.accounted == literal_column("'NO'"), jobs.c.state.in_([state.value for state in FINAL]))
        .group_by(jobs.c.job_id, moldable.c.moldable_walltime)
        .order_by(jobs.c.job_id)
    )


@cache
def _ended_of(engine: str, most: int) -> Select[Any]:
    return _ended().limit(most).where(id_in(engine, jobs.c.job_id))


@cache
def _check_off(engine: str) -> Update:
    return update(jobs).where(id_in(engine, jobs.c.job_id)).values(accounted="YES")


def _amounts(job: Any, kind: str, stop: int, window: int) -> Iterator[tuple[AccountingRow, int]]:
    """Yield what a job adds, a row (with a sum of 0) and an amount each."""
    for begin, end, seconds in shares(job.start_time, stop, window):
        yield AccountingRow(begin, end, job.job_user, job.project, job.queue_name, kind, 0), seconds * job.resources


def _booked(tx: Tx, amounts: Mapping[int, Sequence[tuple[AccountingRow, int]]]) -> list[Booking]:
    """Return what jobs are about to add, one after the other, with the sums that follow from it."""
    begins = [account.window_start for account, _ in chain.from_iterable(amounts.values())]
    row = accounting.c
    between = (row.window_start >= min(begins, default=0), row.window_start <= max(begins, default=-1))
    sums = {a._replace(consumption=0): a.consumption for a in _accounts(tx, select(accounting).where(*between))}
    bookings = []
    for job_id, parts in amounts.items():
        for account, amount in parts:
            created = account not in sums
            sums[account] = sums.get(account, 0) + amount
            bookings.append(Booking(job_id, account._replace(consumption=sums[account]), created))
    return bookings


def _accounts(tx: Tx, query: Select[Any]) -> list[AccountingRow]:
    return [AccountingRow(*row) for row in tx.execute(query)]


def _store(tx: Tx, sums: Counter[AccountingRow]) -> None:
    """Add to the rows that are there, and make those that are not."""
    if not sums:
        return
    columns = [column.name for column in accounting.columns]
    tx.execute(
        _add_up(tx.dialect.name),
        [dict(zip(columns, (*account[:-1], consumed), strict=True)) for account, consumed in sums.items()],
    )


@cache
def _add_up(engine: str) -> Any:
    insert: Any = import_module(f"sqlalchemy.dialects.{engine}").insert(accounting)  # the other one is not loaded
    return insert.on_conflict_do_update(
        index_elements=list(accounting.primary_key),
        set_={"consumption": accounting.c.consumption + insert.excluded.consumption},
    )
