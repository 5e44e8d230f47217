"""One of several nodes of a job dies, or is cut off: what is there is not known, so nobody else gets it until it is."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oarlock.failpoints import armed
from oarlock.job.check.run import check
from oarlock.model.job import JobState
from oarlock.model.resource import NextState
from tests.scenarios.cluster import Cluster


def test_a_node_that_dies_keeps_its_resources_until_it_is_back(cluster: Cluster):
    job = cluster.submit("sleep 60", "/network_address=2/core=2,walltime=0:5:0")
    cluster.pass_time(10)
    cluster.unplug("node2")
    waits = cluster.submit("sleep 5", "/network_address=2,walltime=0:1:0")
    cluster.pass_time(200)
    assert (cluster.job(job).state, cluster.story(waits)) == (JobState.FINISHING, ["Waiting"])
    cluster.nodes["node2"].reboot()
    cluster.plug_in("node2")
    cluster.finish()
    assert (cluster.story(job)[-1], cluster.job(job).exit_code) == ("Terminated", 0)
    assert (cluster.story(waits)[-1], cluster.placed(waits)) == ("Terminated", ["node1", "node2"])
    assert [key[0] for node in cluster.nodes.values() for key in node.ran] == [job, waits]


@pytest.mark.parametrize("state", [NextState.ABSENT, NextState.DEAD])
def test_a_job_whose_nodes_are_taken_away_is_ended_on_all_of_them(cluster: Cluster, state: NextState):
    job = cluster.submit("sleep 500", "/network_address=2/core=2,walltime=0:20:0")
    cluster.set_state("node2", state)
    waits = cluster.submit("sleep 5", "/network_address=1/core=2,walltime=0:1:0")
    cluster.finish()
    assert (cluster.story(job)[-1], cluster.placed(waits)) == ("Error", ["node1"])
    assert [run for node in cluster.nodes.values() for run in node.runs.values() if run.lives] == []
    with cluster.database.read() as tx:
        assert check(tx, cluster.config) == []


@pytest.mark.parametrize("state", [NextState.ABSENT, NextState.DEAD])
def test_a_node_taken_away_while_it_does_not_answer_holds_its_job(cluster: Cluster, state: NextState):
    job = cluster.submit("sleep 500", "/core=2,walltime=0:20:0")
    cluster.unplug("node1")
    cluster.set_state("node1", state)
    cluster.pass_time(300)
    assert (cluster.job(job).state.value, len(cluster.nodes["node1"].runs)) == ("Running", 1)
    cluster.plug_in("node1")
    cluster.set_state("node1", NextState.ALIVE)
    cluster.finish()
    assert cluster.story(job)[-1] == "Error"
    with cluster.database.read() as tx:
        assert check(tx, cluster.config) == []


BOTH = "/network_address=2/core=2,walltime=1"
POINTS = {"request": False, "requested": True}
"""Where a connection breaks → whether the node heard the request."""


@contextmanager
def broken(cluster: Cluster, **places: str) -> Iterator[None]:
    """Break the connections to nodes, each where it is told something; they answer when the server looks around."""
    left = dict(places)

    def passing(point: str, name: str) -> None:
        if left.get(name) == point:
            del left[name]
            cluster.loses_connection(name, heard=POINTS.get(point, False))

    with armed(passing):
        yield
    assert not left


def test_a_release_that_a_node_did_not_hear_is_repeated(cluster: Cluster):
    job = cluster.submit("sleep 30", BOTH)
    with broken(cluster, node2="request"):
        cluster.pass_time(35)
    assert cluster.job(job).state is JobState.FINISHING
    cluster.pass_time(15)
    assert (cluster.story(job)[-1], cluster.job(job).exit_code) == ("Terminated", 0)
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}


@pytest.mark.parametrize("at", POINTS)
def test_a_node_that_was_cut_off_suspends_and_resumes_when_it_is_back(cluster: Cluster, at: str):
    job = cluster.submit("sleep 60", BOTH)
    cluster.pass_time(5)
    with broken(cluster, node2=at):
        cluster.hold(job, running=True)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.pass_time(15)
    assert cluster.job(job).state is JobState.SUSPENDED
    with broken(cluster, node1=at):
        cluster.resume(job)
    assert cluster.job(job).state is JobState.RESUMING
    cluster.pass_time(15)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.finish(within=100)
    assert (cluster.story(job)[-1], cluster.job(job).exit_code) == ("Terminated", 0)
    assert cluster.events(job) == ["HOLD_RUNNING_JOB", "RESUME_JOB", "SWITCH_INTO_TERMINATE_STATE"]


def test_a_job_suspended_again_while_a_node_is_away_stands_still(cluster: Cluster):
    job = cluster.submit("sleep 60", BOTH)
    cluster.hold(job, running=True)
    with broken(cluster, node2="requested"):
        cluster.resume(job)
    cluster.hold(job, running=True)
    cluster.pass_time(15)
    assert cluster.job(job).state is JobState.SUSPENDED
    assert not any(run.lives for node in cluster.nodes.values() for run in node.runs.values())
    cluster.resume(job)
    cluster.finish(within=100)
    assert cluster.story(job)[-1] == "Terminated"


def test_a_job_that_is_killed_is_not_suspended_any_more(cluster: Cluster):
    job = cluster.submit("sleep 60 deaf", BOTH)
    with broken(cluster, node2="request"):
        cluster.hold(job, running=True)
    cluster.kill(job)
    cluster.pass_time(15)
    assert cluster.job(job).state is JobState.RUNNING
    assert cluster.nodes["node2"].runs[job, 1].lives


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_that_missed_the_end_of_a_failed_launch_hears_it_later(cluster: Cluster, restarted: bool):
    with broken(cluster, node1="launch", node2="request"):
        job = cluster.submit("sleep 60", BOTH)
    [place] = [run for node in cluster.nodes.values() for run in node.runs.values()]
    assert (cluster.job(job).state is not JobState.RUNNING, place.launch.attempt, place.lives) == (True, 1, True)
    if restarted:
        cluster.restart()
    cluster.pass_time(15)
    assert not place.lives
    cluster.finish()
    assert (cluster.story(job)[-1], cluster.job(job).exit_code) == ("Terminated", 0)
    assert [node.runs for node in cluster.nodes.values()] == [{}, {}]
    with cluster.database.read() as tx:
        assert check(tx, cluster.config) == []
