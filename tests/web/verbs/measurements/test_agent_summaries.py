"""Summaries, findings and reports of jobs of other clusters, from the samples that their agents send."""

import os

import pytest

from oarlock.job import summaries
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from oarlock.store.queries.usage import judged_jobs
from oarlock.store.queries.usage import summaries as stored_summaries
from tests.web.nodeless_server import Running
from tests.web.verbs.measurements.test_agents import Node, api, notice, told

__all__ = ["api"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

NUMBER = FIRST_NUMBER + 1
SECONDS = 600


def send_job(api: Running, *, cores: float = 4.0, busy: float = 2.0, before: float = 0.0) -> None:
    """Send ten minutes of a job with some cores, and have its summary written as the collector does.

    `before` are CPU seconds from before the agent was started.
    """
    node = Node(api)
    node.send(notice(told(5, "17", name="wave")), node.sample({}))
    for second in range(0, SECONDS + 10, 10):
        api.core.clock.at += 10
        values = {"cpus": cores, "cpu_seconds_total": before + busy * second, "memory_anonymous_bytes": 1e6}
        node.send(node.encoder.encode(float(api.core.clock.at), {"cpus": 8.0}, {5: values}))
    store_summary(api)


def store_summary(api: Running) -> None:
    measured = api.core.collector.collector.sums.measured(NUMBER)
    api.core.database.write(lambda tx: summaries.keep_measured(tx, {NUMBER: measured}, now=int(api.core.clock.at)))


def test_findings_and_usage_of_a_job_of_another_cluster(api):
    send_job(api)
    owner = api.client_of("nobody")
    view = owner.get("/jobs/17/findings?cluster=alpha").body
    assert [finding["id"] for finding in view["findings"]] == ["cpu.low"]
    assert view["findings"][0]["text"].startswith("2.0 of 4 cores were busy on average")
    assert view["findings"][0]["line"] == ""  # `oarsub` is not there
    assert (view["label"], view["name"], view["user"], view["project"]) == ("17@alpha", "wave", "nobody", "physics")
    unknown = {name: view["facts"][name] for name in ("succeeded", "walltime_seconds", "walltime_share")}
    assert unknown == dict.fromkeys(unknown)
    assert owner.get(f"/jobs/{NUMBER}/findings").body == view
    used = owner.get("/jobs/17/usage?cluster=alpha").body
    assert (used["cpus"], round(used["cpu_seconds"]), used["walltime"]) == (4, 2 * SECONDS, None)
    assert [(job["label"], len(job["findings"])) for job in owner.get("/findings").body["jobs"]] == [("17@alpha", 1)]


def test_a_report_of_it_names_it_as_its_manager_does(api):
    send_job(api)
    view = api.client_of("nobody").get("/jobs/17/report?cluster=alpha").body
    assert view["text"][0] == "Job 17@alpha (wave) of nobody, project physics, queue @alpha"
    assert view["report"]["label"] == "17@alpha"


def test_what_others_may_not_see_of_it(api):
    send_job(api)
    paths = ("jobs/17/findings?cluster=alpha", "jobs/17/report?cluster=alpha", f"jobs/{NUMBER}/findings")
    for path in paths:
        assert api.client_of("daemon").get(f"/{path}").status == 403, path
        assert api.client_of("root").get(f"/{path}").status == 200, path
    assert api.client_of("daemon").get("/findings").body["jobs"] == []
    for path in ("jobs/18/findings", "jobs/18/report", "jobs/18/usage"):
        reply = api.client_of("nobody").get(f"/{path}?cluster=alpha")
        assert (reply.status, reply.body["error"]) == (404, "No agent reported a job 18 of the cluster alpha."), path


def test_sums_of_days_have_it_under_its_cluster_once(api):
    send_job(api)
    store_summary(api)  # again, as after a restart
    [row] = api.client_of("root").get("/usage/days?by=user,project,queue").body["rows"]
    assert row["group"] == {"user": "nobody", "project": "physics", "queue": "@alpha"}
    assert (row["usage"]["jobs"], round(row["usage"]["core_busy_seconds"])) == (1, 2 * SECONDS)


def test_an_agent_started_late_does_not_make_more_than_all_cores_busy(api):
    """The counter says two hours of four cores; the job began two hours before the first sample, then."""
    send_job(api, before=4 * 7200.0)
    facts = api.client_of("nobody").get("/jobs/17/findings?cluster=alpha").body["facts"]
    assert 0.9 <= facts["cpu_share"] <= 1.0
    assert facts["run_seconds"] >= 7200


def test_a_job_of_which_nothing_was_measured_yet_has_no_findings(api):
    node = Node(api)
    node.send(notice(told(5, "17")), node.sample({}))
    view = api.client_of("nobody").get("/jobs/17/findings?cluster=alpha").body
    assert (view["label"], view["findings"], view["facts"]) == ("17@alpha", [], {})
    assert api.client_of("nobody").get("/jobs/17/report?cluster=alpha").status == 404


def test_energy_that_is_booked_after_its_end_opens_its_summary_again(api):
    send_job(api)
    database = api.core.database
    for ended, wanted in ((0, []), (int(api.core.clock.at), [NUMBER])):
        database.write(lambda tx, ended=ended: agent_jobs.note_seen(tx, {}, {NUMBER: ended}))
        database.write(lambda tx: stored_summaries.reopen_ended(tx, [NUMBER]))
        with database.read() as tx:
            assert stored_summaries.not_booked(tx, 10) == wanted
    database.write(lambda tx: summaries.book(tx, now=int(api.core.clock.at)))
    with database.read() as tx:
        assert stored_summaries.not_booked(tx, 10) == []


def test_jobs_of_both_kinds_are_listed_by_their_beginning(api):
    send_job(api)
    with api.core.database.read() as tx:
        listed = judged_jobs.ids_between(tx, 0, 2**40, user=None, project=None, most=10)
        assert listed == [NUMBER]
        assert judged_jobs.ids_between(tx, 0, 2**40, user="ada", project=None, most=10) == []
        assert judged_jobs.ids_between(tx, 0, 2**40, user=None, project="physics", most=10) == [NUMBER]
