"""Programs of the site in the life of a job: its own resource manager in place of the cgroup step."""

import json
import os
import signal
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from tests.bed import needs_root, needs_v1, script, site_directory
from tests.e2e.instance import instance

pytestmark = [needs_root, needs_v1]

_GROUP = Path(f"/sys/fs/cgroup/pids/oarlock-site-{os.getpid()}")


def _manager(log):
    return f"""
case $1 in
init) mkdir -p {_GROUP}; echo '{{"join": ["{_GROUP}/cgroup.procs"], "path": "/of-the-site"}}' ;;
clean) rmdir {_GROUP} ;;
esac
cat >> {log}; echo >> {log}
"""


@pytest.fixture
def here():
    with site_directory() as path:
        yield path
    if _GROUP.exists():
        _GROUP.rmdir()


@pytest.fixture
def managed(workspace, two_users, here):
    manager = script(here / "manager", _manager(here / "asked"))
    name = f"m{os.getpid()}n"
    with instance(workspace, two_users[0], name, nodes=1, more={"JOB_RESOURCE_MANAGER_FILE": manager}) as made:
        yield made


def _asked(here):
    return [json.loads(line) for line in (here / "asked").read_text().splitlines()]


def test_the_sites_own_program_makes_the_group_and_cleans_it(managed, here):
    job = managed.submit("grep pids: /proc/self/cgroup | cut -d: -f3; echo $OAR_CPUSET; sleep 600 &")
    managed.start()
    managed.until(managed.all_over)
    assert managed.story(job)[-1] == "Terminated"
    out = (managed.home / f"OAR.{job}.stdout").read_text()
    assert out == f"/{_GROUP.name}\n/of-the-site\n"
    assert [(one["action"], one["job"], one["limits"]["cpus"]) for one in _asked(here)] == [
        ("init", job, [0]), ("clean", job, [0]),
    ]  # fmt: skip
    assert not _GROUP.exists()


def test_a_sites_program_that_fails_suspects_the_node(managed, here):
    script(here / "manager", "exit 3")
    job = managed.submit("true")
    managed.start()
    managed.until(lambda: managed.events(job) == ["CPUSET_ERROR"])
    assert managed.story(job) == ["Waiting", "toLaunch", "Launching", "Waiting"]


def test_what_a_vanished_supervisor_left_in_the_sites_group_is_ended(managed, here):
    job = managed.submit("sleep 600 & echo $PPID > parent; wait")
    managed.start()
    managed.until(lambda: managed.job(job).state is JobState.RUNNING and (managed.home / "parent").exists())
    managed.until(lambda: (managed.home / "parent").read_text())
    os.kill(int((managed.home / "parent").read_text()), signal.SIGKILL)
    managed.until(managed.all_over)
    assert (managed.story(job)[-1], "EXIT_VALUE_OAREXEC" in managed.events(job)) == ("Error", True)
    assert [one["action"] for one in _asked(here)] == ["init", "init", "clean"]
    assert not _GROUP.exists()
