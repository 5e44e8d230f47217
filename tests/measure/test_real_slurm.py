"""A real Slurm, set up and torn down here, runs a job that an agent measures: `make soak`."""

import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import h5py
import pytest

from oarlock.node.sources.files import mounted_hierarchies
from tests.measure.real import free_port
from tests.monitoring import ROOT, needs_cgroups
from tests.waiting import wait_until

NODE, ACCOUNT, MEGABYTES = "soak1", "physics", 150
USER = "nobody"
CONF = """
ClusterName=soak
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=2 RealMemory=2000
PartitionName=main Nodes={node} Default=YES State=UP
"""
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainCores=yes\nConstrainRAMSpace=yes\n"
SCRIPT = f"""#!/bin/sh
sh -c 'while :; do :; done' &
exec /usr/bin/python3 -S -c '
x = bytearray({MEGABYTES} << 20)
while True: pass'
"""

pytestmark = [
    pytest.mark.soak, pytest.mark.component("slurmd"), pytest.mark.component("slurmctld"),
    pytest.mark.component("munged"), needs_cgroups,
]  # fmt: skip


ACCOUNTING_CONF = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket
"""
DATABASE_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=pw
StorageLoc=slurm_acct_db
"""


class Slurm:
    """munged, slurmctld and slurmd with a folder, ports and a node name of their own.

    `database` is the socket of a MariaDB for slurmdbd, which is started if there is one.
    """

    def __init__(self, folder: Path, stack: ExitStack, *, database: Path | None = None):
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        ports = {"controller_port": free_port(), "node_port": free_port()}
        conf = CONF.format(folder=folder, host=socket.gethostname(), node=NODE, **ports)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        self._munge(stack)
        if database is not None:
            conf += self._account(stack, database)
        (folder / "slurm.conf").write_text(conf)
        (folder / "cgroup.conf").write_text(CGROUP_CONF)
        if database is not None:
            wait_until(
                lambda: self.run("sacctmgr", "--immediate", "add", "cluster", "soak", check=False) != "", "slurmdbd", 60
            )
        self._start(stack, "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        self._start(stack, "slurmd", "-D", "-N", NODE, "-f", str(folder / "slurm.conf"))
        wait_until(
            lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T", check=False), "a node that is idle", 60
        )

    def _account(self, stack: ExitStack, database: Path) -> str:
        """Start slurmdbd; return the settings by which the others find it."""
        self.environment["MYSQL_UNIX_PORT"] = str(database)
        port, own = free_port(), self.folder / "slurmdbd.conf"
        own.touch(mode=0o600)
        own.write_text(DATABASE_CONF.format(folder=self.folder, port=port, host=socket.gethostname()))
        (self.folder / "slurm.conf").write_text("ClusterName=soak\n")
        self._start(stack, "slurmdbd", "-D")
        return ACCOUNTING_CONF.format(folder=self.folder, port=port)

    def _munge(self, stack: ExitStack) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("log", "pid", "seed")]
        self._start(stack, "munged", "--foreground", "--force", f"--key-file={key}", *files,
                    f"--socket={self.folder}/munge.socket")  # fmt: skip
        wait_until(lambda: (self.folder / "munge.socket").exists(), "munge", 20)

    def _start(self, stack: ExitStack, *command: str) -> None:
        log = stack.enter_context((self.folder / f"{command[0]}.out").open("wb"))
        path = shutil.which(command[0], path="/usr/sbin:/usr/bin")
        program = subprocess.Popen([path, *command[1:]], env=self.environment, stdout=log, stderr=log)
        stack.callback(program.wait, 60)
        stack.callback(program.terminate)

    def run(self, *command: str, user: str | None = None, check: bool = True) -> str:
        ran = subprocess.run(command, env=self.environment, cwd="/tmp", capture_output=True, text=True, timeout=30,
                             user=user, check=False)  # fmt: skip
        assert not check or ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout


def leftovers():
    """Give the groups that this Slurm made, innermost first."""
    found = [place for root in Path("/sys/fs/cgroup").iterdir() for place in (root / f"slurm_{NODE}").glob("**/")]
    return sorted(found, reverse=True)


