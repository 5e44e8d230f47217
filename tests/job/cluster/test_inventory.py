"""Which resources describe machines, and which of them are missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.job.cluster.inventory import GpuOfMachine, Machine, ThreadUse, propose

GB = 1 << 30
TWO_SOCKETS = Machine((((0, 4), (2, 6)), ((1, 5), (3, 7))), 30 * GB)
FRESH = ("cpu", "cpuset", "switch", "drain")


def rows(proposal, *names):
    return [tuple(resource[name] for name in names) for resource in proposal.resources]


def test_a_core_with_its_threads_is_a_resource():
    made = propose({"n1": TWO_SOCKETS, "n2": Machine((((0,),),))}, [], FRESH)
    assert made.commands() == [
        "oarproperty -a host -c",
        "oarproperty -a core",
        "oarproperty -a mem",
        "oarnodesetting -a -h n1 -p host=n1 -p cpu=1 -p core=1 -p cpuset=0,4 -p mem=30",
        "oarnodesetting -a -h n1 -p host=n1 -p cpu=1 -p core=2 -p cpuset=2,6 -p mem=30",
        "oarnodesetting -a -h n1 -p host=n1 -p cpu=2 -p core=3 -p cpuset=1,5 -p mem=30",
        "oarnodesetting -a -h n1 -p host=n1 -p cpu=2 -p core=4 -p cpuset=3,7 -p mem=30",
        "oarnodesetting -a -h n2 -p host=n2 -p cpu=3 -p core=5 -p cpuset=0",
    ]


@pytest.mark.parametrize(
    ("use", "made"),
    [
        (ThreadUse.THREADS, [(1, 1, 1, "0"), (1, 1, 2, "4"), (1, 2, 3, "2"), (1, 2, 4, "6")]),
        (ThreadUse.CORES, [(1, 1, None, "0"), (1, 2, None, "4"), (1, 3, None, "2"), (1, 4, None, "6")]),
    ],
)
def test_a_thread_is_a_resource_where_that_is_wanted(use, made):
    found = propose({"n1": TWO_SOCKETS}, [], FRESH, use).resources[:4]
    assert [(row["cpu"], row["core"], row.get("thread"), row["cpuset"]) for row in found] == made


def test_numbers_go_on_where_the_cluster_ends_and_sockets_keep_theirs():
    existing = [
        {"network_address": "n1", "type": "default", "cpu": 7, "core": 70, "cpuset": "0,4"},
        {"network_address": "n9", "type": "default", "cpu": 9, "core": 90, "cpuset": "0"},
        {"network_address": "", "type": "licence", "cpu": None, "core": None, "cpuset": "0"},
        {"network_address": "n1", "type": "default", "cpu": None, "core": None, "cpuset": "written by hand"},
    ]
    made = propose({"n1": TWO_SOCKETS}, existing, [*FRESH, "host", "core", "mem"])
    assert (made.properties, made.present) == ((), {"n1": 2})
    assert rows(made, "cpu", "core", "cpuset") == [(7, 91, "2,6"), (10, 92, "1,5"), (10, 93, "3,7")]


def test_cores_are_divided_among_gpus_those_near_first():
    near = Machine(
        TWO_SOCKETS.sockets, 0, (GpuOfMachine(0, "A100", (1, 3, 5, 7)), GpuOfMachine(1, "A100", (0, 2, 4, 6)))
    )
    made = propose({"n1": near, "n2": near}, [], FRESH)
    assert rows(made, "cpuset", "gpu", "gpudevice")[:4] == [("0,4", 1, 1), ("2,6", 1, 1), ("1,5", 2, 0), ("3,7", 2, 0)]
    assert rows(made, "gpu", "gpudevice")[4:] == [(3, 1), (3, 1), (4, 0), (4, 0)]
    assert [name for name, _ in made.properties] == ["host", "core", "gpu", "gpudevice"]
    alone = Machine(TWO_SOCKETS.sockets, 0, (GpuOfMachine(3),))
    assert set(rows(propose({"n1": alone}, [], FRESH), "gpu", "gpudevice")) == {(1, 3)}


MACHINES = st.builds(
    lambda cores, threads, sockets, gpus: Machine(
        _sockets(cores, threads, sockets), 0, tuple(map(GpuOfMachine, range(gpus)))
    ),
    st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.integers(0, 4),
)  # fmt: skip


def _sockets(cores, threads, sockets):
    made = [tuple(core + thread * cores for thread in range(threads)) for core in range(cores)]
    return tuple(tuple(made[at::sockets]) for at in range(sockets) if made[at::sockets])


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), MACHINES, min_size=1), st.sampled_from(ThreadUse), st.data())
def test_a_second_run_adds_only_what_is_missing(machines, use, data):
    whole = propose(machines, [], FRESH, use)
    assert len({row["cpuset"] + row["network_address"] for row in whole.resources}) == len(whole.resources)
    some = data.draw(st.lists(st.sampled_from(whole.resources), unique_by=id))
    rest = propose(machines, some, FRESH, use)
    places = sorted((row["network_address"], row["cpuset"]) for row in [*some, *rest.resources])
    assert places == sorted((row["network_address"], row["cpuset"]) for row in whole.resources)
    assert propose(machines, [*some, *rest.resources], FRESH, use).resources == ()


def test_a_machine_is_described_in_a_line():
    assert (
        str(Machine(TWO_SOCKETS.sockets, 29 * GB + 1, (GpuOfMachine(0),)))
        == "2 sockets, 4 cores, 8 threads, 30 GB, 1 GPU"
    )
    assert str(Machine((((0,),),))) == "1 socket, 1 core"
