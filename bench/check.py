"""How long `oarlock check` takes for 100,000 past jobs, each with its whole history."""

import os
import tempfile
import time
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from bench.harness import figure
from oarlock.config import Config
from oarlock.server import check as checks
from oarlock.store.engine.opening import open_database
from tests.scenarios.cluster import Cluster

_JOBS = int(os.environ.get("OARLOCK_BENCH_CHECKED", "100000"))
_NUMBERS = {
    "jobs": ("job_id", "array_id", "assigned_moldable_job"),
    "job_state_logs": ("job_state_log_id", "job_id"),
    "attempts": ("job_id",),
    "attempt_nodes": ("job_id",),
    "moldable_job_descriptions": ("moldable_id", "moldable_job_id"),
    "job_resource_groups": ("res_group_id", "res_group_moldable_id"),
    "job_resource_descriptions": ("res_job_group_id",),
    "assigned_resources": ("moldable_job_id",),
    "event_logs": ("event_id", "job_id"),
}
"""Tables with rows of a job, and their columns that are other numbers for another job."""

_STATES = 6  # a job goes through


@figure("check.jobs", unit="s", target=10)
def check() -> float:
    """Check all invariants of a database on disk, everything in it being right."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        with open_database(state / "oarlock.db", create=True) as database:
            cluster = Cluster(database, nodes=1)
            cluster.submit("sleep 100")
            cluster.finish()
            database.write(lambda tx: copy_the_job(tx, _JOBS))
        before = time.process_time()
        done = checks.check(state, Config(), progress=lambda *_: None)
        spent = time.process_time() - before
    if done.findings or done.jobs != _JOBS:
        raise AssertionError(f"{done.jobs} jobs, {done.findings[:3]}")
    return spent


def copy_the_job(tx: Connection, count: int) -> None:
    """Make `count` jobs of the one that there is, each with its own rows in all tables."""
    for table, numbers in _NUMBERS.items():
        columns = [column["name"] for column in inspect(tx).get_columns(table)]
        step = _STATES if table == "job_state_logs" else 1
        shown = ", ".join(
            f"{name} + n * {step if name == 'job_state_log_id' else 1}" if name in numbers else name for name in columns
        )
        tx.execute(
            text(
                f"WITH RECURSIVE others(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM others WHERE n < {count - 1}) "
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {shown} FROM others, {table} ORDER BY n"
            )
        )
    tx.execute(text(f"UPDATE accounting SET consumption = consumption * {count}"))
