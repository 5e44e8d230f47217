"""Users whom nobody finds for a while, or for good: what becomes of their jobs."""

import pytest

from oarlock.job import explain
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, JobState, Reservation
from oarlock.simulate.cluster import BEGIN
from tests.scenarios.test_life import NORMAL

UNKNOWN, FAILED = EventType.USER_UNKNOWN, EventType.USER_LOOKUP_ERROR


def why(cluster, job):
    with cluster.database.read() as tx:
        return explain.why(tx, cluster.config, job, now=cluster.now).says


def until_over(cluster, job):
    """Let time pass until a job is over; say how long that took."""
    begin = cluster.now
    while cluster.job(job).state not in FINAL:
        cluster.pass_time(10)
    return cluster.now - begin


@pytest.mark.parametrize("event", [UNKNOWN, FAILED])
def test_a_directory_that_is_away_for_a_moment_ends_no_job(cluster, event):
    cluster.platform.accounts["ada"] = event
    jobs = [cluster.submit("sleep 10", message="R=1") for _ in range(6)]
    other = cluster.submit("sleep 10", user="bob")
    cluster.pass_time(8)
    assert {cluster.job(job).state for job in jobs} == {JobState.WAITING}
    del cluster.platform.accounts["ada"]
    cluster.finish()
    assert {cluster.story(job)[-1] for job in (*jobs, other)} == {"Terminated"}
    assert (cluster.story(other), cluster.job(jobs[0]).message) == (NORMAL, "R=1")
    assert set.union(*cluster.states().values()) == {"Alive"}


def test_a_user_who_is_not_found_for_ten_minutes_is_believed_not_to_exist(cluster):
    cluster.platform.accounts["ada"] = UNKNOWN
    job = cluster.submit("sleep 10")
    assert 600 <= until_over(cluster, job) <= 660
    assert cluster.events(job) == ["USER_UNKNOWN", "SWITCH_INTO_ERROR_STATE"]
    assert cluster.job(job).message == "the server does not find ada"


def test_look_ups_that_fail_never_say_that_a_user_does_not_exist(cluster):
    cluster.platform.accounts["ada"] = FAILED
    job = cluster.submit("sleep 10")
    cluster.pass_time(1800)
    assert (cluster.job(job).state, cluster.events(job)) == (JobState.WAITING, ["USER_LOOKUP_ERROR"])
    cluster.platform.accounts["ada"] = UNKNOWN
    assert until_over(cluster, job) >= 600


def test_waiting_for_an_account_is_none_of_the_three_attempts(make):
    cluster = make(nodes=5)
    cluster.platform.accounts["ada"] = UNKNOWN
    job = cluster.submit("sleep 10")
    cluster.pass_time(300)
    assert len(cluster.attempts(job)) > 3
    del cluster.platform.accounts["ada"]
    for name in ("node1", "node2"):
        cluster.nodes[name].fails = "CPUSET_ERROR"
    cluster.finish()
    assert (cluster.story(job)[-1], cluster.placed(job)) == ("Terminated", ["node3"])


def test_after_its_account_is_back_a_job_still_has_three_attempts_only(make):
    cluster = make(nodes=5)
    cluster.platform.accounts["ada"] = UNKNOWN
    job = cluster.submit("sleep 10")
    cluster.pass_time(100)
    del cluster.platform.accounts["ada"]
    for node in cluster.nodes.values():
        node.fails = "CPUSET_ERROR"
    cluster.finish()
    assert cluster.job(job).state is JobState.ERROR
    assert cluster.events(job).count("CPUSET_ERROR") == 3


def test_a_job_that_waits_for_its_account_says_so(cluster):
    cluster.platform.accounts["ada"] = UNKNOWN
    job = cluster.submit("sleep 10", message="R=1")
    said = "the server does not find ada; it is looked up again every 30 s"
    assert (why(cluster, job), cluster.job(job).message) == (said, f"R=1 (waits: {said})")


def test_while_a_user_is_looked_for_others_have_the_cluster(make):
    cluster = make(nodes=1, cores=1)
    cluster.platform.accounts["ada"] = UNKNOWN
    cluster.submit("sleep 10")
    other = cluster.submit("sleep 5", user="bob")
    assert cluster.job(other).state is JobState.RUNNING


def test_an_account_that_is_away_from_a_node_for_a_moment_ends_no_job(make):
    cluster = make(nodes=1)
    cluster.nodes["node1"].fails = "USER_UNKNOWN"
    job = cluster.submit("sleep 10")
    cluster.pass_time(20)
    assert cluster.job(job).state is JobState.WAITING
    cluster.nodes["node1"].fails = ""
    cluster.finish()
    assert (cluster.story(job)[-1], cluster.states()) == ("Terminated", {"node1": {"Alive"}})


def test_a_reservation_whose_owner_is_away_starts_when_they_are_found(cluster):
    job = cluster.submit(
        "sleep 10", reservation=Reservation.TO_SCHEDULE, start=BEGIN + 100, asked="/core=1,walltime=0:30:0"
    )
    cluster.platform.accounts["ada"] = UNKNOWN
    cluster.pass_time(150)
    assert cluster.job(job).state is JobState.WAITING
    del cluster.platform.accounts["ada"]
    cluster.finish()
    assert cluster.story(job)[-1] == "Terminated"


def test_a_doubt_of_hours_ago_says_nothing_today(cluster):
    cluster.platform.accounts["ada"] = UNKNOWN
    cluster.kill(cluster.submit("sleep 10"))
    cluster.pass_time(7200)
    job = cluster.submit("sleep 10")
    assert until_over(cluster, job) >= 600
