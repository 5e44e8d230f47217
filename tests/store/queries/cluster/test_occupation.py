"""How much of the site is given to jobs: resources by node, and GPUs, which several resources may share."""

from oarlock.model.resource import NextState, ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import listing
from oarlock.store.queries.job.listing import GpuCounts, NodeOccupation
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run


def test_resources_are_counted_by_node_and_state(tx: Tx):
    cores = add_nodes(tx, ["a", "b"])
    run(tx, add_job(tx), cores[:1])
    resources.set_state(tx, cores[3:], ResourceState.SUSPECTED, at=NOW)
    resources.request_state(tx, cores[2:3], NextState.ABSENT)
    alive, suspected = ResourceState.ALIVE, ResourceState.SUSPECTED
    assert listing.occupation_of_nodes(tx) == [
        NodeOccupation("a", alive, leaving=False, total=2, taken=1),
        NodeOccupation("b", alive, leaving=True, total=1, taken=0),
        NodeOccupation("b", suspected, leaving=False, total=1, taken=0),
    ]


def test_without_the_property_there_are_no_gpus(tx: Tx):
    add_nodes(tx, ["a"])
    properties.add(tx, "words", str)
    assert (listing.gpu_counts(tx, "gpudevice"), listing.gpu_counts(tx, "words")) == (
        GpuCounts(0, 0, 0),
        GpuCounts(0, 0, 0),
    )


def test_a_gpu_is_a_node_and_a_number_however_many_resources_share_it(tx: Tx):
    """Node a: cores 1 and 2 share GPU 0. Node b: a GPU for each core; node c: one that is out of use; d has none."""
    cores = add_nodes(tx, ["a", "b", "c", "d"])
    properties.add(tx, "gpudevice", int)
    for number, gpu in zip(cores, (0, 0, 0, 1, 0, 0, None, None), strict=True):
        resources.set_properties(tx, [number], {"gpudevice": gpu}, at=NOW)
    resources.set_state(tx, cores[4:5], ResourceState.SUSPECTED, at=NOW)
    assert listing.gpu_counts(tx, "gpudevice") == GpuCounts(total=4, taken=0, free=3)
    run(tx, add_job(tx), [cores[0], cores[3], cores[7]])
    assert listing.gpu_counts(tx, "gpudevice") == GpuCounts(total=4, taken=2, free=1)
