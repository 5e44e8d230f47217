"""Jobs of the past, read at once: for replays, for the checks after a simulation, from other resource managers.

A replay reads a database of Oarlock, or of OAR 2, which has the same tables. Other databases are never written. OAR's
PostgreSQL is asked directly. Slurm's MariaDB is asked through MariaDB's own command line client, which is there
wherever slurmdbd is: the statement is made here and the client's answer is read here; running it is the caller's part.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import URL, ColumnElement, Select, Subquery, case, column, func, inspect, literal_column, select, table
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError

from oarlock.model.errors import ConfigRefused, DatabaseRefused
from oarlock.model.job import FINAL, Job, JobState
from oarlock.model.job_type import JobType
from oarlock.model.resource import DEFAULT_ORDER, DEFAULT_TYPE, ResourceState
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.store.engine import engines
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import attempts, shapes
from oarlock.store.queries.job import jobs as stored_jobs
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.job.moves import full_reason
from oarlock.store.queries.usage import accounting
from oarlock.store.tables import (
    assigned_resources,
    event_logs,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
    resources,
)

_NEEDED = (
    "jobs", "moldable_job_descriptions", "assigned_resources", "resources", "job_resource_groups",
    "job_resource_descriptions", "job_types",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that ran. `shape` is None where what it asked for cannot be read any more.

    `held` is how many resources of type `default` it had; licences and the like are no processors.
    """

    id: int
    user: str
    project: str
    submitted: int
    start: int
    stop: int
    walltime: int
    held: int
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class PastJobs:
    """Jobs by the instant of their submission, and the resources: those of today, and those that these jobs had.

    `dead`: how many of the resources are Dead today. `inner`: jobs that ran inside of others' resources, left out here.
    """

    jobs: list[PastJob]
    resources: ResourceTable
    dead: int
    inner: int


def read_past_jobs(where: Path | URL, *, since: int, until: int) -> PastJobs:
    """Read the jobs that were submitted in [since, until) and ran; nothing is ever written. `DatabaseRefused`."""
    if isinstance(where, Path) and not where.is_file():
        raise DatabaseRefused(f"There is no database at {where}.", hint="Name the file of SQLite, or postgresql://….")
    engine = engines.reader(where)
    try:
        with engine.connect() as tx, tx.begin():
            missing = sorted(set(_NEEDED) - set(inspect(tx).get_table_names()))
            if missing:
                raise DatabaseRefused(
                    f"The database has no table `{missing[0]}`, so it is neither Oarlock's nor OAR's.",
                    hint="Name the database of the server, as in DB_BASE_NAME.",
                )
            return _read_past(tx, _ran(since, until))
    except DBAPIError as error:
        raise DatabaseRefused(f"The history cannot be read: {' '.join(str(error.orig).split())}") from error
    finally:
        engine.dispose()


def _ran(since: int, until: int) -> tuple[ColumnElement[bool], ...]:
    """Find the jobs that were submitted in [since, until) and ran."""
    job = jobs.c
    return (
        job.state.in_([state.value for state in FINAL]),
        job.start_time > 0,
        job.stop_time >= job.start_time,
        job.submission_time >= since,
        job.submission_time < until,
    )


def _read_past(tx: Tx, conditions: tuple[ColumnElement[bool], ...]) -> PastJobs:
    types = properties.types(tx)
    inner = jobs.c.job_id.in_(select(job_types.c.job_id).where(job_types.c.type.startswith(f"{JobType.INNER}=")))
    used = select(assigned_resources.c.resource_id).where(
        assigned_resources.c.moldable_job_id.in_(select(jobs.c.assigned_moldable_job).where(*conditions))
    )
    table = properties.read_resource_table(tx, types, DEFAULT_ORDER, also=used)
    return PastJobs(
        _past(tx, types, (*conditions, ~inner)),
        table,
        dead=sum(state == ResourceState.DEAD.value for state in table.columns["state"]),
        inner=tx.execute(select(func.count()).where(*conditions, inner)).scalar_one(),
    )


def _past(tx: Tx, types: Mapping[str, type], conditions: tuple[ColumnElement[bool], ...]) -> list[PastJob]:
    job, moldable = jobs.c, moldable_job_descriptions.c
    requests = shapes.read(tx, select(job.job_id).where(*conditions), types)
    chosen = {
        choice.moldable_id: requests.shapes[choice.shape] for choices in requests.choices.values() for choice in choices
    }
    held = _processors_held(select(job.assigned_moldable_job).where(*conditions))
    rows = tx.execute(
        select(
            job.job_id, job.job_user, job.project, job.submission_time, job.start_time, job.stop_time,
            moldable.moldable_walltime, held.c.held, moldable.moldable_id,
        )
        .join(moldable_job_descriptions, moldable.moldable_id == job.assigned_moldable_job)
        .join(held, held.c.moldable_job_id == moldable.moldable_id)
        .where(*conditions)
        .order_by(job.submission_time, job.job_id)
    )  # fmt: skip
    return [PastJob(*row[:8], chosen.get(row.moldable_id)) for row in rows]


