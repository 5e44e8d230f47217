"""JOB_VISIBILITY: what one may not see does not exist, in commands, the API, pages and streams."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oarlock.model.event import Event, EventType
from oarlock.settings.kinds import JobVisibility
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from tests.portal.browsing import Visitor, signed_in
from tests.store.cluster import add_job, run
from tests.web.nodeless_server import NOW, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

OWNER, OTHER, ADMIN = "nobody", "daemon", "root"
CANARY = "canary"
PATHS = [
    "/", "/?by=user", "/jobs", "/jobs?show=all", "/jobs?user=nobody&show=all", "/jobs.csv?show=all", "/nodes",
    "/nodes/node-1", "/gantt", "/search?q=canary-name", "/search?q=nobody",
    "/api/v1/jobs?states=Waiting,Running", "/api/v1/jobs?ids=1,2", "/api/v1/jobs?where=job_id%3D1",
    f"/api/v1/gantt?since=0&until={NOW + 99}", "/api/v1/resources", "/api/v1/events", "/api/v1/overview",
    "/api/v1/jobs/efficiency?ids=1,2", "/api/v1/usage?ids=1,2", "/api/v1/accounting", "/api/v1/quotas",
    "/api/v1/jobs/1", "/api/v1/jobs/1/events", "/api/v1/jobs/1/story", "/api/v1/jobs/1/why", "/api/v1/jobs/1/usage",
    "/api/v1/jobs/1/resources", "/api/v1/jobs/1/series", "/api/v1/jobs/1/report", "/api/v1/jobs/1/findings",
    "/gantt/about/1", "/users/nobody", "/energy", "/api/v1/findings", "/api/v1/usage/days?by=user,project",
    "/api/v1/energy?by=user,project", "/api/v1/agents/jobs",
    "/api/v1/jobs/1/walltime", "/jobs/1", "/jobs/1/plots.json", "/live/jobs/1",
]  # fmt: skip
ONE_JOB = [path for path in PATHS if "/jobs/1" in path]


def _fill(tx: Tx) -> None:
    properties.add(tx, "core", int)
    numbers = resources.add(tx, [{"network_address": "node-1", "core": core} for core in range(2)], at=NOW)
    uid = pwd.getpwnam(OWNER).pw_uid
    one = {"user": OWNER, "uid": uid, "name": f"{CANARY}-name", "directory": f"/{CANARY}"}
    run(tx, add_job(tx, project=f"{CANARY}-project", **one), numbers[:1], at=NOW)
    add_job(tx, project=OTHER, **one | {"name": "shared"})
    events.add(tx, [Event(EventType.WALLTIME, NOW, f"{CANARY} text", 1, ("node-1",))])


@contextmanager
def _site(path: Path, visibility: JobVisibility) -> Iterator[Running]:
    with alone(path, job_min_uid=1, job_visibility=visibility) as api:
        api.core.database.write(_fill)
        yield api


def _found(visitor: Visitor) -> dict[str, tuple[int, bool]]:
    """Return for each path the status, and whether anything in it gives the job away."""
    seen = {path: visitor.get(path) for path in PATHS}
    asked = ("canary-name",)  # a search repeats what was searched for
    return {
        path: (answer.status, CANARY in answer.text.replace(asked[0] if "search" in path else "-", ""))
        for path, answer in seen.items()
    }


@pytest.mark.parametrize("visibility", [JobVisibility.OWN, JobVisibility.PROJECT])
def test_nothing_gives_away_a_job_that_one_may_not_see(sqlite_path, visibility):
    with _site(sqlite_path, visibility) as api:
        other = signed_in(api, OTHER)
        found = _found(other)
        assert [path for path, (_, leaks) in found.items() if leaks] == []
        assert {path: found[path][0] for path in ONE_JOB} == dict.fromkeys(ONE_JOB, 404)
        assert OWNER not in other.get("/?by=user").text
        refused = api.client_of(OTHER).post("/jobs/delete", {"ids": [1]}).body["jobs"]
        missing = api.client_of(OTHER).post("/jobs/delete", {"ids": [99]}).body["jobs"]
        assert refused[0] | {"job_id": 99, "says": "There is no job 99."} == missing[0]


@pytest.mark.parametrize("user", [OWNER, ADMIN])
def test_owners_and_administrators_see_it_everywhere(sqlite_path, user):
    with _site(sqlite_path, JobVisibility.OWN) as api:
        visitor = signed_in(api, user)
        shown = ("/jobs", "/gantt", "/jobs/1", "/api/v1/jobs/1", "/api/v1/events")
        assert [path for path in shown if CANARY not in visitor.get(path).text] == []


def test_a_project_is_seen_by_the_group_of_its_name(sqlite_path):
    with _site(sqlite_path, JobVisibility.PROJECT) as api:
        listed = api.client_of(OTHER).get("/jobs").body["jobs"]
        assert [job["Job_Id"] for job in listed] == [2]
        assert signed_in(api, OTHER).get("/jobs/2").status == 200


def test_by_default_everybody_sees_the_jobs_of_all(sqlite_path):
    with _site(sqlite_path, JobVisibility.ALL) as api:
        assert [job["Job_Id"] for job in api.client_of(OTHER).get("/jobs").body["jobs"]] == [1, 2]


def test_a_bar_of_the_chart_that_one_may_not_see_has_no_name(sqlite_path):
    with _site(sqlite_path, JobVisibility.OWN) as api:
        [bar] = api.client_of(OTHER).get(f"/gantt?since=0&until={NOW + 99}").body["jobs"]
        assert (bar["Job_Id"], bar["owner"], bar["name"], bar["resources"]) == (0, "", None, [1])


def test_metrics_need_a_name_unless_everybody_sees_all(sqlite_path):
    with _site(sqlite_path, JobVisibility.OWN) as api:
        assert api.client_at_port().get("/metrics").status == 401
