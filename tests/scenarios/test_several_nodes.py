"""One of several nodes of a job dies: what is there is not known, so nobody else gets it until it is."""

from oarlock.model.job import JobState
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
