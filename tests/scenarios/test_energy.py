"""Nodes that sleep while there is nothing to do, and are woken for jobs."""

import random

import pytest

from oarlock.job.cluster import power
from oarlock.model.job import JobState, Reservation
from oarlock.settings.kinds import KEEP_AWAKE
from oarlock.simulate.cluster import BEGIN
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.planning import plans

_FAR = BEGIN + 1_000_000
_ASLEEP, _UP = {"Absent"}, {"Alive"}


def _lend(cluster, node, until):
    """Say until when a node may be woken."""
    ids = [one["resource_id"] for one in cluster.resources() if one["network_address"] == node]
    cluster.database.write(lambda tx: resources.set_properties(tx, ids, {"cm_availability": until}, at=cluster.now))


def _managed(**settings):
    """Settings of a site whose nodes can be put to sleep and woken."""
    given = {"sleep_cmd": ("sleep-node",), "wake_up_cmd": ("wake-node",), **settings}
    return {f"scheduler_node_manager_{name}": value for name, value in given.items()}


@pytest.fixture
def sleepy(make):
    cluster = make(**_managed(idle_time=100, sleep_time=200, wakeup_time=60))
    _lend(cluster, "node2", _FAR)
    return cluster


@pytest.mark.manual(175, 200)
def test_an_idle_node_sleeps_and_one_without_a_date_never_does(sleepy):
    sleepy.pass_time(90)
    assert (sleepy.slept, sleepy.states()) == ([], {"node1": _UP, "node2": _UP})
    sleepy.pass_time(1000)
    assert (sleepy.slept, sleepy.states()) == ([("node2",)], {"node1": _UP, "node2": _ASLEEP})


@pytest.mark.parametrize("until", [0, 2**31 - 1])
def test_dates_that_are_none_keep_a_node_awake(sleepy, until):
    _lend(sleepy, "node2", until)
    sleepy.pass_time(1000)
    assert sleepy.slept == []


def test_without_the_command_nobody_sleeps(make):
    cluster = make(scheduler_node_manager_idle_time=1)
    _lend(cluster, "node2", _FAR)
    cluster.pass_time(1000)
    assert cluster.states() == {"node1": _UP, "node2": _UP}


def test_the_idle_time_counts_from_the_end_of_the_last_job(sleepy):
    sleepy.submit("sleep 300", "/network_address=2,walltime=1")
    sleepy.pass_time(390)
    assert sleepy.slept == []
    sleepy.pass_time(30)
    assert sleepy.slept == [("node2",)]


def test_a_node_sleeps_until_it_is_time_to_wake_it_for_a_reservation(sleepy):
    start = BEGIN + 310
    sleepy.submit("sleep 10", "/network_address=2,walltime=1", reservation=Reservation.TO_SCHEDULE, start=start)
    sleepy.pass_time(240)
    assert (sleepy.slept, sleepy.woken) == ([("node2",)], [])
    sleepy.pass_time(20)
    assert sleepy.woken == [("node2",)]


def test_a_node_wanted_within_the_sleep_time_is_not_sent_to_sleep(sleepy):
    start = BEGIN + 250
    sleepy.submit("sleep 10", "/network_address=2,walltime=1", reservation=Reservation.TO_SCHEDULE, start=start)
    sleepy.pass_time(240)
    assert (sleepy.slept, sleepy.woken) == ([], [])


@pytest.mark.manual(175, 200)
def test_a_sleeping_node_is_woken_for_a_job_and_runs_it_when_it_answers(sleepy):
    sleepy.pass_time(120)
    job = sleepy.submit("sleep 10", "/network_address=2,walltime=1")
    assert (sleepy.story(job), sleepy.woken) == (["Waiting"], [("node2",)])
    sleepy.pass_time(20)
    sleepy.nodes["node2"].up = True
    sleepy.finish(within=60)
    assert sleepy.story(job)[-1] == "Terminated"
    assert sleepy.states() == {"node1": _UP, "node2": _UP}


def test_a_woken_node_that_stays_away_is_suspected(sleepy):
    sleepy.pass_time(120)
    job = sleepy.submit("sleep 10", "/network_address=2,walltime=1")
    sleepy.pass_time(50)
    assert sleepy.states()["node2"] == _ASLEEP
    sleepy.pass_time(20)
    assert (sleepy.states()["node2"], sleepy.story(job)) == ({"Suspected"}, ["Waiting"])
    sleepy.nodes["node2"].up = True
    sleepy.check_nodes()
    sleepy.finish(within=60)
    assert sleepy.story(job)[-1] == "Terminated"


def test_a_sleeping_node_does_not_die_of_it(make):
    cluster = make(dead_switch_time=50, **_managed(idle_time=1))
    _lend(cluster, "node2", BEGIN + 500)
    cluster.pass_time(490)
    assert cluster.states()["node2"] == _ASLEEP
    cluster.pass_time(30)
    assert cluster.states()["node2"] == {"Dead"}


def test_a_node_that_would_have_to_be_woken_at_once_is_not_put_to_sleep(make):
    cluster = make(**_managed(idle_time=10, sleep_time=20, wakeup_time=300))
    _lend(cluster, "node2", _FAR)
    start = BEGIN + 250
    cluster.submit("sleep 10", "/network_address=2,walltime=1", reservation=Reservation.TO_SCHEDULE, start=start)
    cluster.pass_time(240)
    assert (cluster.slept, cluster.woken) == ([], [])


