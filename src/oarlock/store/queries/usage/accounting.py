"""Accounting: resource-seconds used and requested in windows of time."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from msgspec import structs
from sqlalchemy import Select, Update, bindparam, case, delete, func, literal_column, select, update

from oarlock.model.job import FINAL
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.snapshot import Queue, Usage
from oarlock.store.engine import facts
from oarlock.store.engine.rows import BoundRows, add_up, bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import (
    accounting,
    assigned_resources,
    jobs,
    moldable_job_descriptions,
    resources,
)
from oarlock.store.tables.columns import TEXT_BY_CODE_POINT


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


_COMPARED = "accounting is compared with jobs from"


def compare_accounts_from(tx: Tx, date: int) -> None:
    """Note that the jobs of accounting windows before an instant are not all in the database."""
    facts.put(tx, _COMPARED, str(max(date, accounts_compared_from(tx))))


def accounts_compared_from(tx: Tx) -> int:
    """Return the instant from which all jobs of the accounting windows are in the database."""
    return int(facts.get(tx, _COMPARED) or 0)


def latest_window(tx: Tx) -> int:
    """Return when the last window ends; 0 if there is none."""
    return int(tx.execute(select(func.max(accounting.c.window_stop))).scalar() or 0)


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
    for begin, end, seconds in window_shares(job.start_time, stop, window):
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
        add_up(tx.dialect.name, accounting),
        [dict(zip(columns, (*account[:-1], consumed), strict=True)) for account, consumed in sums.items()],
    )


_HALF_LIVES = 20  # after so many, a millionth is left
_WHO = (accounting.c.queue_name, accounting.c.accounting_user, accounting.c.window_start)
_USED = (
    select(*_WHO, func.sum(accounting.c.consumption))
    .where(
        accounting.c.consumption_type == "USED",
        accounting.c.window_start >= bindparam("since"),
        accounting.c.window_start < bindparam("until"),
    )
    .group_by(*_WHO)
    .order_by(*_WHO)
)


def with_decayed_usage(tx: Tx, usage: Mapping[str, Usage], *, half_life: int, now: int) -> dict[str, Usage]:
    """Add the decayed usage of every queue's users: a row counts half after a half-life, a quarter after two."""
    used: dict[str, dict[str, float]] = {}
    for queue, user, start, consumed in tx.execute(_USED, {"since": now - _HALF_LIVES * half_life, "until": now}):
        mine = used.setdefault(queue, {})
        mine[user] = mine.get(user, 0.0) + int(consumed) * 0.5 ** ((now - start) / half_life)
    return {
        queue: structs.replace(usage.get(queue, Usage()), decayed_by_user=used.get(queue, {}))
        for queue in sorted({*usage, *used})
    }


_RECENT = 2
_PEOPLE = BoundRows("people", person=TEXT_BY_CODE_POINT)


def recent_runs(tx: Tx, users: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Return how long the last two jobs of users ran: of those that are over, the ones that were submitted last."""
    rows = tx.execute(_last_runs(tx.dialect.name), _PEOPLE.parameters(tx, [(user,) for user in sorted(users)]))
    runs: defaultdict[str, list[int]] = defaultdict(list)
    for user, start, stop in rows:
        runs[user].append(max(0, stop - start))
    return {user: tuple(seconds) for user, seconds in runs.items()}


@cache
def _last_runs(engine: str) -> Select[Any]:
    people, others = _PEOPLE.table(engine), jobs.alias("others")
    last = (
        select(others.c.job_id)
        .where(
            others.c.job_user == people.c.person,
            others.c.state.in_([state.value for state in FINAL]),
            others.c.start_time > 0,
        )
        .order_by(others.c.job_id.desc())
        .limit(_RECENT)
        .correlate(people)
    )
    return (
        select(people.c.person, jobs.c.start_time, jobs.c.stop_time)
        .join_from(people, jobs, jobs.c.job_id.in_(last))
        .order_by(people.c.person, jobs.c.job_id.desc())
    )


def window_shares(start: int, stop: int, window: int) -> Iterator[tuple[int, int, int]]:
    """Split [start, stop) at multiples of `window`: first and last second of each window, and the seconds in it."""
    while start < stop:
        begin = start - start % window
        end = min(stop, begin + window)
        yield begin, begin + window - 1, end - start
        start = end


def all_usage(tx: Tx, served: Iterable[Queue], *, karma_window: int, half_life: int, now: int) -> dict[str, Usage]:
    """Read what was used: in the window, and before it where a queue weighs its jobs."""
    usage = usage_by_queue(tx, since=now - karma_window, until=now)
    if half_life and any(queue.weighs for queue in served):
        return with_decayed_usage(tx, usage, half_life=half_life, now=now)
    return usage


def usage_by_queue(tx: Tx, *, since: int, until: int) -> dict[str, Usage]:
    """Sum what every queue's users and projects used and asked for in windows that begin in [since, until)."""
    rows = tx.execute(_usage_since(), {"since": since, "until": until})
    usage: defaultdict[str, _UsageSums] = defaultdict(_UsageSums)
    for queue, kind, user, project, consumed in rows:
        usage[queue].add(kind, user, project, int(consumed))
    return {queue: sums.usage() for queue, sums in sorted(usage.items())}


@cache
def _usage_since() -> Select[Any]:
    row = accounting.c
    who = (row.queue_name, row.consumption_type, row.accounting_user, row.accounting_project)
    windows = (row.window_start >= bindparam("since"), row.window_start < bindparam("until"))
    return select(*who, func.sum(row.consumption)).where(*windows).group_by(*who)


class _UsageSums:
    """Accumulates the usage of one queue."""

    def __init__(self) -> None:
        self._users = {kind: defaultdict[str, int](int) for kind in ("USED", "ASKED")}
        self._projects = {kind: defaultdict[str, int](int) for kind in ("USED", "ASKED")}

    def add(self, kind: str, user: str, project: str, consumed: int) -> None:
        self._users[kind][user] += consumed
        self._projects[kind][project] += consumed

    def usage(self) -> Usage:
        used, requested = self._users["USED"], self._users["ASKED"]
        return Usage(
            used=sum(used.values()),
            requested=sum(requested.values()),
            used_by_user=dict(used),
            requested_by_user=dict(requested),
            used_by_project=dict(self._projects["USED"]),
        )
