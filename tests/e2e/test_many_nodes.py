"""More nodes than connections: virtual nodes behind a real server."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from oarlock.client import Client
from oarlock.model.job import JobState
from oarlock.model.resource import ResourceState
from oarlock.store import tables
from oarlock.store.queries.cluster import resources
from tests.bed import needs_root
from tests.e2e.instance import Instance
from tests.e2e.terminal import seen_as
from tests.virtual_nodes import VirtualCluster, virtual_nodes

pytestmark = needs_root

_MANY = int(os.environ.get("MANY_NODES", "5000"))
_PERIOD = int(os.environ.get("MANY_NODES_PERIOD", "300"))
_TICKS = os.sysconf("SC_CLK_TCK")


class ManyNodes(Instance):
    """A server whose nodes are virtual, with one core each."""

    def states(self) -> dict[str, ResourceState]:
        """The state of each node."""
        with self.database.read() as tx:
            return {
                str(one.properties["network_address"]): ResourceState(str(one.properties["state"]))
                for one in resources.listed(tx)
            }

    def count(self, state: ResourceState) -> int:
        """How many nodes are in a state."""
        with self.database.read() as tx:
            is_there = select(func.count()).where(tables.resources.c.state == state.value)
            return int(tx.execute(is_there).scalar_one())

    def all_in(self, ids: list[int], states: set[JobState]) -> bool:
        """Whether all these jobs are in one of these states."""
        return all(self.job(job).state in states for job in ids)


@contextmanager
def many_nodes(
    workspace: Path, user: str, names: list[str], *, dead: tuple[str, ...] = (), **settings: Any
) -> Iterator[tuple[ManyNodes, VirtualCluster]]:
    """A server in front of virtual nodes, which is not started yet."""
    with virtual_nodes(workspace, dead=dead) as cluster:
        more = {"NODE_TRANSPORT": "ssh", "OPENSSH_CMD": cluster.command, "OAR_SSH_CONNECTION_TIMEOUT": 20, **settings}
        made = ManyNodes(workspace, user, names, cores=1, more=more)
        try:
            yield made, cluster
        finally:
            made.close()


def test_jobs_on_more_nodes_than_connections_all_end(workspace, two_users):
    names = [f"many{number}" for number in range(12)]
    with many_nodes(workspace, two_users[0], names, NODE_CONNECTIONS=4, FINAUD_FREQUENCY=0) as (site, cluster):
        ids = site.submit_many(["sleep 1"] * len(names))
        site.serve()
        site.until(lambda: site.all_in(ids, {JobState.RUNNING, JobState.TERMINATED}))
        site.until(lambda: site.all_in(ids, {JobState.TERMINATED}))
        assert {name for _, name in cluster.contacts()} == set(names)
        # A node that was left while its job ran is asked again: that job's end was read there.
        assert len(cluster.contacts()) > len(names)
        assert [site.job(job).exit_code for job in ids] == [0] * len(ids)


def test_all_nodes_are_checked_with_few_connections(workspace, two_users):
    names = [f"check{number}" for number in range(30)]
    settings = {"NODE_CONNECTIONS": 8, "FINAUD_FREQUENCY": 1}
    with many_nodes(workspace, two_users[0], names, dead=("check7",), **settings) as (site, cluster):
        site.serve()
        site.until(lambda: site.states()["check7"] is ResourceState.SUSPECTED)
        assert {name for _, name in cluster.contacts()} == {*names} - {"check7"}
        assert set(site.states().values()) == {ResourceState.ALIVE, ResourceState.SUSPECTED}
        assert list(site.states().values()).count(ResourceState.SUSPECTED) == 1


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_five_thousand_nodes_are_checked_while_jobs_start(workspace, two_users, capsys):
    names = [f"n{number:05}" for number in range(_MANY)]
    dead = tuple(names[7 :: max(_MANY // 50, 8)])  # one node of a hundred
    settings = {"FINAUD_FREQUENCY": _PERIOD, "NODE_CONNECTIONS": _MANY // 5, "LOG_LEVEL": 1}
    with many_nodes(workspace, two_users[0], names, dead=dead, **settings) as (site, cluster):
        site.serve()
        assert site.process is not None
        pid, alive = site.process.pid, {*names} - {*dead}
        client = Client(str(site.state / "server.sock"))
        starts: list[float] = []
        ids: list[int] = []
        _start_job(site, client, ids)  # the first one waits for what a server does first
        began, before = time.time(), _cpu_seconds(pid)
        client.notify("Finaud")

        def is_checked() -> bool:
            """Start a job, and look whether the server has judged each node."""
            starts.append(_start_job(site, client, ids))
            return site.count(ResourceState.SUSPECTED) == len(dead)

        def progress() -> str:
            """Say how far the check is, for a run that fails."""
            seconds, suspected = time.time() - began, site.count(ResourceState.SUSPECTED)
            return (
                f"{len(cluster.contacts())} connections and {suspected} Suspected nodes in {seconds:.0f} s;"
                f" {len(starts)} jobs; server {_cpu_seconds(pid) - before:.0f} s of CPU; load {os.getloadavg()[0]:.1f}"
            )

        _until(is_checked, progress, seconds=2 * _PERIOD)
        judged, spent, resident = time.time() - began, _cpu_seconds(pid) - before, _resident(pid)
        contacts = cluster.contacts()
        reached = max({name: when for when, name in reversed(contacts)}.values()) - began
        site.until(lambda: site.all_in(ids, {JobState.TERMINATED}), seconds=120)
        with capsys.disabled():
            print(
                f"\n{_MANY} nodes, {len(dead)} of them dead: the last one reached after {reached:.0f} s,"
                f" all judged after {judged:.0f} s; {len(contacts)} connections; server {spent:.0f} s of CPU,"
                f" {resident / 2**20:.0f} MB; {len(starts)} jobs started meanwhile, median"
                f" {statistics.median(starts):.2f} s, slowest {max(starts):.2f} s; load {os.getloadavg()[0]:.1f}"
            )
        assert {name for _, name in contacts} == alive
        assert reached < _PERIOD
        assert judged < _PERIOD
        assert statistics.median(starts) < 2.0
        assert max(starts) < 20.0
        assert {name for name, state in site.states().items() if state is not ResourceState.ALIVE} == {*dead}


def _start_job(site: ManyNodes, client: Client, ids: list[int]) -> float:
    """Submit a job, wait until it runs, and return how long that took."""
    begin = time.monotonic()
    with seen_as(site.user):
        answer = client.submit({"resources": ["/resource_id=1,walltime=1"], "command": "sleep 5", "directory": "/tmp"})
    ids += answer["job_ids"]
    site.until(lambda: site.all_in(ids[-1:], {JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED}))
    return time.monotonic() - begin


def _until(done: Callable[[], bool], progress: Callable[[], str], *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, progress()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
