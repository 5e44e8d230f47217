"""What a job may use of its nodes: CPUs, memory, GPUs."""

from oarlock.store.queries.cluster import properties, resources
from oarlock.web import views
from oarlock.web.identity import Caller, CallerChannel, UserAccount
from tests.scenarios.cluster import Cluster

_MB = 1 << 20


def _give(cluster, name, values, kind=int):
    """Give the resources, in their order, a new property with these values."""

    def give(tx):
        properties.add(tx, name, kind)
        for number, value in enumerate(values, 1):
            if value is not None:
                resources.set_properties(tx, [number], {name: value}, at=cluster.now)

    cluster.database.write(give)


def _limits(cluster, job):
    """Give the limits that each node of a job was told."""
    return {node.name: node.runs[(job, 1)].launch.limits for node in cluster.nodes.values() if (job, 1) in node.ran}


def test_without_a_property_memory_follows_the_share_of_the_node(cluster):
    half = cluster.submit("sleep 10", "/core=1,walltime=1")
    whole = cluster.submit("sleep 10", "/network_address=1,walltime=1")
    assert [(one.cpus, one.memory) for one in _limits(cluster, half).values()] == [((0,), 4 << 30)]
    assert [(one.cpus, one.memory) for one in _limits(cluster, whole).values()] == [((0, 1), None)]


def test_the_limit_by_the_share_of_the_node_can_be_switched_off(make):
    cluster = make(job_memory_limit=False, job_memory_property="mem")
    _give(cluster, "mem", [100, None])
    named, other = (cluster.submit("sleep 10", f"{{core = {core}}}/core=1,walltime=1") for core in (0, 1))
    assert _limits(cluster, named)["node1"].memory == 100 * _MB
    assert _limits(cluster, other)["node1"].memory is None


def test_the_memory_limit_of_each_node_is_kept_with_the_attempt(database):
    cluster = Cluster(database)
    job = cluster.submit("sleep 10", "/network_address=2/core=1,walltime=1")
    [attempt] = cluster.attempts(job)
    assert [(node.name, node.memory) for node in attempt.nodes] == [("node1", 4 << 30), ("node2", 4 << 30)]
    with cluster.database.read() as tx:
        [view] = views.whole_jobs(tx, [job], Caller(UserAccount("ada", 1000), CallerChannel.SOCKET), {})
    assert view.memory_limits == {"node1": 4 << 30, "node2": 4 << 30}


def test_a_property_says_how_much_memory_goes_with_each_resource(make):
    cluster = make(job_memory_property="mem")
    _give(cluster, "mem", [100, 100, 200, 300])
    one = cluster.submit("sleep 10", "/core=1,walltime=1")
    both = cluster.submit("sleep 10", "/network_address=1,walltime=1")
    assert _limits(cluster, one)["node1"].memory == 100 * _MB
    assert _limits(cluster, both)["node2"].memory == 500 * _MB


def test_a_resource_without_a_value_leaves_the_job_with_its_share(make):
    cluster = make(job_memory_property="mem", cores=3)
    _give(cluster, "mem", ["100", None, "some"], str)
    job = cluster.submit("sleep 10", "/core=2,walltime=1")
    other = cluster.submit("sleep 10", "/core=1,walltime=1")
    assert _limits(cluster, job)["node1"].memory == (8 << 30) * 2 // 3
    assert _limits(cluster, other)["node1"].memory == (8 << 30) // 3


def test_a_property_that_the_database_does_not_have_changes_nothing(make):
    cluster = make(job_memory_property="nothing_of_the_kind")
    job = cluster.submit("sleep 10", "/core=1,walltime=1")
    assert _limits(cluster, job)["node1"].memory == 4 << 30


def _gpus(cluster, job):
    """Give what each node of a job was told of GPUs: its own, others, what is denied."""
    launches = [node.runs[(job, 1)].launch for node in cluster.nodes.values() if (job, 1) in node.ran]
    return [(one.gpus, one.other_gpus, one.limits.deny_devices) for one in launches]


def test_a_job_has_only_the_gpus_of_its_resources(cluster):
    _give(cluster, "gpudevice", [0, 1, None, None])
    first = cluster.submit("sleep 10", "/core=1,walltime=1")
    second = cluster.submit("sleep 10", "/core=1,walltime=1")
    without = cluster.submit("sleep 10", "/core=1,walltime=1")
    assert _gpus(cluster, first) == [((0,), (1,), ("/dev/nvidia1",))]
    assert _gpus(cluster, second) == [((1,), (0,), ("/dev/nvidia0",))]
    assert _gpus(cluster, without) == [((), (), ())]


def test_a_job_that_was_given_no_gpu_of_its_node_may_open_none(make):
    cluster = make(cores=2, job_gpu_property="accelerator", job_gpu_device="/dev/dri/renderD%gpu%")
    _give(cluster, "accelerator", [None, "128", None, "none"], str)
    job = cluster.submit("sleep 10", "/core=1,walltime=1")
    assert _gpus(cluster, job) == [((), (128,), ("/dev/dri/renderD128",))]
