"""A real Slurm with slurmdbd on MariaDB, read by its commands and by the account that was granted: `make soak`."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from oarlock.server.sources.accounted import AccountedUsages
from oarlock.server.sources.slurm_commands import SlurmCommands
from oarlock.store.sources.connections import ForeignDatabase, parse_address
from oarlock.store.sources.slurm import SlurmDatabase
from tests.measure.test_real_slurm import ACCOUNT, NODE, USER, Slurm, leftovers
from tests.monitoring import ROOT, needs_cgroups
from tests.sources.test_oar import Portal
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.soak, pytest.mark.timeout(420), needs_cgroups,
    *(pytest.mark.component(name) for name in ("slurmd", "slurmctld", "slurmdbd", "munged", "mariadb")),
]  # fmt: skip

MEGABYTES, SPENT = 150, 4
SCRIPT = f"""#!/bin/sh
srun /usr/bin/python3 -S -c '
import time
x, end = bytearray({MEGABYTES} << 20), time.time() + 11  # memory is sampled every 5 s
while time.process_time() < {SPENT} or time.time() < end: pass'
exit 3
"""
EVERYTHING = ["Running", "Waiting", "Hold", "Terminated", "Error"]


class History:
    """The jobs that ran, and between which instants the node was down."""

    def __init__(self, slurm):
        self.slurm = slurm
        submit = ["sbatch", "--parsable", f"--account={ACCOUNT}", "--output=/dev/null", "--chdir=/tmp", "--time=10"]
        (slurm.folder / "job.sh").write_text(SCRIPT)
        (slurm.folder / "job.sh").chmod(0o755)
        self.worked = self._submit(
            *submit, "--job-name=work|\nx", "--ntasks=1", "--mem=400", str(slurm.folder / "job.sh")
        )
        self._over()
        self.cancelled = self._submit(*submit, "--mem=100", "--wrap=sleep 300")
        wait_until(lambda: "RUNNING" in slurm.run("squeue", "--noheader", "--format=%T"), "the second job", 60)
        slurm.run("scancel", str(self.cancelled))
        self._over()
        self.down = int(time.time())
        slurm.run("scontrol", "update", f"NodeName={NODE}", "State=DOWN", "Reason=cooling")
        wait_until(lambda: time.time() > self.down + 3, "some seconds of down", 20)
        slurm.run("scontrol", "update", f"NodeName={NODE}", "State=RESUME")
        self.up = int(time.time())
        wait_until(lambda: "idle" in slurm.run("sinfo", "--noheader", "--format=%T"), "the node", 60)
        self.runs = self._submit(*submit, "--job-name=runs", "--ntasks=1", "--mem=100", "--wrap=sleep 300")
        wait_until(lambda: "RUNNING" in slurm.run("squeue", "--noheader", "--format=%T"), "the third job", 60)
        wait_until(self._is_written, "slurmdbd to have written it all", 60)

    def _submit(self, *command):
        return int(self.slurm.run(*command, user=USER))

    def _over(self):
        wait_until(lambda: not self.slurm.run("squeue", "--noheader"), "the job to end", 90)

    def _is_written(self):
        lines = self.slurm.run(
            "sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--format=JobIDRaw,State"
        )
        return re.findall(r"^(\d+)\|(\w+)", lines, re.MULTILINE) == [
            (str(self.worked), "FAILED"), (str(self.cancelled), "CANCELLED"), (str(self.runs), "RUNNING"),
        ]  # fmt: skip


@pytest.fixture(scope="module")
def history(mariadb):
    mariadb.run("CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost IDENTIFIED BY 'pw';")
    mariadb.run("GRANT ALL ON slurm_acct_db.* TO slurm@localhost;")
    folder = Path(tempfile.mkdtemp(prefix="oarlock-slurm-"))
    folder.chmod(0o755)
    try:
        with ExitStack() as stack:
            slurm = Slurm(folder, stack, database=mariadb.socket)
            slurm.run("sacctmgr", "--immediate", "add", "account", ACCOUNT, "Cluster=soak")
            slurm.run("sacctmgr", "--immediate", "add", "user", USER, f"Account={ACCOUNT}", "Cluster=soak")
            yield History(slurm)
            slurm.run("scancel", "--full", "--user", USER, check=False)
            wait_until(lambda: not slurm.run("squeue", "--noheader"), "the job to end", 60)
        for place in leftovers():
            place.rmdir()
    finally:
        shutil.rmtree(folder)
        mariadb.run("DROP DATABASE slurm_acct_db; DROP USER slurm@localhost;")


async def _check(portal, history):
    """What is the same by both ways."""
    await portal.core.follower.look()
    assert [health.says for health in portal.core.follower.health] == [""] * 4
    jobs = {job.id: job for job in (await portal.ask("jobs.list", states=EVERYTHING)).jobs}
    assert {number: (job.state, job.owner, job.project, job.walltime) for number, job in jobs.items()} == {
        history.worked: ("Terminated", USER, ACCOUNT, 600), history.cancelled: ("Error", USER, ACCOUNT, 600),
        history.runs: ("Running", USER, ACCOUNT, 600),
    }  # fmt: skip
    worked = await portal.ask("jobs.show", id=history.worked)
    assert (worked.assigned_network_address, worked.exit_code) == ([NODE], 3 << 8)
    assert 11 <= worked.stop - worked.start < 90
    assert (await portal.ask("jobs.show", id=history.cancelled)).message == "Slurm: CANCELLED"
    overview = await portal.ask("overview")
    assert [(node.name, node.state, node.cores, node.held) for node in overview.nodes] == [(NODE, "alive", 2, 1)]
    chart = await portal.ask("gantt", since=history.down - 300, until=int(time.time()) + 60)
    away = {(bar.state, bar.start, bar.stop) for bar in chart.states if bar.stop - bar.start >= 2}
    assert len(chart.states) % 2 == 0, "both cores, each time"
    assert [state for state, start, stop in away if abs(start - history.down) <= 2 and abs(stop - history.up) <= 2] == [
        "Dead"
    ]


def _portal(folder, source):
    portal = Portal(folder, source, source_history=1, cluster_name="soak")
    portal.core.clock.now = time.time
    return portal


def test_commands_tell_of_jobs_their_use_and_states_of_nodes(history, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", history.slurm.environment["SLURM_CONF"])
    source = SlurmCommands()

    async def story():
        portal = _portal(tmp_path, source)
        try:
            await _check(portal, history)
            usage = source.usage([history.worked, history.cancelled])
            assert usage[history.worked].cpus == 1
            assert SPENT <= usage[history.worked].cpu_seconds <= usage[history.worked].seconds + 1
            assert usage[history.worked].memory_asked_bytes == 400 << 20
            assert usage[history.worked].memory_most_bytes == pytest.approx(MEGABYTES << 20, rel=0.2)
            monkeypatch.setattr("oarlock.server.sources.accounted._SETTLED", 0)
            accounted = AccountedUsages(portal.core, source)
            assert await accounted.look() == 2
            report = (await portal.ask("jobs.report", id=history.worked)).text
            assert any("of 400 MiB" in line for line in report), report
            accounted.close()
        finally:
            await portal.close()

    asyncio.run(story())


def test_the_granted_account_tells_the_same(history, mariadb, tmp_path):
    command = [sys.executable, "-m", "oarlock", "sources", "slurm", "--grant", "--cluster", "soak"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    granted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    mariadb.run(granted.stdout.replace("CHANGE-THIS", "pw"))
    address = parse_address(mariadb.url("oarlock", "slurm_acct_db"), "pw")

    async def story():
        portal = _portal(tmp_path, SlurmDatabase(ForeignDatabase(address, "Slurm's database")))
        try:
            await _check(portal, history)
        finally:
            await portal.close()

    try:
        asyncio.run(story())
        reading = [
            "mariadb",
            "--no-defaults",
            f"--socket={mariadb.socket}",
            "--user=oarlock",
            "--password=pw",
            "slurm_acct_db",
        ]
        for table in ("soak_job_table", "soak_step_table", "soak_job_script_table", "user_table"):
            ran = subprocess.run([*reading, "-e", f"SELECT * FROM {table}"], capture_output=True, text=True, timeout=20)
            assert (ran.returncode, "denied" in ran.stderr) == (1, True), table
    finally:
        mariadb.run("DROP USER oarlock@localhost;")
