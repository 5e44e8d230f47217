"""The life of jobs: a server process, pretended nodes of this machine, real cgroups; accounts are made and removed."""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench import door
from bench.harness import figure, workspace
from oarlock.lang import request as requests
from oarlock.model.job import FINAL, Job, JobState
from oarlock.node.cgroup import base, drivers
from oarlock.node.sources.files import UNIFIED
from oarlock.node.sources.job.cpu import read_final
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs as stored
from oarlock.store.queries.job import new_jobs

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
    """Run an array of `/bin/true` to its end, on 64 resources, from its submission on.

    Before that the server listens and knows its nodes: how long it takes to start is another matter.
    """
    with (
        new_site() as (database, state, user),
        Meter() as meter,
        door.serving(state, {"NODE_TRANSPORT": "local", "LOG_LEVEL": 1}, started_in=meter.inside()) as server,
    ):
        way_in = door.appeared(state / "server.sock", server)
        with door.seen_as(user):
            submit_to(way_in, f"/network_address={_NODES}/resource_id=1,walltime=1", state)
        _await_end(database, jobs=1)
        before, begin = meter.seconds(server.pid), time.monotonic()
        with door.seen_as(user):
            submit_to(way_in, "/resource_id=1,walltime=1", state, array=[""] * _JOBS)
        _await_end(database, jobs=1 + _JOBS)
        seconds = time.monotonic() - begin
        cpu = meter.seconds(server.pid) - before
    return Lived(_JOBS / seconds, cpu * 1000 / _JOBS)


@figure("life.array", unit="jobs/s", target=150, better="higher")
def array() -> float:
    """Measure how many jobs a second live and end: durable, in cgroups, accounted."""
    return _array().jobs_a_second


@figure("life.cpu", unit="ms", target=12)
def cpu() -> float:
    """Measure the CPU time of a job on server and nodes, its own processes included."""
    return _array().cpu_milliseconds_a_job


def submit_to(way_in: Path, resources: str, state: Path, **more: Any) -> None:
    """Submit a job that does nothing."""
    body = {"resources": [resources], "command": "/bin/true", "directory": str(state / "home"), **more}
    asyncio.run(door.ask(way_in, [json.dumps(body).encode()]))


class Meter:
    """Counts the CPU time of a server, its nodes and their jobs, by the cgroup2 tree where there is one.

    Else by `/proc`, which rounds down for each of a hundred processes, and forgets those whose parent is gone.
    """

    def __init__(self) -> None:
        self._tree = drivers.mounted().v2
        self._group = f"{self._tree}/oarlock-bench{os.getpid()}" if self._tree else ""
        self._nodes = [f"{self._tree}/{base.ROOT}/{_node(number)}" for number in range(_NODES)]

    def __enter__(self) -> "Meter":
        if self._group:
            Path(self._group).mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(base.CgroupError):  # supervisors may need another moment to end
            if self._group:
                base.remove(self._group)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Count what is started in here; nodes have groups of their own for their jobs."""
        if not self._group:
            yield
            return
        home = base.read("/proc/self/cgroup").rpartition("\n0::")[2].strip()
        base.write(f"{self._group}/cgroup.procs", "0")
        try:
            yield
        finally:
            base.write(f"{self._tree}{home}/cgroup.procs", "0")

    def seconds(self, server: int) -> float:
        """Give what was used so far."""
        if not self._group:
            return _cpu_seconds(server)
        return sum(read_final({UNIFIED: at})["cpu_seconds_total"] for at in (self._group, *self._nodes))


def _first_start(database: Database) -> float:
    while True:
        with database.read() as tx:
            if set(stored.count(tx)) != {JobState.WAITING}:
                return time.monotonic()
        time.sleep(0.002)


def _await_end(database: Database, *, jobs: int) -> None:
    """Wait until so many jobs have ended, and none is left."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with database.read() as tx:
            count = stored.count(tx)
            if set(count) <= FINAL and sum(count.values()) == jobs:
                return
        time.sleep(0.05)  # looking takes CPU time from those who are looked at
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
def new_site() -> Iterator[tuple[Database, Path, str]]:
    """Make a database with four nodes in a state directory, and a user; remove them."""
    user = f"oarlb{os.getpid() % 100000}"
    with workspace() as place:
        state = place / "state"
        (state / "home").mkdir(parents=True)
        (state / "home").chmod(0o777)
        subprocess.run(["useradd", "-M", "-s", "/bin/sh", user], check=True, capture_output=True)
        try:
            with open_database(state / "oarlock.db", create=True) as database:
                database.write(_add_nodes)
                yield database, state, user
        finally:
            subprocess.run(["userdel", user], check=False, capture_output=True)
            remove_groups_of(map(_node, range(_NODES)))


def _node(number: int) -> str:
    return f"bench{os.getpid()}n{number}"


def _add_nodes(tx: object) -> None:
    rows = [{"network_address": _node(n), "cpuset": core} for n in range(_NODES) for core in range(64 // _NODES)]
    resources.add(tx, rows, at=int(time.time()))  # type: ignore[arg-type]


def remove_groups_of(names: Iterable[str]) -> None:
    """Remove what pretended nodes leave of their cgroups."""
    for name in names:
        for root in Path("/sys/fs/cgroup").glob(f"*/oarlock/{name}"):
            with contextlib.suppress(OSError):
                root.rmdir()


@figure("life.ssh", unit="jobs/s", target=80, better="higher")
def ssh() -> float:
    """Measure how many jobs a second live and end on four machines behind sshd, from the first start on."""
    from tests import bed
    from tests.e2e.cluster import cluster

    with bed.open_directory() as place, bed.accounts() as two_users:
        settings = {"LOG_LEVEL": 1, "WATCH_FREQUENCY": 10}
        with cluster(place, two_users[0], ("",) * _NODES, cores=64 // _NODES, more=settings) as site:
            site.submit_many(["/bin/true"] * _SSH_JOBS)
            site.start()
            begin = _first_start(site.database)
            _await_end(site.database, jobs=_SSH_JOBS)
            return _SSH_JOBS / (time.monotonic() - begin)


@figure("life.latency", unit="ms", target=60)
def latency() -> float:
    """Measure from a submission on an idle cluster to the user's command running: the median of 30."""
    with new_site() as (database, state, user):
        return statistics.median(asyncio.run(_latencies(database, state, user))) * 1000


async def _latencies(database: Database, state: Path, user: str) -> list[float]:
    from oarlock.config import Config
    from oarlock.server import instance, serve
    from oarlock.server.core import ServerCore
    from oarlock.server.process.clock import RealClock
    from oarlock.settings.kinds import NodeTransport

    instance.prepare_state_dir(state)
    core = ServerCore(
        state, Config(node_transport=NodeTransport.LOCAL), database, RealClock(), instance.attempt_key(database)
    )
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
        await core.write(lambda tx, job=job, asked=asked: new_jobs.add(tx, [new_jobs.NewJob(job, asked)]))  # type: ignore[misc]
        core.wake_scheduler()
        while not mark.exists() or not mark.read_text().strip():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        found.append(float(mark.read_text()) - begin)
        await asyncio.sleep(0.1)
    core.stopping.set()
    await running
    await core.close()
    return found[1:]
