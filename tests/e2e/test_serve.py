"""Jobs from the store to the account, on nodes of this machine in real cgroups."""

import contextlib
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oarlock.client import Client, RequestRefused
from oarlock.config import Config
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.job import JobState
from oarlock.node.attempt import spool
from oarlock.node.wire.messages import EXITED, Report, sign_report
from oarlock.server.nodes.fleet import InstanceIdentity
from oarlock.server.process.reserves import MOST
from oarlock.store.engine import facts
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import attempts
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, instance

pytestmark = needs_root

NORMAL = ["Waiting", "toLaunch", "Launching", "Running", "Finishing", "Terminated"]


def test_a_job_runs_on_its_node_as_its_user_and_is_accounted(site):
    job = site.submit("id -un; cat $OAR_NODE_FILE; echo $OAR_JOB_WALLTIME_SECONDS; sleep 1.1; exit 3", name="hello")
    site.start()
    site.until(site.all_over)
    assert (site.story(job), site.job(job).exit_code) == (NORMAL, 3 << 8)
    assert site.events(job) == ["SWITCH_INTO_TERMINATE_STATE"]
    out = (site.home / f"OAR.hello.{job}.stdout").read_text().split()
    assert out == [site.user, site.nodes[0], "3600"]
    assert site.used() == site.job(job).stop - site.job(job).start > 0


def test_an_array_fills_the_cluster_and_every_member_runs_once(site):
    ids = site.submit_many(["echo $OAR_ARRAY_INDEX >> lines"] * 40)
    site.start()
    site.until(site.all_over)
    lines = (site.home / "lines").read_text().split()
    assert sorted(map(int, lines)) == list(range(1, 41))
    assert {site.job(job).exit_code for job in ids} == {0}
    assert list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{site.nodes[0]}/{site.user}_*")) == []


@pytest.mark.manual(44, 189)
def test_a_job_on_two_nodes_waits_for_another_and_cleans_both(site):
    first = site.submit("sleep 0.5; echo first >> order")
    both = site.submit(
        "echo both >> order; cat $OAR_NODE_FILE | sort -u > nodes", "/network_address=2,walltime=1", after=(first,)
    )
    site.start()
    site.until(site.all_over)
    assert (site.home / "order").read_text().split() == ["first", "both"]
    assert len((site.home / "nodes").read_text().split()) == 2
    assert site.story(both) == NORMAL


@pytest.mark.manual(135)
def test_the_walltime_ends_a_job_with_all_it_started(site):
    job = site.submit("sleep 600 & setsid sleep 600 & sleep 600", "/core=1,walltime=0:0:2")
    site.start()
    site.until(site.all_over)
    stated = [event for event in site.events(job) if event != "SEND_KILL_JOB"]  # on a slow machine TERM takes too long
    assert (site.story(job)[-1], stated) == ("Error", ["WALLTIME", "SWITCH_INTO_ERROR_STATE"])
    assert "KILLED" in (site.home / f"OAR.{job}.stderr").read_text()


def test_a_job_whose_user_was_removed_waits_and_no_node_is_suspected(site):
    gone = site.submit("exit 0", "/network_address=2,walltime=1", user="nosuchuser")
    after = site.submit("exit 0", "/network_address=4,walltime=1")
    site.start()
    site.until(lambda: site.story(after)[-1] == "Terminated")
    assert (site.story(gone)[-1], site.events(gone)) == ("Waiting", ["USER_UNKNOWN"])
    assert site.story(after) == NORMAL


def test_a_job_does_not_run_as_a_new_account_of_its_owners_name(site):
    job = site.submit("touch ran", uid=4242)
    site.start()
    site.until(site.all_over)
    assert site.story(job)[-1] == "Error"
    assert "USER_SHELL" in site.events(job)
    assert f"the account `{site.user}` is another one now: its number was 4242" in site.job(job).message
    assert not (site.home / "ran").exists()


