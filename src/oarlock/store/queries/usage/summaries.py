"""Summaries: what each job really used, one row a job, and the sums of users, projects and queues by day."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Delete,
    Select,
    Update,
    case,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from oarlock.model.job import FINAL
from oarlock.model.summary import DayUsage
from oarlock.store.engine.rows import add_up, bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs as foreign_jobs
from oarlock.store.queries.job.agent_jobs import AgentJob
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.tables import (
    agent_jobs,
    job_summaries,
    jobs,
    moldable_job_descriptions,
    software_days,
    usage_days,
)

_FINAL = frozenset(state.value for state in FINAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was measured of a whole job. Absent is not zero; `detail` is JSON for what has no column.

    `core_seconds` and `gpu_seconds` are held, `cpu_seconds` and `gpu_busy_seconds` used. `booked` is 0 until the sums
    of its days have what its nodes reported.
    """

    job_id: int
    date: int
    run_seconds: float | None = None
    walltime: int | None = None
    core_seconds: float | None = None
    cpu_seconds: float | None = None
    memory_asked_bytes: int | None = None
    memory_own_mean_bytes: int | None = None
    memory_own_peak_bytes: int | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    gpu_seconds: float | None = None
    gpu_busy_seconds: float | None = None
    energy_joules: float | None = None
    samples: int = 0
    coverage: float | None = None
    booked: int = 0
    detail: str = "{}"


class SummarisedJob(NamedTuple):
    """What a summary needs to know of its job. `stop` is 0 while it is not over, `walltime` where it is not known."""

    id: int
    user: str
    project: str
    queue: str
    start: int
    stop: int
    walltime: int
    ended: bool


class DayGroup(NamedTuple):
    """Whose sums of a day (epoch seconds at midnight UTC)."""

    day: int
    user: str
    project: str
    queue: str


class UsageOfGroup(NamedTuple):
    """Sums of days; `group` has a value for each column it was asked by."""

    group: tuple[str | int, ...]
    usage: DayUsage


_COLUMNS = [column.name for column in job_summaries.columns]
_VALUES = attrgetter(*_COLUMNS)
_SUMS = DayUsage.__struct_fields__


def save(tx: Tx, rows: Sequence[Summary]) -> None:
    """Store summaries; the one that a job may have is replaced."""
    tx.execute(_delete_of(tx.dialect.name), bind_ids(tx, [summary.job_id for summary in rows]))
    insert_rows(tx, "job_summaries", _COLUMNS, [_VALUES(summary) for summary in rows])


def of_jobs(tx: Tx, ids: Collection[int]) -> list[Summary]:
    """Return the summaries of jobs, by number; jobs without one are not in the answer."""
    return [Summary(**row._mapping) for row in tx.execute(_of_jobs(tx.dialect.name), bind_ids(tx, ids))]


def details_of(tx: Tx, ids: Collection[int]) -> dict[int, str]:
    """Return the details of the summaries that jobs have."""
    return dict(tuple(row) for row in tx.execute(_details_of(tx.dialect.name), bind_ids(tx, ids)))


def not_booked(tx: Tx, most: int) -> list[int]:
    """Return jobs that are over, or had an attempt that is, and whose sums lack what their nodes reported."""
    query = select(job_summaries.c.job_id).where(job_summaries.c.booked == literal_column("0"))
    return list(tx.execute(query.order_by(job_summaries.c.job_id).limit(most)).scalars())


def reopen_ended(tx: Tx, ids: Collection[int]) -> None:
    """Have the summaries of those of these jobs that are over written again with the next ones that are not booked."""
    tx.execute(_reopen_ended(tx.dialect.name), bind_ids(tx, ids))


@cache
def _reopen_ended(engine: str) -> Update:
    over = select(jobs.c.job_id).where(id_in(engine, jobs.c.job_id), jobs.c.state.in_(sorted(_FINAL)))
    elsewhere = select(agent_jobs.c.number).where(id_in(engine, agent_jobs.c.number), agent_jobs.c.ended > 0)
    return update(job_summaries).where(job_summaries.c.job_id.in_(over.union_all(elsewhere))).values(booked=0)


