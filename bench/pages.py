"""What pages cost the server: 500 nodes, 10,000 live jobs, and a past of a million."""

import gc
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
from tests.web.nodeless_server import Client, Running, alone

NOW = 1_795_000_000
_NODES, _CORES, _LIVE, _RUNNING = 500, 16, 10_000, 400
_PAST = int(os.environ.get("OARLOCK_BENCH_PAST", "1000000"))
_YEAR, _DAY = 31_536_000, 86_400
_CHARTED, _MOST_BARS = 22_000, 20_000  # of the past: jobs whose resources are known, and bars of the widest chart
_APART = 9  # seconds between two planned starts
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
    """Show the chart of six hours: 2,200 jobs that ended in it, run or are planned."""
    return _costs()["/gantt"]


@figure("page.gantt-wide", unit="CPU ms", target=700)
def gantt_wide() -> float:
    """Show a chart of nearly 20,000 jobs: a week."""
    return _costs()[_wide_chart()]


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


@figure("page.next", unit="kB", target=40)
def next_page() -> float:
    """Load the largest of the other pages, whose files are there already, compressed."""
    with _site(past=0) as client:
        pages = ("/jobs", "/jobs/1", "/nodes", "/nodes/node-001", "/scheduler", "/energy", "/me", "/waste")
        return max(len(_content(client, path)) for path in pages) / 1000


@figure("page.next-gantt", unit="kB", target=40)
def next_gantt() -> float:
    """Load the chart of 2,000 jobs on 500 nodes, compressed."""
    with _site(past=0) as client:
        return len(_content(client, "/gantt")) / 1000


def _content(client: Client, path: str) -> bytes:
    with client.connected() as connection:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        content: bytes = connection.getresponse().read()
        return content


def _wide_chart() -> str:
    seconds = (_MOST_BARS - _RUNNING - 300) * (_YEAR // _PAST)
    return f"/gantt?since={NOW - seconds}&until={NOW}"


def _paths() -> list[str]:
    return [
        "/", "/jobs", f"/jobs/{_PAST + 1}", "/gantt", _wide_chart(), "/users/nobody?days=365",
        "/projects/default?days=365", "/waste", "/nodes", "/nodes/node-001", "/scheduler", "/energy", "/me",
    ]  # fmt: skip


@cache
def _costs() -> dict[str, float]:
    with _site() as client:
        return {path: cost(client, path) for path in _paths()}


def cost(client: Client, path: str, *, least: int = 0) -> float:
    """Return the CPU time of this process, in which the server runs, for one page of that many bytes at least."""
    spent = []
    with client.connected() as connection:
        for _ in range(_TIMES + 2):
            before = time.process_time()
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            reply = connection.getresponse()
            content = reply.read()
            if reply.status != 200 or len(content) < least:
                raise ValueError(f"{path}: {reply.status}, {len(content)} bytes")
            spent.append(1000 * (time.process_time() - before))
    return median(spent[2:])


@contextmanager
def _site(*, past: int = _PAST) -> Iterator[Client]:
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as folder, site(Path(folder), past=past) as api:
        yield api.client_of("nobody")


@contextmanager
def site(folder: Path, *, past: int) -> Iterator[Running]:
    """Serve the cluster with so many jobs of the past; what was made in `folder` before is used again."""
    path = folder / "oarlock.db"
    if not path.exists():
        with open_database(path, create=True, marker=folder / "oarlock.db.created") as database:
            ids = database.write(_nodes)
            database.write(lambda tx: _past(tx, past) if past else None)
            database.write(lambda tx: _present(tx, ids))
    with alone(path, job_min_uid=1, support=("nobody",)) as api:
        api.core.clock.at = NOW
        gc.collect()
        gc.freeze()  # as a server does at its start
        yield api


def _past(tx: Tx, past: int) -> None:
    """Add jobs of the last year, all at once, with their summaries, the sums of days and, of the last, resources."""
    users = "CASE n % 4 WHEN 0 THEN 'nobody' WHEN 1 THEN 'daemon' WHEN 2 THEN 'games' ELSE 'backup' END"
    numbers = f"WITH RECURSIVE past(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM past WHERE n < {past})"
    stop, ran = f"({NOW} - 60 - ({past} - n) * {_YEAR // past})", "(3600 + n % 7200)"
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO jobs (job_id, state, job_user, queue_name, job_name, submission_time, start_time,"
        " stop_time, array_id, assigned_moldable_job, accounted)"
        f" SELECT n, 'Terminated', {users}, 'default', 'past' || (n % 50), {stop} - {ran} - 300, {stop} - {ran},"
        f" {stop}, n, n, 'YES' FROM past"
    )
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime,"
        " moldable_index) SELECT n, n, 14400, 'LOG' FROM past"
    )
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO job_summaries (job_id, date, run_seconds, walltime, core_seconds, cpu_seconds, samples,"
        f" booked) SELECT n, {stop}, {ran}, 14400, 4 * {ran}, 0.4 * {ran} * (n % 11), 20, 1 FROM past"
    )
    tx.exec_driver_sql(
        f"{numbers} INSERT INTO assigned_resources (moldable_job_id, resource_id, assigned_resource_index)"
        f" SELECT n, (n * 4 + core.value) % {_NODES * _CORES} + 1, 'LOG' FROM past, (SELECT 0 AS value UNION SELECT 1"
        f" UNION SELECT 2 UNION SELECT 3) core WHERE n > {past - _CHARTED}"
    )
    tx.exec_driver_sql(
        "WITH RECURSIVE days(t) AS (SELECT 0 UNION ALL SELECT t + 1 FROM days WHERE t < 365)"
        " INSERT INTO usage_days (day, user_name, project, queue_name, jobs, core_seconds, core_busy_seconds)"
        f" SELECT {NOW // _DAY * _DAY} - {_DAY} * t, u.value, 'default', 'default', 9, 1e6, 5e5 FROM days, (SELECT"
        " 'nobody' AS value UNION SELECT 'daemon' UNION SELECT 'games' UNION SELECT 'backup') u"
    )