def test_so_many_idle_nodes_stay_awake_as_the_site_wants(make):
    cluster = make(nodes=5, **_managed(idle_time=10, keep_awake=KEEP_AWAKE.read("2")))
    for node in cluster.nodes:
        _lend(cluster, node, _FAR)
    cluster.pass_time(500)
    assert cluster.slept == [("node3", "node4", "node5")]


def test_others_are_woken_where_fewer_idle_nodes_than_wanted_are_awake(make):
    cluster = make(nodes=4, **_managed(idle_time=10, sleep_time=20, wakeup_time=60, keep_awake=KEEP_AWAKE.read("1")))
    for node in cluster.nodes:
        _lend(cluster, node, _FAR)
    cluster.pass_time(100)
    assert cluster.slept == [("node2", "node3", "node4")]
    cluster.submit("sleep 500", "/network_address=1,walltime=1")  # node1, the only one that is awake
    cluster.pass_time(30)
    assert cluster.woken == [("node2",)]
    cluster.nodes["node2"].up = True
    cluster.pass_time(300)
    assert cluster.states() == {"node1": _UP, "node2": _UP, "node3": _ASLEEP, "node4": _ASLEEP}


def test_each_class_of_nodes_keeps_its_own_number_awake(make):
    kept = KEEP_AWAKE.read("switch='a':1 & besteffort='YES':2, switch=none:4")
    cluster = make(nodes=6, **_managed(idle_time=10, keep_awake=kept))
    for number, node in enumerate(sorted(cluster.nodes)):
        _lend(cluster, node, _FAR)
        ids = [row["resource_id"] for row in cluster.resources() if row["network_address"] == node]
        values = {"switch": "ab"[number % 2], "besteffort": "NO" if number < 3 else "YES"}
        cluster.database.write(lambda tx, ids=ids, values=values: resources.set_properties(tx, ids, values, at=BEGIN))
    cluster.pass_time(500)
    awake = {name for name, states in cluster.states().items() if states == _UP}
    assert awake == {"node4", "node5"}, "the second fulfils both"


def test_a_class_of_a_property_that_is_not_there_keeps_nothing_awake(make):
    cluster = make(**_managed(idle_time=10, keep_awake=KEEP_AWAKE.read("cluster='paradent':2")))
    _lend(cluster, "node2", _FAR)
    cluster.pass_time(100)
    assert cluster.slept == [("node2",)]
    with cluster.database.read() as tx:
        classes, [problem] = power.awake_classes(tx, cluster.config)
    assert classes == []
    assert "cluster" in problem


def test_packed_jobs_leave_other_nodes_asleep(make):
    slept = {}
    for pack in (False, True):
        cluster = make(nodes=3, scheduler_pack_nodes=pack, **_managed(idle_time=60, sleep_time=60))
        for node in cluster.nodes:
            _lend(cluster, node, _FAR)
        first = cluster.submit("sleep 100", "/network_address=1,walltime=1")  # node1 is full while the next one comes
        cluster.submit("sleep 900", "/core=1,walltime=1")
        cluster.run_until(first, JobState.TERMINATED)
        cluster.submit("sleep 900", "/core=1,walltime=1")
        cluster.pass_time(300)
        slept[pack] = sorted(name for names in cluster.slept for name in names)
    assert slept == {False: ["node3"], True: ["node1", "node3"]}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 12))])
def test_no_node_with_a_job_planned_soon_is_put_to_sleep(make, seed):
    chance = random.Random(seed)
    cluster = make(
        nodes=4,
        scheduler_pack_nodes=bool(seed % 2),
        **_managed(idle_time=30, sleep_time=chance.choice((50, 200)), wakeup_time=100),
    )
    for node in cluster.nodes:
        _lend(cluster, node, _FAR)
    for _ in range(60):
        if chance.random() < 0.5:
            asked = chance.choice(("/core=1", "/core=2", "/network_address=1", "/network_address=2", "/core=5"))
            lasts = chance.randint(10, 300)
            cluster.submit(f"sleep {lasts}", f"{asked},walltime=0:0:{lasts + chance.choice((0, 60))}")
        if chance.random() < 0.2:
            start = cluster.now + chance.randint(100, 600)
            cluster.submit(
                "sleep 20", "/network_address=1,walltime=0:1:0", reservation=Reservation.TO_SCHEDULE, start=start
            )
        before = len(cluster.slept)
        cluster.pass_time(chance.randint(5, 60))
        assert not _wanted_soon(cluster, 100) & {name for names in cluster.slept[before:] for name in names}
        for name in {name for names in cluster.woken for name in names}:
            cluster.nodes[name].up = True
        cluster.woken.clear()
    for node in cluster.nodes.values():
        node.up = True
    cluster.check_nodes()
    cluster.pass_time(5000)
    for node in cluster.nodes.values():
        node.up = True
    cluster.check_nodes()  # who was woken meanwhile and did not come is suspected
    cluster.finish(within=20_000)


def _wanted_soon(cluster, notice):
    """Give the nodes that are asleep though a job is planned on them within the notice, and nobody woke them."""
    with cluster.database.read() as tx:
        planned = [one for one in plans.read(tx).values() if one.start <= cluster.now + notice]
        ids = {number for one in planned for number in one.resources}
        names = {str(one.properties["network_address"]) for one in resources.listed(tx, ids)} if ids else set()
    woken = {name for asked in cluster.woken for name in asked}
    return names - woken