def summarised_jobs(tx: Tx, ids: Collection[int]) -> list[SummarisedJob]:
    """Return what summaries need to know of these jobs; numbers that no job has are left out."""
    rows = tx.execute(_summarised_jobs(tx.dialect.name), bind_ids(tx, ids))
    own = [SummarisedJob._make((*facts, state in _FINAL)) for *facts, state in rows]
    return own + [_of_agent(job) for _, job in sorted(foreign_jobs.by_number(tx, ids).items())]


def _of_agent(job: AgentJob) -> SummarisedJob:
    """Describe a job of another resource manager. It began when a node first reported it; its walltime is not known."""
    return SummarisedJob(
        job.number, job.user, job.account, foreign_jobs.queue_of(job.cluster), job.first_seen, job.ended, 0,
        bool(job.ended),
    )  # fmt: skip


def add_days(tx: Tx, sums: Mapping[DayGroup, DayUsage]) -> None:
    """Add to the sums of days."""
    if not sums:
        return
    columns = [column.name for column in usage_days.columns]
    amounts = attrgetter(*_SUMS)
    rows = [dict(zip(columns, (*group, *amounts(usage)), strict=True)) for group, usage in sums.items()]
    tx.execute(add_up(tx.dialect.name, usage_days), rows)


DAY_GROUPS: dict[str, ColumnElement[Any]] = {
    "day": usage_days.c.day,
    "user": usage_days.c.user_name,
    "project": usage_days.c.project,
    "queue": usage_days.c.queue_name,
}
"""By what the sums of days can be told."""


def forget_summaries(tx: Tx, before: int, *, most: int) -> int:
    """Delete summaries that were last written before an instant, those of the oldest jobs; return how many.

    Of the first `most` jobs, ours and others': nothing tells by date, and who looks often enough sees all of them.
    """
    row = job_summaries.c
    firsts = [
        tx.execute(
            select(row.job_id, row.date).where(row.job_id >= first, row.job_id < end).order_by(row.job_id).limit(most)
        )
        for first, end in ((0, foreign_jobs.FIRST_NUMBER), (foreign_jobs.FIRST_NUMBER, 1 << 62))
    ]
    old = [job for rows in firsts for job, date in rows if date < before]
    if old:
        tx.execute(_delete_of(tx.dialect.name), bind_ids(tx, old))
    return len(old)


def forget_first_day(tx: Tx, before: int) -> int:
    """Delete the sums of the oldest day, of users and of software, if it is before an instant; return how many."""
    deleted = 0
    for table in (usage_days, software_days):
        oldest = tx.execute(select(func.min(table.c.day)).where(table.c.day < before)).scalar()
        if oldest is not None:
            deleted += tx.execute(delete(table).where(table.c.day == oldest)).rowcount
    return deleted


def usage_by(
    tx: Tx,
    groups: Sequence[str],
    *,
    since: int,
    until: int,
    user: str | None = None,
    project: str | None = None,
    sight: JobSight | None = None,
    most: int,
) -> list[UsageOfGroup]:
    """Add up the days in [since, until) by groups, in their order; of one user or project, if one is named.

    `sight`: only of those jobs.
    """
    columns = [DAY_GROUPS[group] for group in groups]
    sums = [func.sum(usage_days.c[name]) for name in _SUMS]
    query = select(*(columns or [literal("")]), *sums).where(usage_days.c.day >= since, usage_days.c.day < until)
    if columns:
        query = query.group_by(*columns).order_by(*columns)
    if user is not None:
        query = query.where(usage_days.c.user_name == user)
    if project is not None:
        query = query.where(usage_days.c.project == project)
    if sight is not None:
        query = query.where(sight.holds(usage_days.c.user_name, usage_days.c.project))
    width = max(len(groups), 1)
    return [
        UsageOfGroup(tuple(row[: len(groups)]), _usage(row[width:]))
        for row in tx.execute(query.limit(most))
        if row[width] is not None
    ]


class WastefulJob(NamedTuple):
    """A job and the core-seconds that it held and did not use."""

    id: int
    user: str
    project: str
    name: str | None
    start: int
    stop: int
    core_seconds: float
    cpu_seconds: float
    energy_joules: float | None


