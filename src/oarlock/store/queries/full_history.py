"""The full history of all jobs, for the checks after a simulation. Not for large databases."""

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import literal_column, select

from oarlock.model.job import Job, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting, attempts, jobs
from oarlock.store.queries.attempts import Attempt
from oarlock.store.tables import assigned_resources, event_logs, job_state_logs
from oarlock.store.tables import jobs as job_table


@dataclass(frozen=True, slots=True)
class StateInterval:
    """A state that a job was in: [start, stop), stop is 0 while it still is; and the reason.

    `turn` counts everything that happened to all jobs, in order: what no clock says that was set back meanwhile.
    """

    turn: int
    state: JobState
    start: int
    stop: int
    why: str


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


def read(tx: Tx) -> FullHistory:
    """Read everything."""
    numbers = list(tx.execute(select(job_table.c.job_id)).scalars())
    log = job_state_logs.c
    stays = defaultdict(list)
    for turn, number, state, start, stop, why in tx.execute(
        select(log.job_state_log_id, log.job_id, log.job_state, log.date_start, log.date_stop, log.why).order_by(
            log.job_state_log_id
        )
    ):
        stays[number].append(StateInterval(turn, JobState(state), start, stop, why))
    tries = defaultdict(list)
    for attempt in attempts.of_jobs(tx, numbers):
        tries[attempt.job_id].append(attempt)
    noted = defaultdict(list)
    for number, kind in tx.execute(select(event_logs.c.job_id, event_logs.c.type).order_by(event_logs.c.event_id)):
        noted[number].append(kind)
    current = assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'")
    return FullHistory(
        jobs={job.id: job for job in jobs.get_many(tx, numbers)},
        stays=dict(stays),
        attempts=dict(tries),
        resources=jobs.resources_of(tx, numbers),
        events=dict(noted),
        held=len(tx.execute(select(assigned_resources.c.resource_id).where(current)).all()),
        used=sum(row.consumption for row in accounting.listed(tx) if row.kind == "USED"),
    )
