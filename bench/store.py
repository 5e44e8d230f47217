"""How fast the database takes what happens to jobs, and gives what the scheduler looks at."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from bench.harness import cpu_seconds, figure
from oarlock.lang import request
from oarlock.model.job import Job, JobState, move
from oarlock.model.submission import ResourceRequest
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import moves as stored_moves
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.planning import snapshot

NOW = 1_000_000
JOBS = 10_000
RESOURCES = 10_240


@contextmanager
def _database() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder, open_database(Path(folder) / "oarlock.db", create=True) as database:
        yield database


def _add_jobs(tx: Tx, count: int) -> list[Job]:
    """Add waiting jobs of fifty users that ask for many different things."""
    asked = [
        request.parse([f"/network_address={n % 4 + 1}/core={n % 8 + 1},walltime={n % 24 + 1}"], where=where)
        for n, where in enumerate(["type = 'default'", "switch = 's1' OR cpu > 3"] * 96)
    ]
    job = Job(id=0, state=JobState.WAITING, user="", queue="default", submitted=NOW, command="/bin/true")
    return new_jobs.add(tx, [_new(job, n, asked[n % len(asked)]) for n in range(count)])


def _new(job: Job, number: int, asked: ResourceRequest) -> new_jobs.NewJob:
    types = ("besteffort",) if number % 3 == 0 else ()
    return new_jobs.NewJob(replace(job, user=f"user{number % 50}", types=types), asked)


def _add_cores(tx: Tx) -> None:
    properties.add(tx, "core", int)
    cores = range(RESOURCES)
    resources.add(
        tx,
        [
            {
                "network_address": f"node{core // 32}",
                "switch": f"s{core // 640}",
                "cpu": core // 16,
                "core": core,
                "cpuset": core % 32,
            }
            for core in cores
        ],
        at=NOW,
    )


@figure("store.move", unit="moves/s", target=15_000, better="higher")
def moves() -> float:
    """Move ten thousand jobs to Hold and back, with their history, in two transactions."""
    with _database() as database:
        waiting = database.write(lambda tx: _add_jobs(tx, JOBS))
        to_hold = [move(job, JobState.HOLD, at=NOW, why="held") for job in waiting]
        back = [move(moved.job, JobState.WAITING, at=NOW, why="resumed") for moved in to_hold]

        def there_and_back() -> None:
            for moved in (to_hold, back):
                database.write(lambda tx, moved=moved: stored_moves.record(tx, moved))  # type: ignore[misc]

        return 2 * JOBS / cpu_seconds(there_and_back)


@figure("store.snapshot", unit="CPU s", target=1.0)
def snapshots() -> float:
    """Read ten thousand waiting jobs and 10,240 resources."""
    with _database() as database:
        database.write(_add_cores)
        database.write(lambda tx: _add_jobs(tx, JOBS))

        def look() -> None:
            with database.read() as tx:
                found = snapshot.read(tx, karma_window=30 * 86400, now=NOW).snapshot
            if (len(found.waiting), len(found.resources.ids)) != (JOBS, RESOURCES):
                raise AssertionError("the snapshot is not whole")

        return cpu_seconds(look)