def most_wasteful(
    tx: Tx,
    since: int,
    until: int,
    *,
    user: str | None = None,
    project: str | None = None,
    most: int,
    by_energy: bool = False,
) -> list[WastefulJob]:
    """Return the jobs that ended in [since, until) with most core-seconds held and not used, worst first.

    `by_energy`: with most energy, of which they get the part of the cores that they did not use.
    """
    held, used = job_summaries.c.core_seconds, job_summaries.c.cpu_seconds
    lost = job_summaries.c.energy_joules * (held - used) / held if by_energy else held - used
    query = (
        select(
            jobs.c.job_id, jobs.c.job_user, jobs.c.project, jobs.c.job_name, jobs.c.start_time, jobs.c.stop_time,
            held, used, job_summaries.c.energy_joules,
        )
        .join(job_summaries, job_summaries.c.job_id == jobs.c.job_id)
        .where(jobs.c.stop_time >= since, jobs.c.stop_time < until, held.is_not(None), used.is_not(None))
        .order_by(lost.desc(), jobs.c.job_id)
        .limit(most)
    )  # fmt: skip
    if by_energy:
        query = query.where(held > 0, job_summaries.c.energy_joules.is_not(None))
    if user is not None:
        query = query.where(jobs.c.job_user == user)
    if project is not None:
        query = query.where(jobs.c.project == project)
    return [WastefulJob(*row) for row in tx.execute(query)]


UNMEASURED = -1


def count_by_use(
    tx: Tx,
    since: int,
    *,
    bins: int,
    most: int,
    user: str | None = None,
    project: str | None = None,
    sight: JobSight | None = None,
) -> dict[int, tuple[int, float]]:
    """Count the jobs that ended since an instant by the part of their cores that they used, in equal bins.

    Return for each bin that has some the number of jobs and the core-seconds that they held; those that were not
    measured are in the bin `UNMEASURED`. Only the newest `most` are looked at.
    """
    last = jobs.c.job_id if user is not None else jobs.c.stop_time  # what an index has in order
    newest = select(jobs.c.job_id).where(jobs.c.stop_time >= since).order_by(last.desc()).limit(most)
    if user is not None:
        newest = newest.where(jobs.c.job_user == user)
    if project is not None:
        newest = newest.where(jobs.c.project == project)
    if sight is not None:
        newest = newest.where(sight.holds(jobs.c.job_user, jobs.c.project))
    chosen = newest.subquery()
    held, used = job_summaries.c.core_seconds, job_summaries.c.cpu_seconds
    steps = [(used * bins < held * upper, upper - 1) for upper in range(1, bins)]
    place = case((or_(held.is_(None), held <= 0, used.is_(None)), UNMEASURED), *steps, else_=bins - 1)
    query = (
        select(place, func.count(), func.coalesce(func.sum(held), 0))
        .select_from(chosen)
        .outerjoin(job_summaries, job_summaries.c.job_id == chosen.c.job_id)
        .group_by(place)
    )
    return {int(n): (int(count), float(amount)) for n, count, amount in tx.execute(query)}


def _usage(sums: Sequence[Any]) -> DayUsage:
    jobs_begun, *amounts = sums
    return DayUsage(jobs=int(jobs_begun), **dict(zip(_SUMS[1:], map(float, amounts), strict=True)))


@cache
def _of_jobs(engine: str) -> Select[Any]:
    return select(job_summaries).where(id_in(engine, job_summaries.c.job_id)).order_by(job_summaries.c.job_id)


@cache
def _details_of(engine: str) -> Select[Any]:
    row = job_summaries.c
    return select(row.job_id, row.detail).where(id_in(engine, row.job_id))


@cache
def _delete_of(engine: str) -> Delete:
    return delete(job_summaries).where(id_in(engine, job_summaries.c.job_id))


@cache
def _summarised_jobs(engine: str) -> Select[Any]:
    chosen = moldable_job_descriptions
    return (
        select(
            jobs.c.job_id,
            jobs.c.job_user,
            jobs.c.project,
            jobs.c.queue_name,
            jobs.c.start_time,
            jobs.c.stop_time,
            func.coalesce(chosen.c.moldable_walltime, 0),
            jobs.c.state,
        )
        .select_from(jobs)
        .outerjoin(chosen, chosen.c.moldable_id == jobs.c.assigned_moldable_job)
        .where(id_in(engine, jobs.c.job_id))
        .order_by(jobs.c.job_id)
    )
