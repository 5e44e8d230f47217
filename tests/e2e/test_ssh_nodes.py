"""Whole instances on three or four machines behind sshd, with two users; networks, machines and scripts fail."""

import os
import signal

import pytest

from oarlock.model.job import JobState
from oarlock.model.resource import ResourceState
from tests.bed import needs_root, script, site_directory
from tests.e2e.cluster import cluster

pytestmark = [needs_root, pytest.mark.component("sshd"), pytest.mark.component("ip")]

NORMAL = ["Waiting", "toLaunch", "Launching", "Running", "Finishing", "Terminated"]
ALIVE, SUSPECTED = ResourceState.ALIVE, ResourceState.SUSPECTED
NODE = "/network_address=1,walltime=1"


def test_a_job_on_a_cut_off_node_ends_as_the_same_attempt(workspace, two_users):
    with cluster(workspace, two_users[0]) as site:
        cut = site.submit("id -un > cut; until [ -e healed ]; do sleep 0.1; done; echo ran >> cut", NODE)
        other = site.submit("id -un > other", NODE, user=two_users[1])
        site.start()
        site.until(lambda: site.job(cut).state is JobState.RUNNING)
        machine = site.machines[site.node_of(cut)]
        machine.link("down")
        site.until(lambda: "node still unreachable" in site.log())
        (site.home / "healed").touch()
        site.until(lambda: "ran" in (site.home / "cut").read_text())
        assert site.job(cut).state is JobState.RUNNING
        machine.link("up")
        site.until(site.all_over)
        assert (site.story(cut), site.attempt(cut).number, site.job(cut).exit_code) == (NORMAL, 1, 0)
        assert (site.home / "cut").read_text().split() == [two_users[0], "ran"]
        assert (site.story(other), (site.home / "other").read_text()) == (NORMAL, f"{two_users[1]}\n")


def test_after_a_power_cut_the_job_fails_and_its_copy_runs(workspace, two_users):
    with cluster(workspace, two_users[0]) as site:
        job = site.submit("echo ran >> ran; until [ -e healed ]; do sleep 0.1; done", NODE, types=("idempotent",))
        site.start()
        site.until((site.home / "ran").exists)
        site.until(lambda: site.job(job).state is JobState.RUNNING)
        machine = site.machines[site.node_of(job)]
        machine.cut_power()
        site.until(lambda: "node still unreachable" in site.log())
        assert site.job(job).state is JobState.RUNNING  # held: it may still run
        (site.home / "healed").touch()
        machine.boot()
        site.until(site.all_over)
        assert (site.story(job)[-1], site.job(job).exit_code) == ("Error", None)
        assert {"EXIT_VALUE_OAREXEC", "RESUBMIT_JOB_AUTOMATICALLY"} <= set(site.events(job))
        copy = site.job(job + 1)
        assert (copy.resubmit_of, copy.exit_code, site.story(copy.id)) == (job, 0, NORMAL)
        assert (site.home / "ran").read_text() == "ran\nran\n"


def test_jobs_of_broken_nodes_run_elsewhere(workspace, two_users):
    nonsense = "ForceCommand head -c 3000000 /dev/urandom; sleep 600"
    with cluster(workspace, two_users[0], ("", "", nonsense, ""), more={"FINAUD_FREQUENCY": 1}) as site:
        hung, changed, *_ = site.machines
        known = (site.rack.home / "known_hosts").read_text()
        os.kill(hung.listener(), signal.SIGSTOP)
        changed.cut_power()
        changed.new_host_key()
        changed.boot()
        ids = site.submit_many(["hostname >> where"] * 4, NODE)
        site.start()
        site.until(site.all_over)
        assert {site.story(job)[-1] for job in ids} == {"Terminated"}
        assert (site.home / "where").read_text().split() == [site.nodes[3]] * 4
        assert site.states() == [SUSPECTED, SUSPECTED, SUSPECTED, ALIVE]
        why = " ".join(says for job in ids for says in site.said(job, "PING_CHECKER_NODE_SUSPECTED"))
        for words in ("timed out", "Host key verification failed", "but not our marker"):
            assert words in why
        os.kill(hung.listener(), signal.SIGCONT)
        site.until(lambda: site.states() == [ALIVE, SUSPECTED, SUSPECTED, ALIVE])
        assert (site.rack.home / "known_hosts").read_text() == known
        changed.trust()
        site.until(lambda: site.states() == [ALIVE, ALIVE, SUSPECTED, ALIVE])


def test_a_prologue_that_hangs_on_one_node_is_ended_told_and_delays_nobody(workspace, two_users):
    with site_directory() as scripts, cluster(workspace, two_users[0]) as site:
        bad = site.nodes[0]
        hang = script(scripts / "prologue", f'[ "$(hostname)" != {bad} ] || sleep 600')
        settings = {"PROLOGUE_EXEC_FILE": hang, "PROLOGUE_EPILOGUE_TIMEOUT": 8}
        with site.settings.open("a") as file:
            file.writelines(f'{name}="{value}"\n' for name, value in settings.items())
        ids = site.submit_many(["hostname > $OAR_JOB_ID"] * 3, NODE)
        others = site.submit_many(["true"] * 4, NODE, user=two_users[1])
        site.start()
        site.until(lambda: all(site.job(job).state is JobState.TERMINATED for job in others))
        [delayed] = [job for job in ids if site.job(job).state is not JobState.TERMINATED]
        assert site.job(delayed).state is JobState.LAUNCHING
        site.until(site.all_over)
        assert (site.story(delayed)[-1], site.attempt(delayed).number) == ("Terminated", 2)
        [says] = site.said(delayed, "PROLOGUE_ERROR")
        assert "did not end within 8 s" in says
        assert (site.home / str(delayed)).read_text().strip() != bad
        assert site.states() == [SUSPECTED, ALIVE, ALIVE]
