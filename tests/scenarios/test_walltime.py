"""Walltimes of running jobs change as far as nobody is delayed who was given a date."""

import json
from typing import Any

import pytest

from oarlock.job.limits import add_maintenance_window
from oarlock.job.run import walltime
from oarlock.job.run.walltime import WalltimeAsker, WalltimeStatus
from oarlock.model.errors import WalltimeRefused
from oarlock.model.job import JobState, Reservation
from oarlock.settings import kinds
from oarlock.store.queries.cluster import events

HOUR = 3600
ADA = WalltimeAsker("ada", ("physics",))
ON: dict[str, Any] = {"walltime_change_enabled": True, "walltime_max_increase": {"_": -1.0}}


def ask(cluster, job: int, text: str, asker: WalltimeAsker = ADA, **how: bool) -> WalltimeStatus:
    cluster.write(lambda tx: walltime.request(tx, cluster.config, job, text, asker, now=cluster.now, **how))
    cluster.pass_time(1)
    cluster.pass_time(60)
    return status(cluster, job)


def status(cluster, job: int) -> WalltimeStatus:
    with cluster.database.read() as tx:
        return walltime.status(tx, cluster.config, job)


def running(cluster, command: str = "sleep 9000", asked: str = "/core=1,walltime=1", **fields: Any) -> int:
    job = cluster.submit(command, asked, **fields)
    cluster.run_until(job, JobState.RUNNING)
    return job


def test_a_job_whose_walltime_grew_runs_to_its_own_end(make):
    cluster = make(**ON)
    job = running(cluster, "sleep 5000")
    assert ask(cluster, job, "+0:30").granted == 1800
    cluster.run_until(job, JobState.TERMINATED)
    assert cluster.job(job).stop - cluster.job(job).start == 5000
    with cluster.database.read() as tx:
        says = [noted.event.description for noted in events.of_jobs(tx, [job]) if noted.event.type == "WALLTIME"]
    assert says == [" walltime changed: 1:30:0 (granted: +0:30:0/pending: 0:0:0)"]


def test_a_shorter_walltime_ends_the_job_earlier(make):
    cluster = make(**ON)
    job = running(cluster)
    assert ask(cluster, job, "0:20").granted == -2400
    cluster.run_until(job, JobState.ERROR)
    assert cluster.job(job).stop - cluster.job(job).start == 1200


def test_an_increase_stops_where_a_planned_job_starts(make):
    cluster = make(nodes=1, cores=1, **ON)
    job = running(cluster)
    cluster.submit("sleep 60", "/core=1,walltime=1", user="bob")
    assert (ask(cluster, job, "+1").granted, status(cluster, job).pending) == (0, HOUR)


def test_what_did_not_fit_is_granted_when_the_planned_job_leaves(make):
    cluster = make(nodes=1, cores=1, **ON)
    job = running(cluster)
    other = cluster.submit("sleep 60", "/core=1,walltime=1", user="bob")
    assert ask(cluster, job, "+1").granted == 0
    cluster.kill(other)
    cluster.pass_time(60)
    assert (status(cluster, job).granted, status(cluster, job).pending) == (HOUR, 0)


def test_a_gap_before_a_planned_job_is_granted_in_part(make):
    cluster = make(nodes=1, cores=1, **ON)
    job = running(cluster)
    cluster.submit("sleep 60", "/core=1,walltime=1", start=cluster.now + 2 * HOUR, reservation=Reservation.TO_SCHEDULE)
    cluster.pass_time(5)
    change = ask(cluster, job, "+2")
    assert 0 < change.granted < HOUR
    assert change.granted + change.pending == 2 * HOUR
    assert cluster.job(job).start + HOUR + change.granted + 1 == cluster.job(job + 1).start


def test_planned_jobs_are_delayed_only_by_who_may_delay_them(make):
    cluster = make(nodes=1, cores=1, walltime_allowed_users_to_delay_jobs=("@physics",), **ON)
    job = running(cluster)
    other = cluster.submit("sleep 60", "/core=1,walltime=1", user="bob")
    with pytest.raises(WalltimeRefused, match="eve may not use --delay-next-jobs"):
        ask(cluster, job, "+1", WalltimeAsker("eve"), delay_next_jobs=True)
    assert ask(cluster, job, "+0:10", delay_next_jobs=True).granted == 600
    cluster.run_until(other, JobState.RUNNING)
    assert cluster.job(other).start >= cluster.job(job).start + HOUR + 600


def test_nobody_delays_a_reservation(make):
    cluster = make(nodes=1, cores=1, walltime_allowed_users_to_delay_jobs=("*",), **ON)
    job = running(cluster)
    cluster.submit("sleep 60", start=cluster.now + HOUR + 300, reservation=Reservation.TO_SCHEDULE)
    cluster.pass_time(5)
    assert ask(cluster, job, "+1", delay_next_jobs=True).granted < 300


def test_best_effort_jobs_do_not_stand_in_the_way(make):
    cluster = make(nodes=1, cores=1, **ON)
    job = running(cluster)
    cluster.submit("sleep 60", user="bob", queue="besteffort", types=("besteffort",))
    assert ask(cluster, job, "+1").granted == HOUR