def _processors_held(of: Select[Any]) -> Subquery:
    """Count the processors that jobs had, of their chosen alternatives; a resource that was removed since was one."""
    given = assigned_resources.c
    other = resources.c.type != DEFAULT_TYPE
    return (
        select(given.moldable_job_id, func.sum(case((other, 0), else_=1)).label("held"))
        .join_from(assigned_resources, resources, resources.c.resource_id == given.resource_id, isouter=True)
        .where(given.moldable_job_id.in_(of))
        .group_by(given.moldable_job_id)
        .subquery()
    )


class StateInterval(NamedTuple):
    """A state that a job was in: [start, stop), stop is 0 while it still is; and the reason.

    `turn` counts everything that happened to all jobs, in order: what no clock says that was set back meanwhile.
    """

    turn: int
    state: JobState
    start: int
    stop: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class FullHistory:
    """Everything about all jobs, by their number. `held`: resources allocated at this moment."""

    jobs: dict[int, Job]
    stays: dict[int, list[StateInterval]]
    attempts: dict[int, list[Attempt]]
    resources: dict[int, list[int]]
    events: dict[int, list[str]]
    held: int
    used: int


def read_full_history(tx: Tx) -> FullHistory:
    """Read everything."""
    numbers = list(tx.execute(select(jobs.c.job_id)).scalars())
    log = job_state_logs.c
    stays = defaultdict(list)
    for turn, number, state, start, stop, why in tx.execute(
        select(log.job_state_log_id, log.job_id, log.job_state, log.date_start, log.date_stop, log.why).order_by(
            log.job_state_log_id
        )
    ):
        stays[number].append(StateInterval(turn, JobState(state), start, stop, full_reason(JobState(state), why)))
    tries = defaultdict(list)
    for attempt in attempts.of_jobs(tx, numbers):
        tries[attempt.job_id].append(attempt)
    noted = defaultdict(list)
    for number, kind in tx.execute(select(event_logs.c.job_id, event_logs.c.type).order_by(event_logs.c.event_id)):
        noted[number].append(kind)
    current = assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'")
    return FullHistory(
        jobs={job.id: job for job in stored_jobs.get_many(tx, numbers)},
        stays=dict(stays),
        attempts=dict(tries),
        resources=stored_jobs.resources_of(tx, numbers),
        events=dict(noted),
        held=len(tx.execute(select(assigned_resources.c.resource_id).where(current)).all()),
        used=sum(row.consumption for row in accounting.listed(tx) if row.kind == "USED"),
    )


_TIMEOUT_SECONDS = 10
_CLUSTER = re.compile(r"[a-z0-9_-]{1,40}")
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}
_READ_ONLY = "SET SESSION TRANSACTION READ ONLY;\n"


class ForeignJob(NamedTuple):
    """A job as another resource manager's database has it."""

    id: int
    user: str
    account: str
    name: str


def oar_jobs(conninfo: str, jobs: Sequence[int]) -> list[ForeignJob]:
    """Query OAR's database for jobs, in a read-only transaction. OAR's projects stand for accounts."""
    with psycopg.connect(conninfo, connect_timeout=_TIMEOUT_SECONDS) as connection:
        connection.read_only = True
        rows = connection.execute(
            "SELECT job_id, job_user, project, job_name FROM jobs WHERE job_id = ANY(%s)", (list(jobs),)
        )
        return [ForeignJob(row[0], row[1] or "", row[2] or "", row[3] or "") for row in rows]


def slurm_statement(cluster: str, jobs: Iterable[int]) -> str:
    """Build the statement that queries slurmdbd's database for jobs of a cluster; of equal numbers the oldest first."""
    if not _CLUSTER.fullmatch(cluster):
        raise ConfigRefused(f"`{cluster}` is not the name of a cluster in slurmdbd.", hint="Give --slurm-cluster NAME.")
    job = table(f"{cluster}_job_table", *map(column, ("id_job", "account", "job_name", "id_assoc", "time_submit")))
    owner = table(f"{cluster}_assoc_table", column("id_assoc"), column("user"))
    wanted = (
        select(job.c.id_job, owner.c.user, job.c.account, job.c.job_name)
        .select_from(job.outerjoin(owner, owner.c.id_assoc == job.c.id_assoc))
        .where(job.c.id_job.in_([int(number) for number in jobs]))
        .order_by(job.c.time_submit)
    )
    compiled = wanted.compile(dialect=mysql.dialect(), compile_kwargs={"literal_binds": True})
    return f"{_READ_ONLY}{compiled};\n"


def slurm_jobs(answer: str) -> list[ForeignJob]:
    """Parse the output of MariaDB's client in batch mode: tabs between columns, backslash escapes."""
    rows = (line.split("\t") for line in answer.splitlines())
    return [ForeignJob(int(row[0]), *map(_unescaped, row[1:])) for row in rows if len(row) == len(ForeignJob._fields)]


def _unescaped(text: str) -> str:
    return "" if text == "NULL" else re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
