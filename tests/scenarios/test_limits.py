"""Quotas, containers, placeholders and dates through the life of jobs."""

import json
import time

from oarlock.job import explain
from oarlock.job.limits import add_maintenance_window
from oarlock.model.job import JobState, Reservation

HOUR = 3600


def date(instant: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(instant))


def why(cluster, job: int) -> str:
    with cluster.database.read() as tx:
        return explain.why(tx, cluster.config, job, now=cluster.now).says


def states(cluster, *ids: int) -> list[JobState]:
    return [cluster.job(number).state for number in ids]


def test_a_user_over_the_quota_waits_for_his_own_jobs(make, tmp_path):
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps({"quotas": {"*,*,*,/": [2, -1, -1]}}))
    cluster = make(quotas=True, quotas_conf_file=file)
    first, second, other = cluster.submit(asked="/core=2,walltime=1"), cluster.submit(), cluster.submit(user="bob")
    cluster.run_until(other, JobState.RUNNING)
    assert states(cluster, first, second, other) == [JobState.RUNNING, JobState.WAITING, JobState.RUNNING]
    assert "the quota `*,*,*,/` is 2 resources at once; 2 are taken and it asks for 1" in why(cluster, second)
    cluster.run_until(first, JobState.TERMINATED)
    cluster.run_until(second, JobState.RUNNING)


def test_a_job_that_ended_badly_is_told_what_did_it(make):
    cluster = make()
    job = cluster.submit("sleep 500")
    cluster.run_until(job, JobState.RUNNING)
    cluster.kill(job)
    cluster.run_until(job, JobState.ERROR)
    assert why(cluster, job) == "it is over (Error): ada asked for its end"


def test_inner_jobs_start_when_their_container_runs_and_end_with_it(make):
    cluster = make()
    room = cluster.submit("sleep 100", "/network_address=1,walltime=1", types=("container",))
    inner = cluster.submit("sleep 500", "/core=1,walltime=0:30", types=(f"inner={room}",))
    late = cluster.submit("sleep 5", "/core=9,walltime=0:10", types=(f"inner={room}",))
    cluster.run_until(inner, JobState.RUNNING)
    assert cluster.job(room).state is JobState.RUNNING
    assert cluster.placed(inner) == cluster.placed(room)
    cluster.run_until(room, JobState.TERMINATED)
    cluster.run_until(inner, JobState.ERROR)
    cluster.run_until(late, JobState.ERROR)
    assert cluster.job(late).message == f"its container `{room}` is over"


def test_a_held_container_keeps_the_jobs_that_wait_for_it(make):
    cluster = make()
    room = cluster.submit("sleep 100", types=("container=lab",), state=JobState.HOLD)
    inner = [cluster.submit("sleep 5", "/core=1,walltime=0:10", types=(f"inner={name}",)) for name in (room, "lab")]
    cluster.pass_time(60)
    assert states(cluster, *inner) == [JobState.WAITING, JobState.WAITING]
    cluster.resume(room)
    cluster.run_until(inner[0], JobState.TERMINATED)
    cluster.run_until(inner[1], JobState.TERMINATED)


def test_a_container_takes_inner_jobs_at_its_date(make):
    cluster = make()
    room = cluster.submit("", "/core=2,walltime=1", types=("container", "noop"), start=cluster.now + 600,
                          reservation=Reservation.TO_SCHEDULE)  # fmt: skip
    inner = cluster.submit("sleep 5", "/core=1,walltime=0:10", types=(f"inner={room}",))
    assert f"belongs into a container, job {room}, which starts" in why(cluster, inner)
    cluster.run_until(inner, JobState.TERMINATED)
    assert cluster.job(inner).start >= cluster.job(room).start == cluster.attempts(inner)[0].opened_us // 1_000_000


def test_a_placeholder_lets_in_those_it_names(make):
    cluster = make(nodes=1)
    kept = cluster.submit("sleep 1000", "/core=2,walltime=1", types=("placeholder=lab",))
    others = [cluster.submit(asked="/core=2,walltime=0:10", types=types) for types in ((), ("allow=lab",))]
    cluster.run_until(others[1], JobState.RUNNING)
    assert states(cluster, kept, others[0]) == [JobState.RUNNING, JobState.WAITING]


def test_a_postponed_job_starts_at_its_date(make):
    cluster = make()
    begin = cluster.now + 2 * HOUR
    job = cluster.submit("sleep 5", types=(f"postpone={date(begin)}",))
    assert "asked to start in 2:00:00 at the earliest" in why(cluster, job)
    cluster.run_until(job, JobState.TERMINATED)
    assert cluster.job(job).start == begin


def test_a_job_that_did_not_start_by_its_expiry_date_is_given_up(make):
    cluster = make(nodes=1)
    cluster.submit("sleep 3000", "/core=2,walltime=1")
    expiry = cluster.now + HOUR // 2
    late = cluster.submit("sleep 5", "/core=1,walltime=2", types=(f"expire={date(expiry)}",))
    kept = cluster.submit("sleep 5", "/core=1,walltime=2", types=(f"expire={date(expiry + HOUR)}",))
    cluster.run_until(late, JobState.ERROR, within=HOUR)
    assert (cluster.now, cluster.job(late).message) == (expiry + 1, "it could not start by its expiry date")
    cluster.run_until(kept, JobState.TERMINATED)


def test_a_job_that_cannot_keep_its_deadline_any_more_is_given_up(make):
    cluster = make(nodes=1)
    busy = cluster.submit("sleep 3000", "/core=2,walltime=1")
    end = cluster.now + HOUR + HOUR // 2
    early = cluster.submit("sleep 5", "/core=1,walltime=0:20", types=(f"deadline={date(end)}",))
    late = cluster.submit("sleep 5", "/core=1,walltime=1", types=(f"deadline={date(end)}",))
    assert states(cluster, early, late) == [JobState.WAITING, JobState.WAITING]
    cluster.run_until(late, JobState.ERROR, within=HOUR)
    assert cluster.job(late).message == "it could not be over by its deadline"
    assert cluster.job(late).reservation is Reservation.NONE
    cluster.run_until(early, JobState.TERMINATED)
    assert cluster.job(busy).state is JobState.TERMINATED


def test_nodes_are_drained_for_maintenance_and_used_again_after_it(make):
    cluster = make()
    running = cluster.submit("sleep 2000", "/network_address=1,walltime=1")
    begin = cluster.now + 600
    met = cluster.write(
        lambda tx: add_maintenance_window(
            tx, name="cooling", start=begin, stop=begin + 1200, nodes=None, where=None, by="root", now=cluster.now
        )
    )
    assert (met.resources, met.running) == (4, (running,))
    long, short = cluster.submit("sleep 5", "/core=1,walltime=1"), cluster.submit("sleep 5", "/core=1,walltime=0:5")
    assert "maintenance `cooling` of node2 begins in 0:10:00" in why(cluster, long)
    cluster.run_until(short, JobState.TERMINATED)
    cluster.run_until(long, JobState.TERMINATED)
    assert begin + 1200 <= cluster.job(long).start < begin + 1300
    cluster.run_until(running, JobState.TERMINATED)