def _nodes(tx: Tx) -> list[int]:
    properties.add(tx, "core", int)
    rows: list[dict[str, Value]] = [
        {"network_address": f"node-{node:03}", "core": node * _CORES + core, "cpuset": str(core)}
        for node in range(_NODES)
        for core in range(_CORES)
    ]
    return resources.add(tx, rows, at=NOW - _YEAR)


def _present(tx: Tx, ids: list[int]) -> None:
    """Add jobs that run, and those that wait with their place in the plan."""
    made = new_jobs.add(tx, [_new(number) for number in range(_LIVE)])
    for place, running in enumerate(made[:_RUNNING]):
        run(tx, running, ids[place * _CORES : (place + 1) * _CORES], at=NOW - 100)
    first = made[_RUNNING].id
    waiting = f"FROM moldable_job_descriptions WHERE moldable_job_id >= {first}"
    tx.exec_driver_sql(
        "INSERT INTO gantt_jobs_predictions_visu"
        f" SELECT moldable_id, {NOW} + 60 + {_APART} * (moldable_job_id - {first}) {waiting}"
    )
    tx.exec_driver_sql(
        f"INSERT INTO gantt_jobs_resources_visu SELECT m.moldable_id, r.resource_id FROM (SELECT moldable_id,"
        f" (moldable_job_id - {first}) % {_NODES} AS node {waiting}) m"
        f" JOIN resources r ON (r.resource_id - 1) / {_CORES} = m.node"
    )


def _new(number: int) -> Any:
    user = _USERS[number % len(_USERS)]
    job = Job(id=0, state=JobState.WAITING, user=user, queue="default", name=f"job{number % 40}", submitted=NOW - 500)
    return new_jobs.NewJob(job, requests.parse([f"/network_address=1/core={_CORES},walltime=1"]))
