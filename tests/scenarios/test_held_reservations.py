"""Reservations that are held: the place is kept, and nobody else is promised it."""

import pytest

from oarlock.job import explain
from oarlock.model.job import JobState, Reservation
from oarlock.simulate.cluster import BEGIN
from oarlock.store.engine.database import Database
from tests.scenarios.cluster import Cluster

WHOLE = "/network_address=2/core=2,walltime=0:5:0"
DATE = BEGIN + 100
ACCEPTED = ["Waiting", "toAckReservation", "Waiting"]


@pytest.fixture
def cluster(database: Database) -> Cluster:
    return Cluster(database)


def _reserve(cluster: Cluster, start: int = DATE, command: str = "sleep 500") -> int:
    return cluster.submit(command, WHOLE, reservation=Reservation.TO_SCHEDULE, start=start)


def test_a_held_reservation_keeps_its_place_and_nobody_else_is_accepted(cluster: Cluster):
    running = cluster.submit("sleep 50", "/core=1,walltime=0:1:0")
    kept = _reserve(cluster)
    cluster.hold(kept)
    rival = _reserve(cluster, DATE + 10)
    assert cluster.story(rival)[-1] == "Error"
    cluster.run_until(running, JobState.TERMINATED)
    cluster.resume(kept)
    cluster.pass_time(DATE - cluster.now - 1)
    assert cluster.story(kept) == [*ACCEPTED, "Hold", "Waiting"]
    cluster.run_until(kept, JobState.RUNNING)
    assert cluster.job(kept).start == DATE


def test_a_waiting_job_is_not_planned_on_the_place_of_a_held_reservation(cluster: Cluster):
    kept = _reserve(cluster)
    cluster.hold(kept)
    long = cluster.submit("sleep 150", "/core=1,walltime=0:3:0")
    cluster.pass_time(200)
    assert (cluster.story(kept)[-1], cluster.story(long)) == ("Hold", ["Waiting"])


def test_a_reservation_resumed_after_its_date_runs_the_rest(cluster: Cluster):
    kept = _reserve(cluster)
    cluster.hold(kept)
    cluster.pass_time(200)
    assert cluster.story(kept) == [*ACCEPTED, "Hold"]
    cluster.resume(kept)
    cluster.run_until(kept, JobState.ERROR)
    assert (cluster.job(kept).start, cluster.job(kept).stop) == (BEGIN + 200, DATE + 300)
    assert "REDUCE_RESERVATION_WALLTIME" in cluster.events(kept)


def test_a_reservation_held_until_its_end_is_in_error_with_an_event(cluster: Cluster):
    kept = _reserve(cluster)
    cluster.hold(kept)
    cluster.pass_time(DATE - BEGIN + 300)
    assert cluster.story(kept) == [*ACCEPTED, "Hold", "Error"]
    assert cluster.job(kept).stop == DATE + 300
    assert cluster.events(kept)[-1] == "SWITCH_INTO_ERROR_STATE"
    with cluster.database.read() as tx:
        says = explain.why(tx, cluster.config, kept, now=cluster.now).says
    assert "it was held until its end had passed" in says


def test_a_best_effort_job_may_stay_while_the_reservation_is_held(make):
    cluster = make(scheduler_besteffort_kill_duration_before_reservation=60)
    guest = cluster.submit("sleep 1000", "/core=1,walltime=1", types=("besteffort",), queue="besteffort")
    kept = _reserve(cluster)
    cluster.hold(kept)
    cluster.pass_time(150)
    assert cluster.story(guest)[-1] == "Running"
    cluster.resume(kept)
    cluster.run_until(kept, JobState.RUNNING)
    assert cluster.story(guest)[-1] == "Error"
