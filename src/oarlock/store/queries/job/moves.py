"""State changes of jobs, with everything that follows from them, in one transaction; and their kills (`frag_jobs`)."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, Update, and_, case, exists, func, literal_column, select, update

from oarlock.model.errors import IllegalMove, UnknownJob
from oarlock.model.job import (
    FINAL,
    FragState,
    JobState,
    Moved,
    describe_exit,
)
from oarlock.store.engine import journal
from oarlock.store.engine.rows import BoundRows, bind_ids, id_in, id_in_query, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import (
    assigned_resources,
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
from oarlock.store.tables.columns import INTEGER, TEXT_BY_CODE_POINT
from oarlock.store.tables.jobs import USUAL, USUAL_REASONS

_STOPPED = frozenset({JobState.SUSPENDED, JobState.RESUMING})

_IDS = BoundRows("moved", id=INTEGER)
_MOVES = BoundRows(
    "moves",
    id=INTEGER,
    state=TEXT_BY_CODE_POINT,
    message=TEXT_BY_CODE_POINT,
    reservation=TEXT_BY_CODE_POINT,
    start=INTEGER,
    stop=INTEGER,
    assigned=INTEGER,
    exit_code=INTEGER,
    suspended=TEXT_BY_CODE_POINT,
    at=INTEGER,
)


def record(tx: Tx, moves: Sequence[Moved]) -> None:
    """Write state changes and their history rows, in as many statements for thousands of jobs as for one.

    With the state go the fields that change in a job's life: message, reservation, start, stop, assigned, exit code.
    A final state sets the stop time (never before the start), makes the job's rows LOG, and tells its resources when
    they were last used. A job that is no longer where it was read refuses them all (`IllegalMove`), nothing written.
    A job may move several times in one call, in the order given.
    """
    if moves:
        _write(tx, moves, _checked(tx, moves))
        _follow(tx, moves)
        if journal.takes(tx, journal.JOBS):
            for moved in moves:
                _note(tx, moved)


def _note(tx: Tx, moved: Moved) -> None:
    job = moved.job
    about = {"job": job.id, "user": job.user, "state": job.state.value, "was": moved.before.value}
    if job.exit_code is not None and job.state in FINAL:
        about["exit"] = describe_exit(job.exit_code)
    if moved.why:
        about["why"] = moved.why
    journal.note(tx, journal.JOBS, "job moved", about)


def _checked(tx: Tx, moves: Sequence[Moved]) -> dict[int, int]:
    """Check that every job is in the state its first move starts from; return since when, by job."""
    rows = tx.execute(
        _present(tx.dialect.name), _IDS.parameters(tx, [(job_id,) for job_id in {m.job.id for m in moves}])
    )
    present = {number: (state, since) for number, state, since in rows}
    states = {number: state for number, (state, _) in present.items()}
    for moved in moves:
        state = states.get(moved.job.id)
        if state is None:
            raise UnknownJob(moved.job.id)
        if state != moved.before:
            raise IllegalMove(
                f"Job {moved.job.id} is no longer {moved.before}: it is {state}.",
                hint="Look at it again; somebody else was faster.",
            )
        states[moved.job.id] = moved.job.state.value
    return {number: since for number, (_, since) in present.items()}


def shorten_reason(state: JobState, why: str) -> str:
    """Return how the reason of a move is stored."""
    return USUAL if why and why == USUAL_REASONS.get(state) else why


def full_reason(state: JobState, stored: str) -> str:
    """Return the reason of a move that is stored so."""
    return USUAL_REASONS.get(state, stored) if stored == USUAL else stored


class _MovePath:
    """The last state of a job after its moves, and when it left the state before."""

    __slots__ = ("at", "last", "left", "line", "suspended")

    def __init__(self, since: int) -> None:
        self.at = since  # when it came to where it stands
        self.left: int | None = None  # when its first move was
        self.last: Moved
        self.line: list[Any] = []  # of its history, the last one
        self.suspended = False  # somewhere on the way

    def go(self, moved: Moved, number: int) -> list[Any]:
        """Apply a move; return the history row that it adds. The row before it ends where this one starts."""
        self.at = max(self.at, moved.at)  # a clock that was set back must not turn intervals round
        if self.left is None:
            self.left = self.at
        else:
            self.line[-2] = self.at
        self.last = moved
        self.suspended |= moved.job.state is JobState.SUSPENDED
        why = shorten_reason(moved.job.state, moved.why)
        self.line = [number, moved.job.id, moved.job.state.value, self.at, 0, why]
        return self.line


_LINE = ("job_state_log_id", "job_id", "job_state", "date_start", "date_stop", "why")


def _write(tx: Tx, moves: Sequence[Moved], since: Mapping[int, int]) -> None:
    """Write the last state of each job, and a history row for each move."""
    engine = tx.dialect.name
    numbers = allocate_ids(tx, job_state_logs.c.job_state_log_id, len(moves))
    ways = {number: _MovePath(at) for number, at in since.items()}
    lines = [ways[moved.job.id].go(moved, number) for moved, number in zip(moves, numbers, strict=True)]
    bound = _MOVES.parameters(tx, [_row(way) for way in ways.values()])
    tx.execute(_update_jobs(engine), bound)
    tx.execute(_end_intervals(engine), bound)
    insert_rows(tx, "job_state_logs", _LINE, lines)


def _row(way: _MovePath) -> tuple[Any, ...]:
    job = way.last.job
    stop = max(job.stop or way.at, job.start) if job.state in FINAL else job.stop
    suspended = "YES" if job.suspended or way.suspended else "NO"
    return (
        job.id,
        job.state.value,
        job.message,
        job.reservation.value,
        job.start,
        stop,
        job.assigned,
        job.exit_code,
        suspended,
        way.left,
    )


def _follow(tx: Tx, moves: Sequence[Moved]) -> None:
    """Update the resources and the other rows of the jobs that moved."""
    engine = tx.dialect.name
    if stopped := [(moved.job.id,) for moved in moves if {moved.before, moved.job.state} & _STOPPED]:
        tx.execute(_mark_suspended(engine), _IDS.parameters(tx, stopped))
    if ended := [moved.job.id for moved in moves if moved.job.state in FINAL]:
        tx.execute(_last_used(engine), _IDS.parameters(tx, [(number,) for number in ended]))
        for statement in _retire(engine):
            tx.execute(statement, bind_ids(tx, ended))


@cache
def _present(engine: str) -> Select[Any]:
    moved = _IDS.table(engine)
    log = job_state_logs
    return (
        select(jobs.c.job_id, jobs.c.state, func.coalesce(log.c.date_start, literal_column("0")))
        .join(moved, moved.c.id == jobs.c.job_id)
        .outerjoin(log, and_(log.c.job_id == jobs.c.job_id, log.c.date_stop == literal_column("0")))
    )


@cache
def _update_jobs(engine: str) -> Update:
    moves = _MOVES.table(engine)
    return (
        update(jobs)
        .where(jobs.c.job_id == moves.c.id)
        .values(
            state=moves.c.state,
            message=moves.c.message,
            reservation=moves.c.reservation,
            start_time=moves.c.start,
            stop_time=moves.c.stop,
            assigned_moldable_job=moves.c.assigned,
            exit_code=moves.c.exit_code,
            suspended=moves.c.suspended,
        )
    )


@cache
def _end_intervals(engine: str) -> Update:
    moves = _MOVES.table(engine)
    log = job_state_logs
    return (
        update(log)
        .where(log.c.job_id == moves.c.id, log.c.date_stop == literal_column("0"))
        .values(date_stop=moves.c.at)
    )


@cache
def _mark_suspended(engine: str) -> Update:
    """Update `suspended_jobs` of the resources of these jobs."""
    held = assigned_resources.alias("held")
    holder = jobs.alias("holder")
    stopped = (
        select(held.c.resource_id)
        .join(holder, holder.c.assigned_moldable_job == held.c.moldable_job_id)
        .where(
            held.c.resource_id == resources.c.resource_id,
            held.c.assigned_resource_index == literal_column("'CURRENT'"),
            holder.c.state.in_([state.value for state in _STOPPED]),
        )
    )
    touched = _assigned(engine, assigned_resources.c.resource_id)
    return (
        update(resources)
        .where(resources.c.resource_id.in_(touched))
        .values(suspended_jobs=case((exists(stopped), "YES"), else_="NO"))
    )


@cache
def _last_used(engine: str) -> Update:
    used = (
        _assigned(engine, assigned_resources.c.resource_id, func.max(jobs.c.stop_time).label("at"))
        .group_by(assigned_resources.c.resource_id)
        .subquery("used")
    )
    return update(resources).where(resources.c.resource_id == used.c.resource_id).values(last_job_date=used.c.at)


def _assigned(engine: str, *columns: Any) -> Select[Any]:
    """Select from the resources assigned to the moved jobs."""
    moved = _IDS.table(engine)
    return (
        select(*columns)
        .select_from(moved)
        .join(jobs, jobs.c.job_id == moved.c.id)
        .join(assigned_resources, assigned_resources.c.moldable_job_id == jobs.c.assigned_moldable_job)
    )


@cache
def _retire(engine: str) -> tuple[Update, ...]:
    """Mark the rows of finished jobs as LOG."""
    moldable, group = moldable_job_descriptions.c, job_resource_groups.c
    moldables = select(moldable.moldable_id).where(id_in(engine, moldable.moldable_job_id))
    groups = select(group.res_group_id).where(id_in_query(engine, group.res_group_moldable_id, moldables))
    return (
        update(job_types).where(id_in(engine, job_types.c.job_id)).values(type_index="LOG"),
        update(job_dependencies).where(id_in(engine, job_dependencies.c.job_id)).values(job_dependency_index="LOG"),
        update(moldable_job_descriptions).where(id_in(engine, moldable.moldable_job_id)).values(moldable_index="LOG"),
        update(job_resource_groups)
        .where(id_in_query(engine, group.res_group_moldable_id, moldables))
        .values(res_group_index="LOG"),
        update(job_resource_descriptions)
        .where(id_in_query(engine, job_resource_descriptions.c.res_job_group_id, groups))
        .values(res_job_index="LOG"),
        update(assigned_resources)
        .where(id_in_query(engine, assigned_resources.c.moldable_job_id, moldables))
        .values(assigned_resource_index="LOG"),
    )


def request_kills(tx: Tx, ids: Collection[int], *, at: int) -> list[int]:
    """Request the kill of jobs; return those for which it was not requested before."""
    before = kills_requested(tx, ids)
    new = [number for number in dict.fromkeys(ids) if number not in before]
    rows = [(number, at, FragState.LEON.value) for number in new]
    insert_rows(tx, "frag_jobs", ["frag_id_job", "frag_date", "frag_state"], rows)
    return new


def kills_requested(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return those of the jobs whose kill was requested, by a user or by the system."""
    return set(tx.execute(_requested(tx.dialect.name), bind_ids(tx, ids)).scalars())


@cache
def _requested(engine: str) -> Select[Any]:
    return select(frag_jobs.c.frag_id_job).where(id_in(engine, frag_jobs.c.frag_id_job))


def kills_under_way(tx: Tx) -> list[tuple[int, FragState, int]]:
    """Return the kills that are not over: job, how far it has come, when it was asked for; oldest first."""
    return [(number, FragState(state), date) for number, state, date in tx.execute(_UNDER_WAY)]


_UNDER_WAY = (
    select(frag_jobs.c.frag_id_job, frag_jobs.c.frag_state, frag_jobs.c.frag_date)
    .where(frag_jobs.c.frag_state != literal_column("'FRAGGED'"))
    .order_by(frag_jobs.c.frag_date, frag_jobs.c.frag_id_job)
)


def set_kill_state(tx: Tx, ids: Collection[int], state: FragState) -> None:
    """Update the state of the kills of these jobs."""
    tx.execute(_set_state(tx.dialect.name, state), bind_ids(tx, ids))


@cache
def _set_state(engine: str, state: FragState) -> Update:
    return update(frag_jobs).where(id_in(engine, frag_jobs.c.frag_id_job)).values(frag_state=state.value)
