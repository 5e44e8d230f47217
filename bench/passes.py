"""What a pass of the server costs: the database read, the plan made, with what is kept from pass to pass."""

from msgspec.structs import replace

from bench.harness import cpu_seconds, figure
from bench.store import NOW, RESOURCES, _add_cores, _database
from oarlock.config import Config
from oarlock.job.run.starting import schedule
from oarlock.lang import request
from oarlock.model.job import Job, JobState, move
from oarlock.server.planning.worker import PlannedDatabase, PlanRequest
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.job import moves as stored_moves

WAITING = 10_000
HELD = 16  # resources of each job that runs
EVENTS = 5


def _fill(tx: Tx) -> list[Job]:
    """Let jobs hold the whole cluster."""
    asked = request.parse([f"/resource_id={HELD},walltime=10"])
    job = Job(id=0, state=JobState.WAITING, user="ada", queue="default", submitted=NOW, command="/bin/true")
    added = new_jobs.add(tx, [new_jobs.NewJob(job, asked)] * (RESOURCES // HELD))
    # In a new database the only alternatives there are have the numbers of their jobs.
    running = [replace(one, start=NOW, assigned=one.id) for one in added]
    jobs.assign(tx, {one.assigned: range(at * HELD + 1, (at + 1) * HELD + 1) for at, one in enumerate(running)})
    for state in (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING):
        moves = [move(one, state, at=NOW, why="it runs") for one in running]
        stored_moves.record(tx, moves)
        running = [moved.job for moved in moves]
    return running


def _wait(tx: Tx, count: int) -> None:
    """Let jobs wait that ask for many different things."""
    asked = [
        request.parse([f"/network_address={n % 4 + 1}/core={n % 8 + 1},walltime={n % 24 + 1}"], where=where)
        for n, where in enumerate(["type = 'default'", "switch = 's1' OR cpu > 3"] * 96)
    ]
    job = Job(id=0, state=JobState.WAITING, user="", queue="default", submitted=NOW, command="/bin/true")
    new_jobs.add(tx, [new_jobs.NewJob(replace(job, user=f"user{n % 50}"), asked[n % len(asked)]) for n in range(count)])


def _furnish(tx: Tx) -> list[Job]:
    _add_cores(tx)
    running = _fill(tx)
    _wait(tx, WAITING)
    return running


def _pass(database: Database, planned: PlannedDatabase, now: int, *, dates: bool) -> None:
    config = Config()
    how, window = schedule.plan_settings(config), config.karma_window
    planned.decide(PlanRequest(database.address, how, window, now, config.scheduler_timeout, dates))


def _end(tx: Tx, job: Job, now: int) -> None:
    for state in (JobState.FINISHING, JobState.TERMINATED):
        moved = move(job, state, at=now, why="it is over")
        stored_moves.record(tx, [moved])
        job = moved.job


@figure("server.pass.10k", unit="CPU s", target=0.5)
def who_starts() -> float:
    """Read and plan who starts after an early end and a submission: 10,000 jobs wait, 10,240 resources."""
    with _database() as database:
        running = database.write(_furnish)
        planned = PlannedDatabase(database)
        _pass(database, planned, NOW, dates=False)
        spent: list[float] = []
        for gone in running[:EVENTS]:
            database.write(lambda tx, gone=gone: _end(tx, gone, NOW))  # type: ignore[misc]
            database.write(lambda tx: _wait(tx, 1))
            spent.append(cpu_seconds(lambda: _pass(database, planned, NOW + 1, dates=False), times=1))
        return min(spent)
