"""What pages cost the server: 500 nodes, 10,000 live jobs, and a past of a million."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import figure
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState
from oarlock.model.resource import Value
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import new_jobs, properties, resources
from tests.store.cluster import run
from tests.web.nodeless_server import NOW, Client, alone

_NODES, _CORES, _LIVE, _RUNNING = 500, 16, 10_000, 400
_PAST = int(os.environ.get("OARLOCK_BENCH_PAST", "1000000"))
_TIMES = 7
_USERS = ("nobody", "daemon", "games", "backup")


@figure("page.overview", unit="CPU ms", target=100)
def overview() -> float:
    """Show the overview."""
    return _costs()["/"]


@figure("page.jobs", unit="CPU ms", target=100)
def jobs() -> float:
    """Show the first 50 of the live jobs."""
    return _costs()["/jobs"]


@figure("page.job", unit="CPU ms", target=100)
def job() -> float:
    """Show a job that runs."""
    return _costs()[f"/jobs/{_PAST + 1}"]


@cache
def _costs() -> dict[str, float]:
    with _site() as client:
        return {path: _cost(client, path) for path in ("/", "/jobs", f"/jobs/{_PAST + 1}")}


def _cost(client: Client, path: str) -> float:
    """Return the CPU time of this process, in which the server runs, for one page."""
    spent = []
    with client.connected() as connection:
        for _ in range(_TIMES + 2):
            before = time.process_time()
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            reply = connection.getresponse()
            reply.read()
            if reply.status != 200:
                raise ValueError(f"{path}: {reply.status}")
            spent.append(1000 * (time.process_time() - before))
    return median(spent[2:])


@contextmanager
def _site() -> Iterator[Client]:
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as folder:
        path = Path(folder) / "oarlock.db"
        with open_database(path, create=True, marker=Path(folder) / "oarlock.db.created") as database:
            database.write(_past)
            database.write(_present)
        with alone(path, job_min_uid=1) as api:
            yield api.client_of("nobody")


def _past(tx: Tx) -> None:
    """Add jobs that ended long ago, all at once."""
    users = "CASE n % 4 WHEN 0 THEN 'nobody' WHEN 1 THEN 'daemon' WHEN 2 THEN 'games' ELSE 'backup' END"
    numbers = f"WITH RECURSIVE past(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM past WHERE n < {_PAST})"
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO jobs (job_id, state, job_user, queue_name, job_name, submission_time, start_time,"
        " stop_time, array_id, accounted)"
        f" SELECT n, 'Terminated', {users}, 'default', 'past' || (n % 50), n / 2, n / 2 + 5, n / 2 + 50, n, 'YES'"
        " FROM past"
    )
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime,"
        " moldable_index) SELECT n, n, 3600, 'LOG' FROM past"
    )


def _present(tx: Tx) -> None:
    properties.add(tx, "core", int)
    rows: list[dict[str, Value]] = [
        {"network_address": f"node-{node:03}", "core": node * _CORES + core, "cpuset": str(core)}
        for node in range(_NODES)
        for core in range(_CORES)
    ]
    ids = resources.add(tx, rows, at=NOW)
    made = new_jobs.add(tx, [_new(number) for number in range(_LIVE)])
    for place, running in enumerate(made[:_RUNNING]):
        run(tx, running, ids[place * _CORES : (place + 1) * _CORES], at=NOW - 100)
    tx.exec_driver_sql(
        "INSERT INTO gantt_jobs_predictions_visu SELECT moldable_id, 1000000 + moldable_id % 90000"
        f" FROM moldable_job_descriptions WHERE moldable_job_id > {_PAST + _RUNNING}"
    )


def _new(number: int) -> Any:
    user = _USERS[number % len(_USERS)]
    job = Job(id=0, state=JobState.WAITING, user=user, queue="default", name=f"job{number % 40}", submitted=NOW - 500)
    return new_jobs.NewJob(job, requests.parse([f"/network_address=1/core={_CORES},walltime=1"]))
