"""Events of the manual, each by its cause, on a live server with real nodes."""

import asyncio
import fcntl
import os
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from oarlock.client import Client
from oarlock.job.run.reports import BadReport
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.store.engine.opening import MemoryDatabase
from oarlock.store.queries import events
from tests.bed import needs_root, needs_v1, open_node
from tests.e2e.instance import instance
from tests.scenarios.cluster import Cluster
from tests.waiting import wait_until

pytestmark = needs_root

_LAUNCH_BYTES = 300  # more than any other request that waits in a pipe


@pytest.fixture
def site(workspace, two_users):
    """An instance of one node."""
    with instance(workspace, two_users[0], f"v{os.getpid()}n", nodes=1) as made:
        yield made


def test_a_checkpoint_on_a_node_that_is_away_is_an_error(site):
    job = site.submit("sleep 600")
    site.serve()
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    spool = site.state / "spool" / site.nodes[0]
    spool.chmod(0o777)  # others could write it, so that the next node program refuses to work here
    [program] = site.node_programs()
    os.kill(program, signal.SIGKILL)
    [answer] = Client(str(site.state / "server.sock")).delete({"ids": [job], "checkpoint": True})
    assert answer["done"]
    site.until(lambda: "CHECKPOINT_ERROR" in site.events(job))
    spool.chmod(0o700)
    site.delete(job)


def test_a_deploy_job_without_a_host_for_it_has_no_node(site):
    job = site.submit("true", types=("deploy",))
    site.serve()
    site.until(site.all_over)
    assert (site.story(job)[-1], site.events(job)) == ("Error", ["RESERVATION_NO_NODE"])


@needs_v1
def test_a_group_that_cannot_be_removed_is_a_clean_error(site):
    job = site.submit("sleep 600")
    site.serve()
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    group = Path(f"/sys/fs/cgroup/memory/oarlock/{site.nodes[0]}/{site.user}_{job}")
    with subprocess.Popen(["sleep", "600"]) as stranger:  # put there by somebody else who is root
        (group / "cgroup.procs").write_text(str(stranger.pid))
        try:
            site.delete(job)
            site.until(lambda: "CPUSET_CLEAN_ERROR" in site.events(job))
        finally:
            stranger.kill()
    wait_until(lambda: (group / "cgroup.procs").read_text() == "")
    group.rmdir()


def test_a_launch_that_never_arrived_is_made_again(site):
    first, job = site.submit("true"), site.submit("echo ran", state=JobState.HOLD)
    site.serve()
    site.until(lambda: site.job(first).state is JobState.TERMINATED)
    [program] = site.node_programs()
    os.kill(program, signal.SIGSTOP)
    Client(str(site.state / "server.sock")).resume({"ids": [job]})
    site.until(lambda: site.job(job).state is JobState.LAUNCHING)
    wait_until(lambda: _unread(program) > _LAUNCH_BYTES, what="the launch in the pipe")
    os.kill(program, signal.SIGKILL)
    site.until(site.all_over)
    assert "LAUNCHING_OAREXEC_TIMEOUT" in site.events(job)
    assert site.story(job)[-1] == "Terminated", "on the same node, which is not suspected"


def _unread(pid):
    """Give how many bytes wait in the fullest pipe that a process reads."""
    counts = [0]
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if str(path.readlink()).startswith("pipe:"):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            counts.append(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
            os.close(fd)
    return max(counts)


def test_a_report_of_a_job_that_nobody_knows_is_noted(workspace, two_users):
    async def bad_report():
        async with open_node(workspace, two_users[0]) as post:
            await post.run(99, "true")
            [about] = await post.status()
            await post.node.forget([(99, 1)])
            post.node._reported(about["report"])  # it arrives once more
            return post.events[-1]

    refused = asyncio.run(bad_report())
    assert isinstance(refused, BadReport)
    cluster = Cluster(MemoryDatabase())
    cluster.receive([refused])
    with cluster.database.read() as tx:
        [noted] = events.after(tx, 0, {EventType.BIPBIP_BAD_JOBID}, most=10)
        assert (noted.event.job, noted.event.hosts) == (None, (refused.node,))
    cluster.database.close()
