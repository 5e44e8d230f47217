"""The life of jobs: a server process, pretended nodes of this machine, real cgroups; accounts are made and removed."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.harness import figure
from oarlock.lang import request as requests
from oarlock.model.job import FINAL, Job, JobState
from oarlock.store import jobs, resources
from oarlock.store.database import Database
from oarlock.store.opening import open_database

_JOBS = 1000
_SSH_JOBS = 300
_NODES = 4
_TICKS = os.sysconf("SC_CLK_TCK")


class Lived(NamedTuple):
    """What an array of jobs cost."""

    jobs_a_second: float
    cpu_milliseconds_a_job: float


@cache
def _array() -> Lived:
    """Run an array of `/bin/true` to its end, on 64 resources."""
    with _site() as (database, state, user):
        ids = _submit(database, user, state, count=_JOBS)
        with _server(state) as server:
            begin = _first_start(database)
            _await_end(database)
            seconds = time.monotonic() - begin
            cpu = _cpu_seconds(server.pid)
    return Lived(len(ids) / seconds, cpu * 1000 / len(ids))


@figure("life.array", unit="jobs/s", target=150, better="higher")
def array() -> float:
    """Measure how many jobs a second live and end: durable, in cgroups, accounted."""
    return _array().jobs_a_second


@figure("life.cpu", unit="ms", target=12)
def cpu() -> float:
    """Measure the CPU time of a job on server and nodes, start-up of the server included."""
    return _array().cpu_milliseconds_a_job


def _submit(database: Database, user: str, state: Path, *, count: int) -> list[int]:
    asked = requests.parse(["/resource_id=1,walltime=1"])
    job = Job(
        id=0, state=JobState.WAITING, user=user, queue="default", command="/bin/true", directory=str(state / "home")
    )
    new = [jobs.New(replace(job, array_index=n), asked) for n in range(1, count + 1)]
    return [one.id for one in database.write(lambda tx: jobs.add(tx, new))]


def _first_start(database: Database) -> float:
    while True:
        with database.read() as tx:
            if set(jobs.count(tx)) != {JobState.WAITING}:
                return time.monotonic()
        time.sleep(0.002)


def _await_end(database: Database) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with database.read() as tx:
            if set(jobs.count(tx)) <= FINAL:
                return
        time.sleep(0.02)
    raise TimeoutError("the jobs did not end within 120 s")


def _cpu_seconds(server: int) -> float:
    """Sum the CPU time of the server and of everything that it started and that is alive, the dead counted there."""
    parents = {}
    ticks = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    return sum(ticks[pid] for pid in parents if _descends(pid, server, parents)) / _TICKS


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parents.get(pid, 0)
    return False


@contextlib.contextmanager
def _server(state: Path) -> Iterator["subprocess.Popen[bytes]"]:
    settings = state.parent / "oar.conf"
    settings.write_text("NODE_TRANSPORT=local\nLOG_LEVEL=1\n")
    command = [sys.executable, "-m", "oarlock", "serve", "--state", str(state), "--config", str(settings)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _site() -> Iterator[tuple[Database, Path, str]]:
    user = f"oarlb{os.getpid() % 100000}"
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as ground:
        Path(ground).chmod(0o755)
        state = Path(ground) / "state"
        (state / "home").mkdir(parents=True)
        (state / "home").chmod(0o777)
        subprocess.run(["useradd", "-M", "-s", "/bin/sh", user], check=True, capture_output=True)
        try:
            with open_database(state / "oarlock.db", create=True) as database:
                database.write(_add_nodes)
                yield database, state, user
        finally:
            subprocess.run(["userdel", user], check=False, capture_output=True)
            _remove_groups()


def _node(number: int) -> str:
    return f"bench{os.getpid()}n{number}"


def _add_nodes(tx: object) -> None:
    rows = [{"network_address": _node(n), "cpuset": core} for n in range(_NODES) for core in range(64 // _NODES)]
    resources.add(tx, rows, at=int(time.time()))  # type: ignore[arg-type]


def _remove_groups() -> None:
    for number in range(_NODES):
        for root in Path("/sys/fs/cgroup").glob(f"*/oarlock/{_node(number)}"):
            with contextlib.suppress(OSError):
                root.rmdir()


@figure("life.ssh", unit="jobs/s", target=80, better="higher")
def ssh() -> float:
    """Measure how many jobs a second live and end on four machines behind sshd, from the first start on."""
    from tests import bed
    from tests.e2e.cluster import cluster

    with bed.open_directory() as ground, bed.accounts() as people:
        settings = {"LOG_LEVEL": 1, "WATCH_FREQUENCY": 10}
        with cluster(ground, people[0], ("",) * _NODES, cores=64 // _NODES, more=settings) as site:
            site.submit_many(["/bin/true"] * _SSH_JOBS)
            site.start()
            begin = _first_start(site.database)
            _await_end(site.database)
            return _SSH_JOBS / (time.monotonic() - begin)


@figure("life.latency", unit="ms", target=60)
def latency() -> float:
    """Measure from a submission on an idle cluster to the user's command running: the median of 30."""
    import asyncio

    with _site() as (database, state, user):
        return statistics.median(asyncio.run(_latencies(database, state, user))) * 1000


async def _latencies(database: Database, state: Path, user: str) -> list[float]:
    import asyncio

    from oarlock.config import Config, NodeTransport
    from oarlock.server import serve
    from oarlock.server.clock import RealClock
    from oarlock.server.core import Core

    serve.prepare(state)
    core = Core(state, Config(node_transport=NodeTransport.LOCAL), database, RealClock(), serve.key_of(database))
    running = asyncio.create_task(serve.run(core))
    found = []
    for number in range(31):
        mark = state / "home" / f"mark{number}"
        asked = requests.parse(["/resource_id=1,walltime=1"])
        job = Job(
            id=0, state=JobState.WAITING, user=user, queue="default", command=f"date +%s.%N > {mark}",
            directory=str(state / "home"),
        )  # fmt: skip
        begin = time.time()
        await core.write(lambda tx, job=job, asked=asked: jobs.add(tx, [jobs.New(job, asked)]))  # type: ignore[misc]
        core.wake_scheduler()
        while not mark.exists() or not mark.read_text().strip():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        found.append(float(mark.read_text()) - begin)
        await asyncio.sleep(0.1)
    core.stopping.set()
    await running
    await core.close()
    return found[1:]
