"""What `--why` and `--dry-run` say of reservations."""

import pytest

from oarlock.job import explain
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState, Reservation
from oarlock.model.resource import NextState
from oarlock.simulate.cluster import BEGIN
from oarlock.store.engine.database import Database
from oarlock.store.queries.job.new_jobs import NewJob
from tests.scenarios.cluster import Cluster

DATE = BEGIN + 100


@pytest.fixture
def cluster(database: Database) -> Cluster:
    return Cluster(database)


def _why(cluster: Cluster, job: int) -> str:
    with cluster.database.read() as tx:
        return explain.why(tx, cluster.config, job, now=cluster.now).says


def test_a_reservation_past_its_date_says_what_it_waits_for(cluster: Cluster):
    kept = cluster.submit(
        "sleep 9", "/network_address=2,walltime=0:10:0", reservation=Reservation.TO_SCHEDULE, start=DATE
    )
    cluster.set_state("node2", NextState.SUSPECTED)
    assert _why(cluster, kept) == "it is a reservation that waits for its date"
    cluster.pass_time(120)
    assert cluster.job(kept).state is JobState.WAITING
    assert _why(cluster, kept) == (
        "its date has come; of its 4 resources it waits for node2 (Suspected); it starts without them in 0:04:40"
    )
    cluster.set_state("node2", NextState.DEAD)
    cluster.pass_time(20)
    assert _why(cluster, kept) == (
        "its date has come; of its 4 resources it waits for 2 that are missing; it starts without them in 0:04:20"
    )
    cluster.set_state("node1", NextState.ABSENT)
    cluster.pass_time(20)
    assert _why(cluster, kept) == (
        "its date has come; of its 4 resources it waits for node1 (Absent), 2 that are missing; "
        "its time ends in 0:09:00"
    )


def _would(cluster: Cluster, start: int) -> explain.StartEstimate:
    job = Job(
        id=0, state=JobState.WAITING, user="ada", queue="default", command="true", submitted=cluster.now,
        reservation=Reservation.TO_SCHEDULE, start=start,
    )  # fmt: skip
    new = NewJob(job, requests.parse(["/network_address=2,walltime=0:10:0"]))
    with cluster.database.read() as tx:
        return explain.when(tx, cluster.config, new, now=cluster.now)


def test_a_dry_run_of_a_reservation_answers_yes_or_no(cluster: Cluster):
    cluster.submit("sleep 900", "/core=1,walltime=0:30:0")
    assert _would(cluster, BEGIN + 3600) == explain.StartEstimate(
        BEGIN + 3600, ("node1", "node2"), "yes: the reservation would be accepted"
    )
    assert _would(cluster, BEGIN + 600) == explain.StartEstimate(
        None, (), "no: the date is taken; it could start 0:20:01 later"
    )
