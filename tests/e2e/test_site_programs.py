"""Programs of the site in the life of a job: its own resource manager in place of the cgroup step."""

import json
import os
import signal
from pathlib import Path

import pytest

from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.store.queries.cluster import events
from tests.bed import needs_root, needs_v1, script, site_directory
from tests.e2e.instance import instance
from tests.e2e.terminal import piped
from tests.e2e.test_oarsh import run

pytestmark = [needs_root, needs_v1]

_GROUP = Path(f"/sys/fs/cgroup/pids/oarlock-site-{os.getpid()}")


def _manager(log):
    return f"""
case $1 in
init) mkdir -p {_GROUP}; echo '{{"join": ["{_GROUP}/cgroup.procs"], "path": "/of-the-site"}}' ;;
enter) echo "$@" >> {log.parent}/entered ;;
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


@pytest.mark.manual(174)
def test_the_sites_program_is_called_when_a_session_enters_the_job(managed, two_users, here, programs):
    job = managed.submit("sleep 600")
    managed.serve()
    managed.until(lambda: managed.job(job).state is JobState.RUNNING)
    code, out, err = piped(managed, two_users[0], "-C", str(job), stdin=b"grep pids: /proc/self/cgroup; echo $$\n")
    group, process = out.splitlines()[2:4]
    assert (code, err, group.endswith(f":/{_GROUP.name}")) == (0, "", True)
    [entered] = [one for one in _asked(here) if one["action"] == "enter"]
    assert (entered["job"], (here / "entered").read_text()) == (job, f"enter {process}\n")
    shell = run(managed, two_users[0], programs, "oarsh", managed.nodes[0], "echo $$", job=job)
    assert (here / "entered").read_text().splitlines()[1:] == [f"enter {shell.stdout.decode().strip()}"], shell.stderr
    kept = (here / "manager").read_text()
    script(here / "manager", "exit 3")
    code, out, err = piped(managed, two_users[0], "-C", str(job), stdin=b"echo in\n")
    assert (code != 0, "in" in out.split(), "manager enter ended with exit 3" in err) == (True, False, True), err
    (here / "manager").write_text(kept)
    managed.delete(job)
    managed.until(managed.all_over)


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


def test_the_healing_program_runs_once_for_a_node_that_is_suspected(workspace, two_users, here):
    heal, check = here / "heal", here / "check"
    more = {
        "SUSPECTED_HEALING_EXEC_FILE": heal, "PINGCHECKER_GENERIC_COMMAND": check, "FINAUD_FREQUENCY": 1,
    }  # fmt: skip
    with instance(workspace, two_users[0], f"h{os.getpid()}n", nodes=2, more=more) as site:
        bad = site.nodes[1]
        script(heal, f"cat >> {here}/healed; echo no power >&2; exit 4")
        script(check, f"echo {bad} >&2; echo >> {here}/checks")
        site.serve()
        site.until(lambda: _node_events(site, "NODE_HEALING_ERROR"))
        checks = len((here / "checks").read_text())
        site.until(lambda: len((here / "checks").read_text()) > checks)  # suspected still, and not healed again
        assert _node_events(site, "NODE_HEALING_ERROR") == [((bad,), f"{heal} ended with exit 4: no power")]
        assert (here / "healed").read_text() == f"3 {bad}\n4 {bad}\n"


def _node_events(site, kind):
    with site.database.read() as tx:
        rows = events.after(tx, 0, {EventType(kind)}, most=10)
        return [(row.event.hosts, row.event.description) for row in rows]
