"""What the agent costs: CPU time and memory of samples of many jobs, in real cgroups of version 1.

One process sleeps in the cgroups of each job, as in the comparison with other programs. `agent.busy` wakes each of
them before every sample, so that no job is passed over because nothing happened to it.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.harness import figure
from oarlock.measure.agent import Agent
from oarlock.measure.options import AgentOptions
from oarlock.node.sources import assemble
from oarlock.node.sources.files import Hierarchy, allow_many_files, mounted_hierarchies

MANY, FEW = 1000, 10
_TURNS = 7
_IDLE_SECONDS = 20.0
_CONTROLLERS = {"cpuacct", "cpu", "cpuset", "memory", "blkio", "pids"}
_CROWD = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    print(pid)
print("all", flush=True)
signal.pause()
"""


@figure("agent.cgroup", unit="ms of CPU a sample", target=40)
def cgroup() -> float:
    """Sample all cgroup metrics of 1000 jobs, and make the text."""
    return _sample_cost(assemble.CGROUP)


@figure("agent.busy", unit="ms of CPU a sample", target=80)
def busy() -> float:
    """Do the same when every job did something since the sample before."""
    return _sample_cost(assemble.CGROUP, wake=True)


@figure("agent.proc", unit="ms of CPU a sample", target=100)
def proc() -> float:
    """Sample the same with all that /proc tells of one process a job."""
    return _sample_cost((*assemble.CGROUP, "processes"))


@figure("agent.rss", unit="MB", target=40)
def rss() -> float:
    """Give the memory of a whole agent that measures 1000 jobs with all usual sources and is scraped."""
    with _jobs(MANY) as (_, pids), _agent() as (agent, url):
        for _ in range(3):
            _wake(pids)
            time.sleep(1.5)
            found = _page(url).count(b"\nslurm_job_memory_usage{")
            if found != MANY:
                raise RuntimeError(f"the agent sees {found} jobs instead of {MANY}")
        status = Path(f"/proc/{agent.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@figure("agent.idle", unit="% of one core", target=0.5)
def idle() -> float:
    """Give the share of a core that an agent of 10 jobs takes which samples every second."""
    with _jobs(FEW), _agent() as (agent, url):
        _page(url)
        before = _cpu_nanoseconds(agent.pid)
        time.sleep(_IDLE_SECONDS)
        return (_cpu_nanoseconds(agent.pid) - before) / 1e9 / _IDLE_SECONDS * 100


def _sample_cost(sources: tuple[str, ...], *, wake: bool = False) -> float:
    allow_many_files()
    with _jobs(MANY) as (trees, pids):
        agent = Agent(AgentOptions(sources=sources, control="none"), hierarchies=lambda: trees)
        try:
            if len(agent.sample().subjects) != MANY:
                raise RuntimeError("not all jobs were found")
            return min(_cost(agent, pids if wake else []) for _ in range(_TURNS)) * 1e3
        finally:
            agent.close()


def _cost(agent: Agent, pids: list[int]) -> float:
    _wake(pids)
    before = time.process_time()
    agent.sample()
    return time.process_time() - before


def _wake(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    time.sleep(0.3)


@contextmanager
def _jobs(count: int) -> Iterator[tuple[list[Hierarchy], list[int]]]:
    """Make cgroups of so many Slurm jobs, with a waiting process in each; all are gone at the end."""
    name = f"oarlock-bench-{os.getpid()}"
    real = [one for one in mounted_hierarchies() if set(one.controllers) & _CONTROLLERS]
    if os.geteuid() != 0 or not any("cpuacct" in one.controllers for one in real):
        raise RuntimeError("cgroups of version 1, and root, are needed")
    trees = [Hierarchy(f"{one.root}/{name}", one.controllers) for one in real]
    directories = [[Path(tree.root) / "slurm/uid_1000" / f"job_{n}" for tree in trees] for n in range(1, count + 1)]
    crowd = subprocess.Popen([sys.executable, "-S", "-c", _CROWD, str(count)], stdout=subprocess.PIPE,
                             start_new_session=True, text=True)  # fmt: skip
    try:
        assert crowd.stdout
        pids = [int(line) for line in iter(crowd.stdout.readline, "all\n")]
        for pid, places in zip(pids, directories, strict=True):
            for place in places:
                _make(place)
                (place / "cgroup.procs").write_text(str(pid))
        yield trees, pids
    finally:
        os.killpg(crowd.pid, signal.SIGKILL)
        crowd.wait()
        for tree in trees:
            _remove(Path(tree.root))


def _make(place: Path) -> None:
    if place.exists():
        return
    _make(place.parent)
    place.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):  # without these a cpuset takes no process
        if (place / name).exists():
            (place / name).write_text((place.parent / name).read_text())


def _remove(root: Path) -> None:
    deadline = time.monotonic() + 30
    for place in sorted(root.glob("**/"), reverse=True):
        while place.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                place.rmdir()
                break
            time.sleep(0.02)


@contextmanager
def _agent() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a whole agent that samples each second; it is ended and waited for."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "oarlock", "agent", "--period", "1", "--listen", f"127.0.0.1:{port}",
               "--control", "none", "--layout", "slurm"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as agent:
        try:
            yield agent, f"http://127.0.0.1:{port}/metrics"
        finally:
            agent.terminate()


def _page(url: str) -> bytes:
    """Read the agent's page, once it has one."""
    deadline = time.monotonic() + 60
    while True:
        try:
            page: bytes = urllib.request.urlopen(url, timeout=30).read()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return page


def _cpu_nanoseconds(pid: int) -> int:
    """Add up the time of all its threads, which schedstat counts exactly."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