def test_a_second_server_refuses_and_names_the_first(site):
    site.start()
    site.until(lambda: "serving" in site.log())
    second = subprocess.run(
        [sys.executable, "-m", "oarlock", "serve", "--state", site.state, "--config", site.settings],
        env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert second.returncode == 2
    assert f"process {site.process.pid}" in second.stderr


def test_a_stopped_server_leaves_jobs_to_the_next_one(site):
    job = site.submit("sleep 2; echo done > ended")
    site.start()
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    assert site.stop() < 5
    assert site.job(job).state is JobState.RUNNING
    site.until((site.home / "ended").exists)
    site.start()
    site.until(site.all_over)
    assert (site.story(job), site.job(job).exit_code) == (NORMAL, 0)


def test_jobs_do_not_inherit_the_servers_limit_of_descriptors(site):
    job = site.submit("ulimit -Sn > limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))  # a number that nobody else has
    try:
        site.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    site.until(site.all_over)
    assert resource.prlimit(site.process.pid, resource.RLIMIT_NOFILE) == (min(hard, MOST), hard)
    assert (site.job(job).exit_code, int((site.home / "limit").read_text())) == (0, soft - 1)


def leave_behind(site, directory, key):
    """Put the file of an attempt that is over where a node remembers it, as the server would have."""
    with site.database.read() as tx:
        secret_key = bytes.fromhex(facts.get(tx, "attempt key"))
        mac_key = InstanceIdentity(facts.get(tx, "identity"), secret_key).spool_key(directory.name)
        secrets = [StepContext(Config(), secret_key).secret(attempt) for attempt in attempts.of_jobs(tx, [key[0]])]
    launch = json.dumps({"secret": secrets[0] if secrets else "00"}).encode()
    place = spool.create_entry(str(directory), key, launch, mac_key)
    place.write(sign_report(Report(*key, directory.name, "", EXITED), "00"))
    place.close()


def test_stale_spool_entries_are_cleared_and_unknown_ones_named(site):
    known = site.submit("exit 0")
    stays = site.submit("until [ -e enough ]; do sleep 0.1; done", "/network_address=4,walltime=1", after=(known,))
    remembered = site.state / "spool" / site.nodes[0]
    site.start()
    site.until(lambda: site.job(stays).state is JobState.RUNNING and not (remembered / f"{known}.1").exists())
    site.stop()
    for key in ((known, 1), (99, 1)):
        leave_behind(site, remembered, key)
    site.start()
    site.until(lambda: not (remembered / f"{known}.1").exists())
    (site.home / "enough").touch()
    site.until(lambda: site.all_over() and not (remembered / f"{stays}.1").exists())
    assert list(remembered.glob("*.1")) == []
    with site.database.read() as tx:
        noted = [one.event for one in events.of_hosts(tx, site.nodes) if one.event.type == "UNKNOWN_JOB_ENDED"]
    assert [(event.hosts, event.description.partition(" (")[0]) for event in noted] == [((site.nodes[0],), "job 99")]


@pytest.mark.soak  # in every run the same is done over ssh (test_kill_loop.py)
def test_jobs_run_exactly_once_however_often_the_server_is_killed(site):
    chance = random.Random(4)
    ids = site.submit_many(["sleep 0.1; echo $OAR_JOB_ID >> lines"] * 60)
    site.start()
    for _ in range(8):
        time.sleep(chance.uniform(0.3, 1.2))  # the instant of the crash is what is tried here
        site.kill()
        site.start()
    site.until(site.all_over, seconds=60)
    assert sorted(map(int, (site.home / "lines").read_text().split())) == ids
    assert {site.story(job)[-1] for job in ids} == {"Terminated"}


@pytest.fixture
def small_site(workspace, two_users, request):
    """An instance on a disk of its own, which is easily filled: of 16 MB, or as many as the test says."""
    disk = workspace / "disk"
    disk.mkdir()
    size = f"size={getattr(request, 'param', 16)}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    try:
        with instance(disk, two_users[0], f"d{os.getpid()}n") as made:
            yield made
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(ballast):
    """Leave no room on a disk."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.parametrize("small_site", [96], indirect=True)
def test_a_job_can_be_ended_though_the_disk_is_full(small_site):
    site, ballast, reserve = small_site, small_site.state / "ballast", small_site.state / "reserve"
    hog = site.submit("sleep 600", "/network_address=4,walltime=1")
    site.start()
    site.until(lambda: site.job(hog).state is JobState.RUNNING and reserve.exists())
    fill(ballast)
    client = Client(str(site.state / "server.sock"))
    with pytest.raises(RequestRefused, match="the disk that holds the database is full"):
        client.add_queue({"name": "other", "priority": 1, "policy": "fcfs"})
    assert [one["done"] for one in client.delete({"ids": [hog]})] == [True]
    site.until(lambda: site.job(hog).state is JobState.ERROR)
    assert not reserve.exists()
    ballast.unlink()
    site.until(reserve.exists)


def test_a_job_that_ends_on_a_full_disk_is_over_when_there_is_room(small_site, workspace):
    site, ballast, go = small_site, small_site.state / "ballast", workspace / "go"
    first = site.submit(f"until [ -e {go} ]; do sleep 0.1; done; exit 3", "/network_address=4,walltime=1")
    after = site.submit("exit 0", "/network_address=4,walltime=1")
    site.start()
    site.until(lambda: site.job(first).state is JobState.RUNNING)
    fill(ballast)
    go.touch()
    time.sleep(3)  # long enough for its end to be told, and refused
    assert site.job(first).state is JobState.RUNNING
    ballast.unlink()
    site.until(site.all_over)
    assert (site.story(first), site.job(first).exit_code) == (NORMAL, 3 * 256)
    assert (site.story(after), site.job(after).exit_code) == (NORMAL, 0)


def test_an_administrator_can_follow_a_job_in_the_log(site):
    job = site.submit("exit 3")
    site.start()
    site.until(site.all_over)
    site.stop()
    told = [line.split(" ", 3)[3] for line in site.log().splitlines() if f" job={job} " in line]
    node = site.nodes[0]
    moved = [line.split(" why=")[0] for line in told if line.startswith("job moved")]
    assert moved == [
        f"job moved job={job} user={site.user} state={state} was={was}"
        + (' exit="exit 3"' if state == NORMAL[-1] else "")
        for was, state in itertools.pairwise(NORMAL)
    ]
    assert f"attempt begun job={job} attempt=1 node={node}" in told
    assert len(told) <= 8, told


def serve_once(state, settings):
    """Start a server that has to refuse; give what it says."""
    words = [sys.executable, "-m", "oarlock", "serve", "--state", state, "--config", settings]
    ran = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=30, check=False
    )
    return ran.returncode, ran.stderr


def test_a_state_directory_that_somebody_else_made_is_refused(site):
    os.chown(site.state, 12345, 12345)
    code, said = serve_once(site.state, site.settings)
    os.chown(site.state, 0, 0)
    says = f"oarlock: The state directory {site.state} is not safe: {site.state} belongs to user 12345, not to root"
    assert (code, said.splitlines()[0].startswith(says)) == (2, True)


def test_a_server_says_that_its_instance_is_new(site):
    site.start()
    site.until(lambda: "listening" in site.log())
    assert f"{site.state} held no instance: a new one begins there, without nodes" not in site.log()
    site.stop()
    for file in site.state.glob("oarlock.db*"):
        file.unlink()
    site.start()
    site.until(lambda: f"{site.state} held no instance: a new one begins there, without nodes" in site.log())