def test_an_inner_job_ends_with_its_container_at_the_latest(make):
    cluster = make(**ON)
    outer = running(cluster, asked="/network_address=1,walltime=1", types=("container",))
    inner = running(cluster, asked="/core=1,walltime=0:25", types=(f"inner={outer}",))
    change = ask(cluster, inner, "+1:1:3")
    assert cluster.job(inner).start + 1500 + change.granted == cluster.job(outer).start + HOUR


def test_maintenance_is_not_run_into(make):
    cluster = make(**ON)
    job = running(cluster)
    start = cluster.now + HOUR + 600
    cluster.write(
        lambda tx: add_maintenance_window(
            tx, name="power", start=start, stop=start + 60, nodes=None, where=None, by="root", now=cluster.now
        )
    )
    change = ask(cluster, job, "+1")
    assert cluster.job(job).start + HOUR + change.granted == start


def test_an_increase_stays_within_quotas(make, tmp_path):
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps({"quotas": {"*,*,*,/": [-1, -1, 3]}}))  # 3 resource-hours at once
    cluster = make(nodes=2, quotas=True, quotas_conf_file=file, **ON)
    job, _ = running(cluster), running(cluster, asked="/core=1,walltime=1:30")
    assert (ask(cluster, job, "+2").granted, status(cluster, job).pending) == (1800, 2 * HOUR - 1800)


def test_an_increase_leaves_a_quota_to_those_who_were_given_a_date(make, tmp_path):
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps({"quotas": {"*,*,*,/": [-1, 1, -1]}}))  # a job of each user at a time
    cluster = make(nodes=2, quotas=True, quotas_conf_file=file, walltime_allowed_users_to_delay_jobs=("ada",), **ON)
    job = running(cluster)
    date, asked = cluster.now + 2 * HOUR, "/network_address=1,walltime=1"
    cluster.submit("sleep 60", asked, reservation=Reservation.TO_SCHEDULE, start=date)
    planned = cluster.submit("sleep 60", "/core=1,walltime=0:30")
    assert ask(cluster, job, "+3").granted == 0
    assert ask(cluster, job, "+3", delay_next_jobs=True).granted == date - 1 - cluster.job(job).start - HOUR
    cluster.run_until(planned, JobState.RUNNING)
    assert cluster.job(planned).start > date


def test_the_settings_of_oar_bound_and_divide_an_increase(make):
    limits = kinds.BY_QUEUE.read("{_ => 7200, 'night' => 0.5}")
    steps = {"walltime_increment": {"_": 600.0}, "walltime_change_apply_time": {"_": 0.25}}
    cluster = make(**ON | {"walltime_max_increase": limits} | steps)
    job = running(cluster)
    assert status(cluster, job).most == 7200
    with pytest.raises(WalltimeRefused, match="the walltime cannot increase by more than 2:0:0"):
        ask(cluster, job, "+50")
    assert ask(cluster, job, "+1").granted == 0
    cluster.pass_time(HOUR - 900)
    assert (status(cluster, job).granted, status(cluster, job).pending) == (600, 3000)
    with pytest.raises(WalltimeRefused, match="may not use --force"):
        ask(cluster, job, "+1", force=True)
    assert ask(cluster, job, "+0:45", WalltimeAsker("root", admin=True), force=True).granted == 600 + 2700


def test_an_increase_waits_for_its_apply_time(make):
    cluster = make(**ON | {"walltime_change_apply_time": {"_": 900.0}})
    job = running(cluster)
    assert ask(cluster, job, "+0:30").granted == 0
    cluster.pass_time(HOUR - 1200)
    assert status(cluster, job).granted == 0
    cluster.pass_time(400)
    assert status(cluster, job).granted == 1800


def test_a_node_that_was_away_learns_the_walltime_later(make):
    cluster = make(nodes=1, **ON)
    job = running(cluster, "sleep 5000")
    cluster.nodes["node1"].hangs = True
    assert ask(cluster, job, "+0:30").granted == 1800
    cluster.nodes["node1"].go_on(delivered=False)
    cluster.run_until(job, JobState.TERMINATED)
    assert cluster.job(job).stop - cluster.job(job).start == 5000


def test_walltimes_stay_as_they_are_where_the_site_says_nothing(make):
    cluster = make()
    job = running(cluster)
    assert status(cluster, job).most == 0
    with pytest.raises(WalltimeRefused, match="WALLTIME_CHANGE_ENABLED"):
        ask(cluster, job, "+1")
    waiting = cluster.submit(asked="/core=9,walltime=1")
    with pytest.raises(WalltimeRefused, match="is not running"):
        ask(cluster, waiting, "+1")


def test_a_walltime_that_is_over_already_is_refused(make):
    cluster = make(**ON)
    job = running(cluster)
    cluster.pass_time(1300)
    with pytest.raises(WalltimeRefused, match="has been running for 0:21"):
        ask(cluster, job, "0:20")
