"""Jobs: selected by number or condition, their allocations and dependencies."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Select, delete, func, literal_column, select, update

from oarlock.model.condition import Condition
from oarlock.model.errors import UnknownJob
from oarlock.model.job import BEFORE_START, HOLDS_RESOURCES, Job, JobKind, JobState, Reservation
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries.cluster import condition_sql
from oarlock.store.queries.job.moves import full_reason
from oarlock.store.tables import (
    HIDDEN_JOB_COLUMNS,
    array_texts,
    assigned_resources,
    job_dependencies,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
)
from oarlock.store.tables.columns import INTEGER

VISIBLE: Mapping[str, type] = {
    column.name: int if column.type is INTEGER else str for column in jobs.c if column.name not in HIDDEN_JOB_COLUMNS
}
"""The columns that anybody may ask about (`--sql`), with `int` or `str`: what `lang.where.check` wants."""

FIELDS: Mapping[str, str] = {
    "id": "job_id",
    "state": "state",
    "user": "job_user",
    "queue": "queue_name",
    "kind": "job_type",
    "name": "job_name",
    "project": "project",
    "command": "command",
    "properties": "properties",
    "directory": "launching_directory",
    "environment": "job_env",
    "stdout": "stdout_file",
    "stderr": "stderr_file",
    "notify": "notify",
    "message": "message",
    "info": "info_type",
    "initial_request": "initial_request",
    "reservation": "reservation",
    "submitted": "submission_time",
    "start": "start_time",
    "stop": "stop_time",
    "assigned": "assigned_moldable_job",
    "checkpoint": "checkpoint",
    "checkpoint_signal": "checkpoint_signal",
    "exit_code": "exit_code",
    "resubmit_of": "resubmit_job_id",
    "array_id": "array_id",
    "array_index": "array_index",
    "suspended": "suspended",
    "accounted": "accounted",
    "uid": "job_uid",
    "file_id": "file_id",
    "login_host": "login_host",
}
"""Field of `Job` → column."""

_SELECT: Select[Any] = select(*(jobs.c[column] for column in FIELDS.values()), jobs.c.texts_id).order_by(jobs.c.job_id)


def with_parameters(command: str | None, parameters: str | None) -> str | None:
    """Return what a job runs: the command, and the parameters behind it, if there are any."""
    return f"{command or ''} {parameters}".strip() if parameters else command


def get(tx: Tx, job_id: int) -> Job:
    """Return a job; raise `UnknownJob` if there is none of that number."""
    [job] = get_many(tx, [job_id])
    return job


def get_many(tx: Tx, ids: Collection[int]) -> list[Job]:
    """Return jobs by increasing number; each of them must exist (`UnknownJob`)."""
    jobs_found = existing(tx, ids)
    numbers = {job.id for job in jobs_found}
    for number in ids:
        if number not in numbers:
            raise UnknownJob(number)
    return jobs_found


def existing(tx: Tx, ids: Collection[int]) -> list[Job]:
    """Return jobs by increasing number; numbers that were never given are left out."""
    return _jobs(tx, tx.execute(_select_ids(tx.dialect.name), bind_ids(tx, ids)))


def interactive_since(tx: Tx, after: int) -> tuple[list[int], int]:
    """Return the interactive jobs with a number above `after` that have not started, and the highest number there is.

    By number: a long queue is read once, and from then on only what is new in it.
    """
    states = [state.value for state in BEFORE_START]
    query = select(jobs.c.job_id).where(
        jobs.c.job_id > after, jobs.c.state.in_(states), jobs.c.job_type == JobKind.INTERACTIVE.value
    )
    highest = tx.execute(select(func.max(jobs.c.job_id))).scalar()
    return list(tx.execute(query).scalars()), highest or 0


def uids(tx: Tx, ids: Collection[int]) -> dict[int, int]:
    """Return the numbers of the accounts that submitted these jobs, by job, where they are known."""
    query = select(jobs.c.job_id, jobs.c.job_uid).where(
        jobs.c.job_uid.is_not(None), id_in(tx.dialect.name, jobs.c.job_id)
    )
    return dict(tuple(row) for row in tx.execute(query, bind_ids(tx, ids)))


def not_begun_reservations(tx: Tx, ids: Collection[int]) -> list[int]:
    """Return those of these jobs that are accepted reservations and were never given their resources."""
    query = select(jobs.c.job_id).where(
        jobs.c.reservation == Reservation.SCHEDULED.value,
        jobs.c.assigned_moldable_job == 0,
        id_in(tx.dialect.name, jobs.c.job_id),
    )
    return list(tx.execute(query, bind_ids(tx, ids)).scalars())


def iterate(tx: Tx, ids: Collection[int]) -> Iterator[Job]:
    """Yield jobs by increasing number as `known` returns them, reading on only when asked: their texts may be long."""
    types = _grouped(tx.execute(_types(tx.dialect.name), bind_ids(tx, ids)))
    streamed = {"stream_results": True, "yield_per": _READ_AT_ONCE}
    array, shared = 0, {}
    with tx.execute(_select_ids(tx.dialect.name), bind_ids(tx, ids), execution_options=streamed) as rows:
        for row in rows:
            fields, texts_id = dict(zip(FIELDS, row[:-1], strict=True)), row[-1]
            if texts_id and texts_id != array:  # members follow each other: only the last array is worth keeping
                array, shared = texts_id, _read_texts(tx, [texts_id])
            if texts_id:
                _share_texts(fields, *shared[texts_id])
            yield _job(fields, tuple(types.get(fields["id"], ())))


_READ_AT_ONCE = 50  # rows of jobs that may have long texts


@cache
def _select_ids(engine: str) -> Select[Any]:
    return _SELECT.where(id_in(engine, jobs.c.job_id))


def in_states(tx: Tx, states: Collection[JobState], *, user: str | None = None) -> list[Job]:
    """Return the jobs in these states, of one user or of all, oldest first."""
    query = _SELECT.where(jobs.c.state.in_([state.value for state in states]))
    return _jobs(tx, tx.execute(query if user is None else query.where(jobs.c.job_user == user)))


def of_type(tx: Tx, word: str) -> list[Job]:
    """Return the jobs of a type that are not over, oldest first."""
    current = select(job_types.c.job_id).where(
        job_types.c.type == word, job_types.c.type_index == literal_column("'CURRENT'")
    )
    return _jobs(tx, tx.execute(_SELECT.where(jobs.c.job_id.in_(current))))


def add_type(tx: Tx, job_id: int, word: str) -> None:
    """Add a type to a job that is not over."""
    [line] = allocate_ids(tx, job_types.c.job_type_id, 1)
    insert_rows(tx, "job_types", ["job_type_id", "job_id", "type"], [(line, job_id, word)])


def remove_type(tx: Tx, job_id: int, word: str) -> None:
    """Remove a type from a job."""
    tx.execute(delete(job_types).where(job_types.c.job_id == job_id, job_types.c.type == word))


def numbers_in(tx: Tx, states: Collection[JobState]) -> set[int]:
    """Return the numbers of the jobs that are in one of these states."""
    return set(tx.execute(select(jobs.c.job_id).where(jobs.c.state.in_([s.value for s in states]))).scalars())


def matching(tx: Tx, condition: Condition, *, user: str | None = None) -> list[int]:
    """Return the numbers of jobs that fulfil a condition checked with `VISIBLE`, oldest first; for `Database.ask`."""
    query = select(jobs.c.job_id).where(condition_sql.sql_condition(condition, dict(jobs.c))).order_by(jobs.c.job_id)
    return list(tx.execute(query if user is None else query.where(jobs.c.job_user == user)).scalars())


def assign(tx: Tx, assigned: Mapping[int, Collection[int]]) -> None:
    """Assign resources to jobs: moldable number → resource numbers. A move to a final state releases them."""
    pairs = [(moldable, resource) for moldable, resources in assigned.items() for resource in sorted(resources)]
    insert_rows(tx, "assigned_resources", ["moldable_job_id", "resource_id"], pairs)


def unassign(tx: Tx, moldable_ids: Collection[int]) -> None:
    """Remove the allocation of jobs whose launch failed before anything of the user's ran."""
    tx.execute(
        assigned_resources.delete().where(id_in(tx.dialect.name, assigned_resources.c.moldable_job_id)),
        bind_ids(tx, moldable_ids),
    )


