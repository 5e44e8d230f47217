"""The server's clock jumps: nobody is ended because of it, and nothing lasts less than nothing."""

import pytest
from sqlalchemy import select

from oarlock.job.run.reports import NodeReachable
from oarlock.model.event import EventType
from oarlock.model.job import JobState, Reservation
from oarlock.store.queries.cluster import events
from oarlock.store.tables import event_logs
from tests.scenarios.test_life import KILLED, NORMAL

_HOUR = 3600


def _jumps(cluster):
    of_kind = select(event_logs.c.description).where(event_logs.c.type == EventType.CLOCK_JUMP.value)
    with cluster.database.read() as tx:
        return list(tx.execute(of_kind).scalars())


@pytest.mark.parametrize("seconds", [_HOUR, 100 * _HOUR, -_HOUR, -999_000])
def test_running_jobs_live_through_a_jump_and_end_by_themselves(make, seconds):
    cluster = make(watch_frequency=10)
    ids = [cluster.submit("sleep 300", "/core=1,walltime=0:10:0") for _ in range(4)]
    cluster.pass_time(60)
    cluster.clock_jumps(seconds)
    cluster.pass_time(100)
    assert {cluster.job(job).state for job in ids} == {JobState.RUNNING}
    cluster.finish()
    assert [cluster.story(job) for job in ids] == [NORMAL] * 4
    assert all(cluster.job(job).stop >= cluster.job(job).start for job in ids)
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}
    assert _jumps(cluster) == [f"the server's clock jumped by {seconds:+d} s"]


def test_after_a_jump_the_walltime_counts_from_the_true_start(cluster):
    long = cluster.submit("sleep 900 deaf", "/core=1,walltime=0:10:0")
    cluster.pass_time(60)
    cluster.clock_jumps(_HOUR)
    cluster.restart()
    cluster.pass_time(500)
    assert cluster.job(long).state is JobState.RUNNING
    cluster.finish(within=1000)
    assert (cluster.story(long), cluster.events(long)[0]) == (KILLED, "WALLTIME")


def test_a_job_that_starts_after_a_jump_has_its_walltime_and_no_more(cluster):
    cluster.clock_jumps(_HOUR)
    cluster.pass_time(10)
    job = cluster.submit("sleep 1000", "/core=1,walltime=0:1:0")
    cluster.finish(within=100)
    assert cluster.story(job) == KILLED


def test_a_kill_under_way_is_not_given_up_because_the_clock_jumps(cluster):
    job = cluster.submit("sleep 1000 deaf")
    cluster.kill(job)
    cluster.clock_jumps(_HOUR)
    cluster.pass_time(100)
    assert "EXTERMINATE_JOB" not in cluster.events(job)
    cluster.pass_time(300)
    assert "EXTERMINATE_JOB" in cluster.events(job)


def test_resources_are_not_dead_because_the_clock_jumps(make):
    cluster = make(dead_switch_time=1000)
    cluster.unplug("node1")
    cluster.check_nodes()
    cluster.clock_jumps(_HOUR)
    cluster.pass_time(500)
    assert cluster.states()["node1"] == {"Suspected"}
    cluster.pass_time(600)
    assert cluster.states()["node1"] == {"Dead"}


def test_reservations_keep_to_the_clock(cluster):
    start = cluster.now + _HOUR
    job = cluster.submit("sleep 10", reservation=Reservation.TO_SCHEDULE, start=start)
    cluster.clock_jumps(_HOUR + 10)
    cluster.pass_time(30)
    assert cluster.story(job)[-1] == "Terminated"


def test_a_node_whose_clock_is_wrong_is_told_of_once_per_change(cluster):
    hello = cluster.nodes["node1"].greeting()
    for ahead in (0.4, 61.0, 60.2, 61.9, -30.0, 1.0, 0.0):
        cluster.receive([NodeReachable("node1", hello, ahead=ahead)])
    with cluster.database.read() as tx:
        told = [noted.event for noted in events.of_hosts(tx, ["node1"])]
    assert [(one.type, one.description) for one in told] == [
        (EventType.NODE_CLOCK_WRONG, "the clock of node1 is 61 s ahead of the server's"),
        (EventType.NODE_CLOCK_WRONG, "the clock of node1 is 30 s behind the server's"),
        (EventType.NODE_CLOCK_WRONG, "the clock of node1 is right again"),
    ]
