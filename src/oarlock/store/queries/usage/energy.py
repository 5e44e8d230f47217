"""The energy ledger: what the meters of nodes counted by day, and the shares of jobs. Amounts are millijoules."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, delete, func, literal, literal_column, select

from oarlock.store.engine.rows import add_up, bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.tables import agent_jobs, energy_days, energy_shares, jobs


class MeteredDay(NamedTuple):
    """What a node's meter counted on a day by one method, in how many seconds, and up to which millisecond."""

    node: str
    day: int
    method: str
    meter: int
    idle: int
    not_assigned: int
    seconds: float
    until: int


class BookedDay(NamedTuple):
    """What is added to a day: what its meter counted, of that the energy of each job, and for how long it was there."""

    metered: MeteredDay
    jobs: Mapping[int, int]
    seconds: Mapping[int, float]


class DayShare(NamedTuple):
    """What a job has of the energy of all its nodes on a day, and in how many seconds of theirs it was measured."""

    job_id: int
    day: int
    energy: int
    seconds: float


class SharesOfGroup(NamedTuple):
    """The energy of all jobs of a group; `group` has a value for each column it was asked by."""

    group: tuple[str | int, ...]
    energy: int
    jobs: int


class MeterOfGroup(NamedTuple):
    """What meters counted for a group of nodes and days."""

    group: tuple[str | int, ...]
    methods: tuple[str, ...]
    meter: int
    idle: int
    not_assigned: int
    seconds: float


def book(tx: Tx, booked: Sequence[BookedDay]) -> None:
    """Add to what was booked, in one transaction: what meters counted and what is divided stay equal.

    What was booked before, and is told again since its answer was lost, counts once.
    """
    before = _booked_days(tx, {day.metered.day for day in booked})
    new = [day for day in booked if before.get(day.metered[:3], 0) < day.metered.until]
    for table, values in ((energy_days, [day.metered for day in new]), (energy_shares, _share_rows(new))):
        if values:
            columns = [column.name for column in table.columns]
            statement = add_up(tx.dialect.name, table, latest="until_ms")
            tx.execute(statement, [dict(zip(columns, row, strict=True)) for row in values])


def forget_first_day(tx: Tx, before: int, *, most: int) -> int:
    """Delete what nodes took on the oldest day, and the jobs' shares of it, if it is before an instant.

    Of `most` nodes at once, all of a node together: what is left adds up. Return how many rows these were.
    """
    days = energy_days.c
    oldest = tx.execute(select(func.min(days.day)).where(days.day < before)).scalar()
    if oldest is None:
        return 0
    nodes = select(days.network_address).distinct().where(days.day == oldest).order_by(days.network_address)
    last = tx.execute(nodes.limit(most)).scalars().all()[-1]
    return sum(
        tx.execute(delete(table).where(table.c.day == oldest, table.c.network_address <= last)).rowcount
        for table in (energy_shares, energy_days)
    )


def _share_rows(booked: Iterable[BookedDay]) -> list[tuple[str, int, int, int, float]]:
    """Add up what jobs have by several methods; one that was measured and has nothing of it yet has a share of 0."""
    shares: dict[tuple[str, int, int], tuple[int, float]] = {}
    for (node, day, *_), energy, seconds in booked:
        for job in energy.keys() | seconds.keys():
            before = shares.get((node, day, job), (0, 0.0))
            shares[node, day, job] = before[0] + energy.get(job, 0), before[1] + seconds.get(job, 0.0)
    return [(*where, *amounts) for where, amounts in sorted(shares.items())]


def _booked_days(tx: Tx, days: Collection[int]) -> dict[tuple[str, int, str], int]:
    """Return up to which millisecond these days are booked, by node, day and method."""
    table = energy_days.c
    query = select(table.network_address, table.day, table.method, table.until_ms).where(table.day.in_(days))
    return {(node, day, method): until for node, day, method, until in tx.execute(query)}


def booked_until(tx: Tx, *, since: int) -> dict[str, int]:
    """Return up to which millisecond the energy of each node is booked; of nodes that were booked since a day."""
    table = energy_days.c
    query = select(table.network_address, func.max(table.until_ms)).where(table.day >= since)
    return {node: int(until) for node, until in tx.execute(query.group_by(table.network_address))}


def of_jobs(tx: Tx, ids: Collection[int]) -> dict[int, int]:
    """Return the energy of jobs; those of which nothing was booked are not in the answer."""
    return {job_id: int(energy) for job_id, energy in tx.execute(_of_jobs(tx.dialect.name), bind_ids(tx, ids))}


@cache
def _of_jobs(engine: str) -> Select[Any]:
    column = energy_shares.c.job_id
    return select(column, func.sum(energy_shares.c.energy_mj)).where(id_in(engine, column)).group_by(column)