def resources_of(tx: Tx, ids: Collection[int]) -> dict[int, list[int]]:
    """Return the resources that jobs have or had, by job; a job that never got any is not in the answer."""
    rows = tx.execute(
        select(jobs.c.job_id, assigned_resources.c.resource_id)
        .join(assigned_resources, assigned_resources.c.moldable_job_id == jobs.c.assigned_moldable_job)
        .where(id_in(tx.dialect.name, jobs.c.job_id))
        .order_by(assigned_resources.c.resource_id),
        bind_ids(tx, ids),
    )
    return _grouped(rows.all())  # to fetch many rows one by one costs more than the rows


def holders(tx: Tx, resource_ids: Collection[int]) -> dict[int, list[int]]:
    """Return the jobs that hold these resources now, by resource; one that is free is not in the answer."""
    return _grouped(tx.execute(_holders(tx.dialect.name), bind_ids(tx, resource_ids)))


@cache
def _holders(engine: str) -> Select[Any]:
    given, moldable = assigned_resources.c, moldable_job_descriptions.c
    return (
        select(given.resource_id, moldable.moldable_job_id)
        .join(moldable_job_descriptions, moldable.moldable_id == given.moldable_job_id)
        .where(given.assigned_resource_index == literal_column("'CURRENT'"), id_in(engine, given.resource_id))
    )


def suspended_seconds(tx: Tx, *, now: int) -> dict[int, int]:
    """Sum the seconds that jobs on resources spent suspended, or waiting to go on."""
    seconds: defaultdict[int, int] = defaultdict(int)
    for job_id, start, stop in tx.execute(_SUSPENDED):
        seconds[job_id] += max(0, (stop or now) - start)
    return seconds


