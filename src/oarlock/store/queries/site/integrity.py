"""What `oarlock check` reads: the records of jobs, some thousands at a time, and facts about the whole database."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Select, and_, func, literal_column, select

from oarlock.model.job import JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage.accounting import AccountingRow, window_shares
from oarlock.store.queries.usage.history import StateInterval
from oarlock.store.tables import (
    assigned_resources,
    attempt_nodes,
    attempts,
    event_logs,
    frag_jobs,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
    resources,
)
from oarlock.store.tables.site import EVENTS_BESIDE_USUAL_ENDS

AT_ONCE = 5000
"""Jobs that are read together: enough to be quick, few enough to fit into memory whatever the history."""


class CheckedJob(NamedTuple):
    """A job as its row has it: what the invariants are about, and nothing that is long."""

    id: int
    state: JobState
    user: str
    project: str
    queue: str
    reservation: str
    submitted: int
    start: int
    stop: int
    assigned: int
    accounted: bool
    types: tuple[str, ...]


class CheckedAttempt(NamedTuple):
    """An attempt: whether and when its command began, and when it was closed."""

    number: int
    started_us: int | None
    closed_us: int | None


class JobRecord(NamedTuple):
    """Everything about one job.

    `wanted`: the fewest resources that its alternative asks for; None if it is open. `copies`: jobs that were submitted
    in its place.
    """

    job: CheckedJob
    stays: list[StateInterval]
    attempts: list[CheckedAttempt]
    resources: list[int]
    held: int
    owner: int | None
    walltime: int
    wanted: int | None
    kill: str | None
    events: list[str]
    requires: list[int]
    copies: int


def count_jobs(tx: Tx) -> int:
    """Count the jobs."""
    return tx.execute(select(func.count()).select_from(jobs)).scalar_one()


def job_records(tx: Tx) -> Iterator[list[JobRecord]]:
    """Yield all jobs with all that belongs to them, by number, some thousands at a time."""
    last, copies = 0, dict(tuple(row) for row in tx.execute(_COPIES))
    while numbers := list(tx.execute(_next_numbers(last)).scalars()):
        yield _records(tx, numbers[0], numbers[-1], copies)
        last = numbers[-1]


def _next_numbers(after: int) -> Select[Any]:
    return select(jobs.c.job_id).where(jobs.c.job_id > after).order_by(jobs.c.job_id).limit(AT_ONCE)


_COPIES = (
    select(jobs.c.resubmit_job_id, func.count()).where(jobs.c.resubmit_job_id > 0).group_by(jobs.c.resubmit_job_id)
)
_NO_ALTERNATIVE: tuple[int | None, int] = (None, 0)


def _records(tx: Tx, first: int, last: int, copies: Mapping[int, int]) -> list[JobRecord]:
    def within(column: Column[int]) -> Any:
        return column.between(first, last)

    types = texts(tx, select(job_types.c.job_id, job_types.c.type).where(within(job_types.c.job_id)))
    stays = _stays(tx, within(job_state_logs.c.job_id))
    tries = _tries(tx, within(attempts.c.job_id))
    noted = texts(tx, select(event_logs.c.job_id, event_logs.c.type).where(within(event_logs.c.job_id)))
    given = _given(tx, within(jobs.c.job_id))
    holding = dict(tuple(row) for row in tx.execute(_holding(within(moldable_job_descriptions.c.moldable_job_id))))
    chosen: dict[int, tuple[int | None, int]] = {
        number: (owner, walltime) for number, owner, walltime in tx.execute(_chosen(within(jobs.c.job_id))).all()
    }
    wanted = _wanted(tx, within(jobs.c.job_id))
    frag = frag_jobs.c
    kills = dict(
        tuple(row) for row in tx.execute(select(frag.frag_id_job, frag.frag_state).where(within(frag.frag_id_job)))
    )
    required = numbers_by(
        tx,
        select(job_dependencies.c.job_id, job_dependencies.c.job_id_required).where(within(job_dependencies.c.job_id)),
    )
    return [
        JobRecord(
            job,
            stays.get(job.id, []),
            tries.get(job.id, []),
            given.get(job.id, []),
            holding.get(job.id, 0),
            *chosen.get(job.id, _NO_ALTERNATIVE),
            wanted.get(job.id),
            kills.get(job.id),
            noted.get(job.id, []),
            required.get(job.id, []),
            copies.get(job.id, 0),
        )
        for job in _jobs(tx, within(jobs.c.job_id), types)
    ]


def _jobs(tx: Tx, within: Any, types: dict[int, list[str]]) -> list[CheckedJob]:
    job = jobs.c
    rows = tx.execute(
        select(
            job.job_id, job.state, job.job_user, job.project, job.queue_name, job.reservation, job.submission_time,
            job.start_time, job.stop_time, job.assigned_moldable_job, job.accounted,
        ).where(within).order_by(job.job_id)
    ).all()  # fmt: skip
    return [
        CheckedJob(row[0], _STATES[row[1]], *row[2:10], row[10] == "YES", tuple(types.get(row[0], ()))) for row in rows
    ]


_STATES = {state.value: state for state in JobState}


def texts(tx: Tx, query: Select[Any]) -> dict[int, list[str]]:
    grouped: defaultdict[int, list[str]] = defaultdict(list)
    for number, word in tx.execute(query).all():
        grouped[number].append(word)
    return dict(grouped)


def numbers_by(tx: Tx, query: Select[Any]) -> dict[int, list[int]]:
    grouped: defaultdict[int, list[int]] = defaultdict(list)
    for number, other in tx.execute(query).all():
        grouped[number].append(other)
    return dict(grouped)


def _stays(tx: Tx, within: Any) -> dict[int, list[StateInterval]]:
    log = job_state_logs.c
    query = select(log.job_id, log.job_state_log_id, log.job_state, log.date_start, log.date_stop).where(within)
    rows = tx.execute(query.order_by(log.job_id, log.job_state_log_id)).all()
    return {
        number: [StateInterval(turn, _STATES[state], start, stop) for _, turn, state, start, stop in group]
        for number, group in groupby(rows, _FIRST_COLUMN)
    }


_FIRST_COLUMN = itemgetter(0)


def _tries(tx: Tx, within: Any) -> dict[int, list[CheckedAttempt]]:
    row = attempts.c
    query = select(row.job_id, row.number, row.started_us, row.closed_us).where(within)
    rows = tx.execute(query.order_by(row.job_id, row.number)).all()
    return {
        number: [CheckedAttempt(*attempt) for _, *attempt in group] for number, group in groupby(rows, _FIRST_COLUMN)
    }


def _given(tx: Tx, within: Any) -> dict[int, list[int]]:
    query = (
        select(jobs.c.job_id, assigned_resources.c.resource_id)
        .join(assigned_resources, assigned_resources.c.moldable_job_id == jobs.c.assigned_moldable_job)
        .where(within)
    )
    return numbers_by(tx, query)


def _holding(within: Any) -> Select[Any]:
    """Count what jobs hold now, whichever of their alternatives it belongs to."""
    moldable = moldable_job_descriptions.c
    return (
        select(moldable.moldable_job_id, func.count())
        .join(assigned_resources, assigned_resources.c.moldable_job_id == moldable.moldable_id)
        .where(within, assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'"))
        .group_by(moldable.moldable_job_id)
    )


def _chosen(within: Any) -> Select[Any]:
    moldable = moldable_job_descriptions.c
    return (
        select(jobs.c.job_id, moldable.moldable_job_id, moldable.moldable_walltime)
        .join(moldable_job_descriptions, moldable.moldable_id == jobs.c.assigned_moldable_job)
        .where(within)
    )


def _wanted(tx: Tx, within: Any) -> dict[int, int]:
    """Return the fewest resources that fit what each job was given: the product of a group's counts, summed up.

    A group that asks for `ALL` or `BEST` of something has a count that is not positive: one resource will do.
    """
    group, level = job_resource_groups.c, job_resource_descriptions.c
    query = (
        select(jobs.c.job_id, group.res_group_id, level.res_job_value)
        .join(job_resource_groups, group.res_group_moldable_id == jobs.c.assigned_moldable_job)
        .join(job_resource_descriptions, level.res_job_group_id == group.res_group_id)
        .where(within)
    )
    counts: dict[int, dict[int, int]] = {}
    for number, part, value in tx.execute(query).all():
        parts = counts.setdefault(number, {})
        parts[part] = parts.get(part, 1) * max(value, 1)
    return {number: sum(parts.values()) for number, parts in counts.items()}


def expected_accounts(job: CheckedJob, resources: int, walltime: int, window: int) -> list[tuple[AccountingRow, int]]:
    """Return what an accounted job added to the table, a row (with a sum of 0) and an amount each."""
    return [
        (AccountingRow(begin, end, job.user, job.project, job.queue, kind, 0), seconds * resources)
        for kind, stop in (("USED", job.stop), ("ASKED", job.start + walltime))
        for begin, end, seconds in window_shares(job.start, stop, window)
    ]


def cut_off_jobs(tx: Tx, away: Collection[str]) -> set[int]:
    """Return the jobs with an open attempt on one of these nodes."""
    row, place = attempts.c, attempt_nodes.c
    query = (
        select(row.job_id)
        .join(attempt_nodes, and_(place.job_id == row.job_id, place.number == row.number))
        .where(row.closed_us.is_(None), place.network_address.in_(away))
    )
    return set(tx.execute(query).scalars())


def licences(tx: Tx) -> set[int]:
    """Return the resources that do not compute: jobs that have only these are not accounted."""
    return set(tx.execute(select(resources.c.resource_id).where(resources.c.type != "default")).scalars())


def clock_jumped(tx: Tx) -> bool:
    """Return whether the server's clock ever jumped: instants before and after cannot be compared then."""
    # Spelled out, for the index that holds no others.
    beside_usual: ColumnElement[bool] = literal_column(EVENTS_BESIDE_USUAL_ENDS)
    jumped = select(func.count()).where(event_logs.c.type == "CLOCK_JUMP", beside_usual)
    return bool(tx.execute(jumped).scalar_one())
