"""Nothing acknowledged is lost: not to kill -9, not to a full disk."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.errors import DatabaseRefused
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs
from tests.store.cluster import add_job, rows

_WRITER = """
import sys, threading
from oarlock.store.engine.opening import open_database
from tests.store.cluster import add_job

database = open_database(sys.argv[1])
database.lock(now=0)

def submit():
    while True:
        job = database.write(lambda tx: add_job(tx, types=("deploy",)))
        sys.stdout.write(f"{job.id}\\n")
        sys.stdout.flush()

for _ in range(4):
    threading.Thread(target=submit).start()
"""


def _killed_after(place: str, count: int) -> set[int]:
    """Let a process submit jobs and kill it when it has acknowledged some; give the numbers it did acknowledge."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, place],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "src:."},
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(count)]
    process.kill()
    rest, _ = process.communicate()
    return {int(line) for line in [*told, *rest.splitlines(keepends=True)] if line.endswith("\n")}


def test_what_was_acknowledged_survives_kill_9(place: str):
    acknowledged: set[int] = set()
    for _ in range(3):
        told = _killed_after(place, random.randrange(1, 80))
        assert not told & acknowledged, "a number was given twice"
        acknowledged |= told
        with open_database(place) as database, database.read() as tx:
            there = {number for (number,) in rows(tx, "SELECT job_id FROM jobs")}
            assert acknowledged <= there
            # Whole jobs only: each with its request, its type and its line of history.
            assert rows(
                tx,
                "SELECT count(*) FROM jobs JOIN moldable_job_descriptions ON moldable_job_id = jobs.job_id "
                "JOIN job_resource_groups ON res_group_moldable_id = moldable_id "
                "JOIN job_types ON job_types.job_id = jobs.job_id "
                "JOIN job_state_logs ON job_state_logs.job_id = jobs.job_id",
            ) == [(len(there),)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs to mount a small disk (root)")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("together", [1, 20])
def test_a_full_disk_refuses_and_heals(small_disk: Path, together: int):
    def big(tx: Tx) -> int:
        return add_job(tx, command="x" * 5000).id

    with open_database(small_disk / "oarlock.db", create=True) as database:
        acknowledged: set[int] = set()
        refused: list[DatabaseRefused] = []
        while not refused:
            for future in [database.submit(big) for _ in range(together)]:
                try:
                    acknowledged.add(future.result(30))
                except DatabaseRefused as error:
                    refused.append(error)
        assert {str(error) for error in refused} == {
            "The change was not accepted: the disk that holds the database is full."
        }
        with database.read() as tx:
            assert {job.id for job in jobs.in_states(tx, list(jobs.count(tx)))} == acknowledged
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        acknowledged.add(database.write(big))
    with open_database(small_disk / "oarlock.db") as database, database.read() as tx:
        assert {number for (number,) in rows(tx, "SELECT job_id FROM jobs")} == acknowledged


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_database_whose_file_is_gone_acknowledges_nothing(sqlite_path: Path, what: str):
    aside = sqlite_path.with_name("aside.db")
    with open_database(sqlite_path) as database:
        before = database.write(add_job).id
        sqlite_path.rename(aside)
        if what == "replaced":
            sqlite_path.write_bytes(aside.read_bytes())
        for _ in range(3):
            with pytest.raises(DatabaseRefused, match=f"oarlock.db was {what} while the server worked on it"):
                database.write(add_job)
        aside.rename(sqlite_path)
        after = database.write(add_job).id
        with database.read() as tx:
            assert rows(tx, "SELECT job_id FROM jobs ORDER BY job_id") == [(before,), (after,)]