@pytest.fixture
def slurm():
    folder = Path(tempfile.mkdtemp(prefix="oarlock-slurm-"))
    folder.chmod(0o755)
    try:
        with ExitStack() as stack:
            made = Slurm(folder, stack)
            yield made
            made.run("scancel", "--full", "--user", USER, check=False)
            wait_until(lambda: not made.run("squeue", "--noheader"), "the job to end", 60)
        for place in leftovers():
            place.rmdir()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def look_up():
    return "slurm"


@pytest.fixture
def agent(slurm, look_up):
    port = free_port()
    command = [sys.executable, "-m", "oarlock", "agent", "--layout", "slurm", "--period", "1", "--look-up", look_up,
               "--listen", f"127.0.0.1:{port}", "--control", "none"]  # fmt: skip
    environment = {**slurm.environment, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as program:
        yield lambda: page(port)
        program.terminate()


def page(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def value(text, name, job, **labels):
    """Add up the series of a job."""
    wanted = [f'slurmjobid="{job}"', *(f'{label}="{said}"' for label, said in labels.items())]
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{") and all(one in line for one in wanted)]
    return sum(float(line.split()[-1]) for line in lines)


def test_a_job_of_a_real_slurm_has_its_owners_name(slurm, agent):
    (slurm.folder / "job.sh").write_text(SCRIPT)
    submitted = slurm.run("sbatch", f"--account={ACCOUNT}", "--job-name=wave", "--ntasks=2", "--mem=400",
                          "--output=/dev/null", str(slurm.folder / "job.sh"), user=USER)  # fmt: skip
    job = re.search(r"job (\d+)", submitted)[1]
    wait_until(lambda: value(agent(), "slurm_job_memory_rss", job) > MEGABYTES << 20, "the job's memory", 60)
    own = Path(next(h.root for h in mounted_hierarchies() if "cpuacct" in h.controllers))
    usage = own / f"slurm_{NODE}" / f"uid_{pwd.getpwnam(USER).pw_uid}" / f"job_{job}" / "cpuacct.usage"
    begin, first, before = time.time(), value(agent(), "slurm_job_core_usage_total", job), int(usage.read_text())
    wait_until(lambda: time.time() - begin > 30, "half a minute", 40)
    text, after = agent(), int(usage.read_text())
    measured = value(text, "slurm_job_core_usage_total", job) - first
    report(measured, after - before, text, job)
    assert measured == pytest.approx(after - before, rel=0.05)
    assert value(text, "slurm_job_memory_rss", job) == pytest.approx(MEGABYTES << 20, rel=0.1)
    assert value(text, "slurm_job_memory_limit", job) == 400 << 20
    assert value(text, "slurm_job_core_usage_total", job, user=USER, account=ACCOUNT) > 0
    assert re.search(rf'oarlock_node_job_info\{{job_id="{job}",user="{USER}",account="{ACCOUNT}",name="wave",'
                     rf'manager="slurm",node="{NODE}"\}} 1', text)  # fmt: skip
    steps = re.findall(rf'oarlock_job_step_cpu_seconds_total\{{step="(\w+)",job_id="{job}"[^\n]*\}} ([0-9.e+]+)', text)
    assert "batch" in dict(steps)
    assert sum(float(spent) for _, spent in steps) == pytest.approx(int(usage.read_text()) / 1e9, rel=0.2)
    slurm.run("scancel", "--full", job)
    wait_until(lambda: agent() and f'slurmjobid="{job}"' not in agent(), "the job's series to vanish", 60)


@pytest.mark.parametrize("look_up", ["none"])
def test_processes_and_account_of_short_jobs_are_seen_without_a_look_up(slurm, agent):
    """Nothing rescans within the life of these jobs: their steps are seen when the kernel tells of them."""
    wait_until(lambda: "oarlock_agent_samples_total" in agent(), "the agent", 30)
    for _ in range(6):
        submitted = slurm.run("sbatch", f"--account={ACCOUNT}", "--mem=50", "--output=/dev/null", "--wrap=sleep 5",
                              user=USER)  # fmt: skip
        job = re.search(r"job (\d+)", submitted)[1]
        # One process is the script's own, the other its `sleep`.
        wait_until(
            lambda job=job: value(agent(), "slurm_job_process_count", job, account=ACCOUNT) == 1, "its sleep", 20
        )
        count = re.search(rf'oarlock_job_processes\{{job_id="{job}"[^\n]*\}} (\d+)', agent())
        assert int(count[1]) >= 2
        slurm.run("scancel", "--full", job)
        wait_until(lambda: not slurm.run("squeue", "--noheader"), "the job to end", 60)


@pytest.fixture
def collector(tmp_path):
    """`oarlock collect` for the cluster, and how to ask it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OARLOCK_SERVER": str(tmp_path / "state/server.sock")}
    port = free_port()

    def oarlock(*words, start=False, **options):
        command = [sys.executable, "-m", "oarlock", *map(str, words)]
        if start:
            return subprocess.Popen(command, env={**environment, **options.pop("env", {})}, **options)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    oarlock.url, oarlock.folder = f"http://127.0.0.1:{port}", tmp_path
    settings = tmp_path / "oar.conf"
    settings.write_text("CLUSTER_NAME=soak\n")
    state = tmp_path / "state"
    with oarlock("collect", "--state", state, "--config", settings, "--listen", f"127.0.0.1:{port}", start=True) as own:
        wait_until((state / "server.sock").exists, "the collector", 60)
        yield oarlock
        own.terminate()


@pytest.mark.timeout(420)
def test_a_job_of_a_real_slurm_has_curves_a_file_and_its_script(slurm, collector):
    """Nothing but the agent on the node, the pusher beside slurmctld, and the collector."""
    token, scripts = collector.folder / "node.token", collector.folder / "scripts.token"
    assert collector("token", "add", "--node", NODE, "-o", token).returncode == 0
    assert collector("token", "add", "--scripts", "-o", scripts).returncode == 0
    send = ["--send", collector.url, "--token-file"]
    agent = collector("agent", "--layout", "slurm", "--period", "1", "--look-up", "slurm", "--listen", "none",
                      "--control", "none", "--node", NODE, *send, token, start=True, env=slurm.environment)  # fmt: skip
    pusher = collector("sources", "slurm-scripts", "--spool", slurm.folder / "state", "--sent",
                       collector.folder / "sent", *send, scripts, start=True)  # fmt: skip
    try:
        (slurm.folder / "job.sh").write_text(SCRIPT)
        submitted = slurm.run("sbatch", f"--account={ACCOUNT}", "--job-name=wave", "--ntasks=2", "--mem=400",
                              "--output=/dev/null", str(slurm.folder / "job.sh"), user=USER)  # fmt: skip
        job = re.search(r"job (\d+)", submitted)[1]

        def series(metric):
            view = json.loads(collector("samples", job, "-J", "-m", metric).stdout or '{"series": []}')
            return [point[2] for curve in view["series"] for point in curve["points"]]

        wait_until(lambda: len(series("cpu_seconds_total")) >= 20, "20 samples", 90)
        assert 0.1 < max(series("cpu_seconds_total")) <= 2.2  # two busy processes on two cores
        assert max(series("memory_anonymous_bytes")) == pytest.approx(MEGABYTES << 20, rel=0.1)
        script = json.loads(_get(collector, f"/jobs/{job}/script"))["script"]
        assert script == SCRIPT
        slurm.run("scancel", "--full", job)
        wait_until(lambda: '"live": false' in collector("samples", job, "-J").stdout, "its file", 240)
    finally:
        for program in (agent, pusher):
            program.terminate()
            assert program.wait(30) == 0
    assert collector("samples", job, "-o", collector.folder / "job.h5").returncode == 0
    with h5py.File(collector.folder / "job.h5") as file:
        about = dict(file[f"job_{job}"].attrs)
    assert [about[key] for key in ("owner", "project", "name", "manager", "cluster", "label")] == [
        USER, ACCOUNT, "wave", "slurm", "soak", job,
    ]  # fmt: skip


def _get(collector, path):
    token = collector("token", "add", f"reader{time.monotonic_ns()}").stdout.strip()
    request = urllib.request.Request(f"{collector.url}/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read()


def report(measured, used, text, job):
    """Print the rows of the table in docs/running-a-site/agent.md."""
    names = ("slurm_job_memory_rss", "slurm_job_memory_max", "slurm_job_memory_limit", "slurm_job_process_count")
    print(f"core time: agent {measured / 1e9:.2f} s, cgroup {used / 1e9:.2f} s")
    for name in names:
        print(f"{name}: {value(text, name, job):.0f}")
