"""Who may see what of a job of somebody else: a crawl as each role, against the table of the documentation."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from oarlock.model.software import EXECUTABLE, MODULE
from oarlock.model.summary import DayUsage, NodeMeasured, SummaryDetail, write_detail
from oarlock.settings.kinds import JobVisibility
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import scripts
from oarlock.store.queries.usage import energy, software, summaries
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay
from oarlock.store.queries.usage.software import SoftwareGroup, SoftwareSums
from oarlock.store.queries.usage.summaries import DayGroup, Summary
from tests.portal.browsing import signed_in
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import NOW, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

USERS = {"other": "daemon", "leader": "sys", "support": "bin", "owner": "nobody", "admin": "root"}
PROJECT, OF_ANOTHER = "canary-project", "another-project"
HOUR, DAY = 3600, 86_400
NAME, SCRIPT, LINE, ENVIRONMENT = "canary-name", "canary-script", "canary-line", "canary-environment"
FINDING = "cores were busy"
SOFTWARE = {"canary-solver": {"/software", "/api/v1/software"}, "canary-module": {"/api/v1/software?kind=module"}}
PATHS = [
    "/", "/jobs", "/jobs?show=all", "/jobs.csv?show=all", "/gantt", "/nodes/node-1", "/search?q=1", "/jobs/1",
    "/jobs/1/plots.json", "/gantt/about/1", "/users/nobody", "/projects/canary-project", "/energy",
    "/software", "/waste", "/me", "/api/v1/software", "/api/v1/software?kind=module",
    "/api/v1/jobs?ids=1&full=true", "/api/v1/jobs/1", "/api/v1/jobs/1/script", "/api/v1/jobs/1/findings",
    "/api/v1/jobs/1/report", "/api/v1/jobs/1/series", "/api/v1/jobs/1/usage", "/api/v1/jobs/efficiency?ids=1",
    f"/api/v1/gantt?since=0&until={NOW + 99}", "/api/v1/findings", "/api/v1/usage/days?by=project",
    "/api/v1/energy?by=project", "/api/v1/waste", "/api/v1/jobs/1/walltime", "/api/v1/audit",
]  # fmt: skip
OF_ONE = ["/jobs/1", "/api/v1/jobs/1"]
SCRIPTS = {"/jobs/1", "/api/v1/jobs?ids=1&full=true", "/api/v1/jobs/1", "/api/v1/jobs/1/script",
           f"/api/v1/gantt?since=0&until={NOW + 99}"}  # fmt: skip
FINDINGS = {"/jobs/1", "/users/nobody", "/projects/canary-project", "/api/v1/jobs/1/findings", "/api/v1/jobs/1/report",
            "/api/v1/findings"}  # fmt: skip


def _fill(tx: Tx) -> None:
    properties.add(tx, "core", int)
    numbers = resources.add(tx, [{"network_address": "node-1", "core": core} for core in range(4)], at=NOW)
    own = {"user": "nobody", "uid": pwd.getpwnam("nobody").pw_uid, "submitted": NOW - 3 * HOUR}
    _ran(tx, numbers[:2], name=NAME, project=PROJECT, command=SCRIPT, initial_request=LINE, environment=ENVIRONMENT,
         **own)  # fmt: skip
    _ran(tx, numbers[2:], name="secret-name", project=OF_ANOTHER, **own)
    held = DayUsage(jobs=1, core_seconds=4 * HOUR, core_busy_seconds=HOUR)
    day = (NOW - 2 * HOUR) // DAY * DAY
    metered = MeteredDay("node-1", day, "rapl", 5000, 2000, 0, 10.0, 1)
    energy.book(tx, [BookedDay(metered, {1: 2000, 2: 1000}, {1: 10.0, 2: 10.0})])
    for name, kind in (("canary-solver", EXECUTABLE), ("canary-module", MODULE)):
        software.add_days(tx, {SoftwareGroup(day, "nobody", PROJECT, kind, name): SoftwareSums(1, HOUR, HOUR)})
    software.add_days(
        tx, {SoftwareGroup(day, "nobody", OF_ANOTHER, EXECUTABLE, OF_ANOTHER): SoftwareSums(1, HOUR, HOUR)}
    )
    scripts.keep_submitted(tx, [(1, f"#!/bin/sh\n{SCRIPT} --password canary-secret")], now=NOW)
    summaries.add_days(tx, {DayGroup(day, "nobody", name, "default"): held for name in (PROJECT, OF_ANOTHER)})


def _ran(tx: Tx, cores: list[int], **fields: object) -> None:
    """Add a job that ran for two hours on two cores, of which half of one was busy."""
    begin, seconds = NOW - 3 * HOUR, 2.0 * HOUR
    job = run(tx, add_job(tx, **fields), cores, at=begin)
    for state in (JobState.FINISHING, JobState.TERMINATED):
        job = step(tx, job, state, at=begin + 2 * HOUR)
    measured = NodeMeasured(samples=720, seconds=seconds, cores=2.0, node_cores=4, cpu_seconds=0.6 * 2 * seconds,
                            until=seconds)  # fmt: skip
    row = {"seconds": seconds, "cpus": 2.0}
    detail = SummaryDetail(attempts={"1": {"node-1": row}}, measured={"1": {"node-1": measured}})
    summaries.save(tx, [Summary(job_id=job.id, date=NOW, core_seconds=2 * seconds, detail=write_detail(detail))])


@pytest.fixture(scope="module")
def api(sqlite_of_module: Path) -> Iterator[Running]:
    roles = {"support": ("eve", "@bin"), "project_leaders": {PROJECT: ("sys",)}}
    with alone(sqlite_of_module, job_min_uid=1, job_visibility=JobVisibility.OWN, **roles) as running:
        running.core.database.write(_fill)
        yield running


def _crawl(api: Running, role: str) -> dict[str, tuple[int, str]]:
    visitor = signed_in(api, USERS[role])
    return {path: (seen.status, seen.text) for path in PATHS for seen in [visitor.get(path)]}


def _with(pages: dict[str, tuple[int, str]], word: str) -> set[str]:
    return {path for path, (_, text) in pages.items() if word in text}


SEES_ALL = {"support", "admin", "owner"}


@pytest.mark.parametrize("role", USERS)
def test_each_role_sees_what_the_table_says_and_nothing_else(api: Running, role: str):
    pages = _crawl(api, role)
    assert {path: pages[path][0] for path in OF_ONE} == dict.fromkeys(OF_ONE, 404 if role == "other" else 200)
    assert bool(_with(pages, NAME)) == (role != "other")
    assert _with(pages, SCRIPT) == (SCRIPTS if role in SEES_ALL else set())
    private = {"/jobs/1", "/api/v1/jobs?ids=1&full=true", "/api/v1/jobs/1"} if role in {"owner", "admin"} else set()
    assert _with(pages, LINE) == private
    assert _with(pages, ENVIRONMENT) == private - {"/jobs/1"}
    assert _with(pages, "canary-secret") == ({"/api/v1/jobs/1/script"} if role == "owner" else set())
    for name, paths in SOFTWARE.items():
        assert _with(pages, name) == (paths if role != "other" else set())
    assert _with(pages, FINDING) >= (FINDINGS if role != "other" else set())
    assert bool(_with(pages, "secret-name")) == (role in SEES_ALL)
    assert bool(_with(pages, OF_ANOTHER)) == (role in SEES_ALL)
    assert (pages["/waste"][0], pages["/api/v1/waste"][0]) == (
        (200, 200) if role in {"support", "admin"} else (403, 403)
    )
    assert pages["/api/v1/audit"][0] == (200 if role == "admin" else 403)


@pytest.mark.parametrize("role", ["other", "leader", "support"])
def test_who_only_looks_cannot_act(api: Running, role: str):
    client = api.client_of(USERS[role])
    for act in ("delete", "hold", "resume"):
        [outcome] = client.post(f"/jobs/{act}", {"ids": [1]}).body["jobs"]
        assert not outcome["done"]
    if role != "other":
        assert outcome["says"] == f"Job 1 belongs to nobody, not to {USERS[role]}."
    assert client.post("/jobs/walltime", {"id": 1, "walltime": "+1"}).status == (404 if role == "other" else 403)
    assert client.post("/jobs/pin", {"id": 1}).status == (404 if role == "other" else 403)


def test_a_leader_sees_the_sums_of_the_project_and_not_of_others(api: Running):
    client = api.client_of(USERS["leader"])
    sums = client.get("/usage/days?by=project").body
    assert ([row["group"] for row in sums["rows"]], sums["own"]) == ([{"project": PROJECT}], True)
    assert [row["group"] for row in client.get("/energy?by=project").body["rows"]] == [{"project": PROJECT}]
    assert client.get(f"/usage/days?project={PROJECT}").body["own"] is False
    assert client.get(f"/usage/days?project={OF_ANOTHER}").body["rows"] == []
    assert [job["job_id"] for job in client.get("/findings").body["jobs"]] == [1]
    assert [job["job_id"] for job in api.client_of(USERS["support"]).get("/findings").body["jobs"]] == [2, 1]
    assert api.client_of(USERS["other"]).get("/findings?user=nobody").body["jobs"] == []
