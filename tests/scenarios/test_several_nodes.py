"""One of several nodes of a job dies: what is there is not known, so nobody else gets it until it is."""

import pytest

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