def days_of_jobs(tx: Tx, ids: Collection[int]) -> list[DayShare]:
    """Return the energy of jobs by day."""
    rows = tx.execute(_days_of_jobs(tx.dialect.name), bind_ids(tx, ids))
    return [DayShare(job_id, day, int(amount), float(seconds)) for job_id, day, amount, seconds in rows]


@cache
def _days_of_jobs(engine: str) -> Select[Any]:
    share = energy_shares.c
    return (
        select(share.job_id, share.day, func.sum(share.energy_mj), func.sum(share.seconds))
        .where(id_in(engine, share.job_id))
        .group_by(share.job_id, share.day)
        .order_by(share.job_id, share.day)
    )


def methods_of_jobs(tx: Tx, ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Return by which methods the nodes of jobs were measured on their days."""
    methods: dict[int, list[str]] = {}
    for job_id, method in tx.execute(_methods_of_jobs(tx.dialect.name), bind_ids(tx, ids)):
        methods.setdefault(job_id, []).append(method)
    return {job_id: tuple(names) for job_id, names in methods.items()}


@cache
def _methods_of_jobs(engine: str) -> Select[Any]:
    share, meter = energy_shares.c, energy_days.c
    same = (meter.network_address == share.network_address) & (meter.day == share.day)
    return (
        select(share.job_id, meter.method)
        .join_from(energy_shares, energy_days, same)
        .where(id_in(engine, share.job_id))
        .distinct()
        .order_by(share.job_id, meter.method)
    )


JOB_GROUPS: dict[str, ColumnElement[Any]] = {
    "node": energy_shares.c.network_address,
    "day": energy_shares.c.day,
    "job": energy_shares.c.job_id,
    "user": func.coalesce(jobs.c.job_user, agent_jobs.c.user_name, literal_column("''")),
    "project": func.coalesce(jobs.c.project, agent_jobs.c.account, literal_column("''")),
}
"""By what the energy of jobs can be told."""

METER_GROUPS: dict[str, ColumnElement[Any]] = {"node": energy_days.c.network_address, "day": energy_days.c.day}
"""By what the energy of meters can be told."""


def shares_by(
    tx: Tx, groups: Sequence[str], *, since: int, until: int, sight: JobSight | None = None, most: int
) -> list[SharesOfGroup]:
    """Add up shares of days in [since, until) by groups, the largest first; `sight`: only of those jobs."""
    columns = [JOB_GROUPS[group] for group in groups] or [literal("")]
    energy = func.sum(energy_shares.c.energy_mj)
    query = (
        select(*columns, energy, func.count(energy_shares.c.job_id.distinct()))
        .where(energy_shares.c.day >= since, energy_shares.c.day < until)
        .group_by(*columns)
        .order_by(energy.desc(), *columns)
        .limit(most)
    )
    if sight is not None or {"user", "project"} & set(groups):
        # Outer: a database that was restored lacks jobs whose energy was booked again.
        query = query.join_from(energy_shares, jobs, jobs.c.job_id == energy_shares.c.job_id, isouter=True)
        query = query.join(agent_jobs, agent_jobs.c.number == energy_shares.c.job_id, isouter=True)
    if sight is not None:
        query = query.where(sight.holds(JOB_GROUPS["user"], JOB_GROUPS["project"]))
    width = len(groups)
    return [SharesOfGroup(tuple(row[:width]), int(row[-2]), int(row[-1])) for row in tx.execute(query)]


def meters_by(tx: Tx, groups: Sequence[str], *, since: int, until: int) -> list[MeterOfGroup]:
    """Add up what meters counted on days in [since, until) by groups, in their order."""
    columns = [METER_GROUPS[group] for group in groups]
    sums = [func.sum(energy_days.c[name]) for name in ("meter_mj", "idle_mj", "not_assigned_mj", "seconds")]
    query = (
        select(energy_days.c.method, *sums, *columns)
        .where(energy_days.c.day >= since, energy_days.c.day < until)
        .group_by(energy_days.c.method, *columns)
        .order_by(*columns, energy_days.c.method)
    )
    return list(_merge_methods(tx.execute(query)))


def _merge_methods(rows: Iterable[Any]) -> Iterable[MeterOfGroup]:
    merged: dict[tuple[str | int, ...], MeterOfGroup] = {}
    for method, meter, idle, not_assigned, seconds, *group in rows:
        key = tuple(group)
        so_far = merged.get(key, MeterOfGroup(key, (), 0, 0, 0, 0.0))
        merged[key] = MeterOfGroup(
            key,
            (*so_far.methods, method),
            so_far.meter + int(meter),
            so_far.idle + int(idle),
            so_far.not_assigned + int(not_assigned),
            so_far.seconds + float(seconds),
        )
    return merged.values()