_EVER_SUSPENDED = select(jobs.c.job_id).where(
    jobs.c.suspended == literal_column("'YES'"), jobs.c.state.in_([state.value for state in HOLDS_RESOURCES])
)
_SUSPENDED = select(job_state_logs.c.job_id, job_state_logs.c.date_start, job_state_logs.c.date_stop).where(
    job_state_logs.c.job_id.in_(_EVER_SUSPENDED),
    job_state_logs.c.job_state.in_([JobState.SUSPENDED.value, JobState.RESUMING.value]),
)


def pauses(tx: Tx, ids: Collection[int], *, now: int) -> list[tuple[int, int, int]]:
    """Return when jobs were suspended: number, start, stop; a pause that lasts stops now."""
    log = job_state_logs.c
    rows = tx.execute(
        select(log.job_id, log.date_start, log.date_stop)
        .join(jobs, jobs.c.job_id == log.job_id)
        .where(
            id_in(tx.dialect.name, log.job_id),
            jobs.c.suspended == literal_column("'YES'"),
            log.job_state.in_([JobState.SUSPENDED.value, JobState.RESUMING.value]),
        )
        .order_by(log.job_state_log_id),
        bind_ids(tx, ids),
    )
    return [(job, start, stop or now) for job, start, stop in rows]


def dependencies(tx: Tx, ids: Collection[int]) -> dict[int, list[int]]:
    """Return the dependencies of each job; jobs without any are not in the answer."""
    rows = tx.execute(
        select(job_dependencies.c.job_id, job_dependencies.c.job_id_required)
        .where(id_in(tx.dialect.name, job_dependencies.c.job_id))
        .order_by(job_dependencies.c.job_id_required),
        bind_ids(tx, ids),
    )
    return _grouped(rows)


def wait_for_copy(tx: Tx, original: int, copy: int) -> None:
    """Redirect dependencies on a job to its resubmitted copy."""
    required = job_dependencies.c.job_id_required
    tx.execute(update(job_dependencies).where(required == original).values(job_id_required=copy))


def state_history(tx: Tx, job_id: int) -> list[tuple[JobState, int, int, str]]:
    """Return the states of a job in order: state, start, stop (0: still in it), reason."""
    log = job_state_logs.c
    rows = tx.execute(
        select(log.job_state, log.date_start, log.date_stop, log.why)
        .where(log.job_id == job_id)
        .order_by(log.job_state_log_id)
    )
    return [(JobState(state), start, stop, full_reason(JobState(state), why)) for state, start, stop, why in rows]


def count(tx: Tx) -> dict[JobState, int]:
    """Count jobs by state."""
    return {JobState(state): number for state, number in tx.execute(_COUNT)}


_COUNT = select(jobs.c.state, func.count()).group_by(jobs.c.state)


def _jobs(tx: Tx, rows: Iterable[Any]) -> list[Job]:
    """Build jobs from rows, with their types and the texts that members of an array share."""
    fields, arrays = [], {}
    for row in rows:
        fields.append(dict(zip(FIELDS, row[:-1], strict=True)))
        if row[-1]:
            arrays[row[0]] = row[-1]
    types = _grouped(tx.execute(_types(tx.dialect.name), bind_ids(tx, [job_fields["id"] for job_fields in fields])))
    if arrays:
        shared = _read_texts(tx, set(arrays.values()))
        for job in fields:
            if job["id"] in arrays:
                _share_texts(job, *shared[arrays[job["id"]]])
    return [_job(job_fields, tuple(types.get(job_fields["id"], ()))) for job_fields in fields]


def _read_texts(tx: Tx, arrays: Collection[int]) -> dict[int, tuple[str | None, str, str]]:
    return {row[0]: tuple(row[1:]) for row in tx.execute(_texts(tx.dialect.name), bind_ids(tx, arrays))}


def _share_texts(job: dict[str, Any], command: str | None, environment: str, initial_request: str) -> None:
    """Fill in what members of an array share: the same text for all of them, since it may be long and they many."""
    job["command"] = with_parameters(command, job["command"])
    job["environment"], job["initial_request"] = environment, initial_request


@cache
def _texts(engine: str) -> Select[Any]:
    texts = array_texts.c
    query = select(texts.array_id, texts.command, texts.job_env, texts.initial_request)
    return query.where(id_in(engine, texts.array_id))


@cache
def _types(engine: str) -> Select[Any]:
    types = select(job_types.c.job_id, job_types.c.type).order_by(job_types.c.job_type_id)
    return types.where(id_in(engine, job_types.c.job_id))


def _job(fields: dict[str, Any], types: tuple[str, ...]) -> Job:
    fields["state"] = JobState(fields["state"])
    fields["kind"] = JobKind(fields["kind"])
    fields["reservation"] = Reservation(fields["reservation"])
    fields["suspended"] = fields["suspended"] == "YES"
    fields["accounted"] = fields["accounted"] == "YES"
    return Job(**fields, types=types)


def _grouped(rows: Iterable[Any]) -> dict[int, list[Any]]:
    groups: defaultdict[int, list[Any]] = defaultdict(list)
    for key, value in rows:
        groups[key].append(value)
    return dict(groups)
