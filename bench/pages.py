"""What pages cost the server: 500 nodes, 10,000 live jobs, and a past of a million."""

import gzip
import os
import re
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
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import new_jobs
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


@figure("page.gantt", unit="CPU ms", target=150)
def gantt() -> float:
    """Show the chart of six hours: 400 jobs that run, and those that are planned in it."""
    return _costs()["/gantt"]


@figure("page.user", unit="CPU ms", target=300)
def user() -> float:
    """Show what a user held and used in a year."""
    return _costs()["/users/nobody?days=365"]


@figure("page.project", unit="CPU ms", target=300)
def project() -> float:
    """Show what a project held and used in a year."""
    return _costs()["/projects/default?days=365"]


@figure("page.waste", unit="CPU ms", target=300)
def waste() -> float:
    """Show staff whose jobs waste what."""
    return _costs()["/waste"]


@figure("page.first-load", unit="kB", target=150)
def first_load() -> float:
    """Load the overview and all its files for the first time, compressed."""
    with _site(past=0) as client:
        page = _content(client, "/")
        files = re.findall(r'(?:href|src)="(/assets/[^"]+)"', gzip.decompress(page).decode())
        return (len(page) + sum(len(_content(client, path)) for path in files)) / 1000


def _content(client: Client, path: str) -> bytes:
    with client.connected() as connection:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        content: bytes = connection.getresponse().read()
        return content


_PATHS = (
    "/",
    "/jobs",
    f"/jobs/{_PAST + 1}",
    "/gantt",
    "/users/nobody?days=365",
    "/projects/default?days=365",
    "/waste",
)


@cache
def _costs() -> dict[str, float]:
    with _site() as client:
        return {path: _cost(client, path) for path in _PATHS}


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
def _site(*, past: int = _PAST) -> Iterator[Client]:
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as folder:
        path = Path(folder) / "oarlock.db"
        with open_database(path, create=True, marker=Path(folder) / "oarlock.db.created") as database:
            database.write(lambda tx: _past(tx, past) if past else None)
            database.write(lambda tx: _present(tx, past))
        with alone(path, job_min_uid=1, support=("nobody",)) as api:
            yield api.client_of("nobody")


def _past(tx: Tx, past: int) -> None:
    """Add jobs that ended long ago, all at once, with their summaries and the sums of their days."""
    users = "CASE n % 4 WHEN 0 THEN 'nobody' WHEN 1 THEN 'daemon' WHEN 2 THEN 'games' ELSE 'backup' END"
    numbers = f"WITH RECURSIVE past(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM past WHERE n < {past})"
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
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO job_summaries (job_id, date, run_seconds, walltime, core_seconds, cpu_seconds, samples,"
        " booked) SELECT n, n / 2 + 50, 45, 3600, 720, 72 * (n % 11), 20, 1 FROM past"
    )
    tx.exec_driver_sql(
        "INSERT INTO usage_days (day, user_name, project, queue_name, jobs, core_seconds, core_busy_seconds)"
        f" SELECT n.value, u.value, 'default', 'default', 9, 1e6, 5e5 FROM (SELECT {NOW} / 86400 * 86400 - 86400 * t"
        f" AS value FROM (WITH RECURSIVE days(t) AS (SELECT 0 UNION ALL SELECT t + 1 FROM days WHERE t < 10) SELECT t"
        " FROM days)) n, (SELECT 'nobody' AS value UNION SELECT 'daemon' UNION SELECT 'games' UNION SELECT 'backup') u"
    )


def _present(tx: Tx, past: int) -> None:
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
        f" FROM moldable_job_descriptions WHERE moldable_job_id > {past + _RUNNING}"
    )


def _new(number: int) -> Any:
    user = _USERS[number % len(_USERS)]
    job = Job(id=0, state=JobState.WAITING, user=user, queue="default", name=f"job{number % 40}", submitted=NOW - 500)
    return new_jobs.NewJob(job, requests.parse([f"/network_address=1/core={_CORES},walltime=1"]))
