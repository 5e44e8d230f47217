"""JOB_VISIBILITY: what one may not see does not exist, in commands, the API, pages and streams."""

import os
import pwd
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import unquote

import pytest

from oarlock.model.event import Event, EventType
from oarlock.settings.kinds import JobVisibility
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from tests.portal import addresses
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
    one = {"user": OWNER, "uid": uid, "name": f"{CANARY}-name", "directory": f"/{CANARY}",
           "command": f"{CANARY}-script", "initial_request": f"{CANARY}-line"}  # fmt: skip
    run(tx, add_job(tx, project=f"{CANARY}-project", **one), numbers[:1], at=NOW)
    add_job(tx, project=OTHER, **one | {"name": "shared"})
    events.add(tx, [Event(EventType.WALLTIME, NOW, f"{CANARY} text", 1, ("node-1",))])


@contextmanager
def _site(path: Path, visibility: JobVisibility) -> Iterator[Running]:
    with alone(path, job_min_uid=1, job_visibility=visibility) as api:
        api.core.database.write(_fill)
        yield api


def _everywhere() -> list[str]:
    """Return every page and every verb that shows something, about the job that one may not see."""
    pages = [addresses.filled(page.path) for page in addresses.of_method("GET") if "sign-in" not in page.path]
    verbs = [path for _, path in addresses.shown_by_verbs()]
    named = {"user": OWNER, "project": f"{CANARY}-project", "ids": "1", "node": "node-1", "job": "1"}
    asked = [
        f"{path}?{field}={named[field]}"
        for verb, path in addresses.shown_by_verbs()
        for field in addresses.fields(verb)
        if field in named
    ]
    return [*PATHS, *pages, "/compare?ids=1", f"/projects/{CANARY}-project", *verbs, *asked]


def _begun(visitor: Visitor, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer; of a stream the first event."""
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    with closing(HTTPConnection("127.0.0.1", visitor.port, timeout=20)) as connection:
        connection.request("GET", path, headers={"Cookie": cookie})
        with closing(connection.getresponse()) as reply:
            is_stream = reply.getheader("content-type") == "text/event-stream"
            return reply.status, (reply.readline() if is_stream else reply.read()).decode(errors="replace")


def _leaks(visitor: Visitor, path: str) -> bool:
    """Return whether an answer gives the job away; it may repeat what the address said."""
    told = unquote(path)
    words = [
        word for word in (f"{CANARY}-name", f"/{CANARY}", f"{CANARY} text", f"{CANARY}-project") if word not in told
    ]
    _, text = _begun(visitor, path)
    return any(word in text for word in words)


@pytest.mark.parametrize("visibility", [JobVisibility.OWN, pytest.param(JobVisibility.PROJECT, marks=pytest.mark.soak)])
def test_no_page_and_no_verb_gives_away_a_job_that_one_may_not_see(sqlite_path, visibility):
    """Whatever is registered: pages, streams, verbs, with the job, its owner, project and node as filters."""
    with _site(sqlite_path, visibility) as api:
        other = signed_in(api, OTHER)
        assert [path for path in _everywhere() if _leaks(other, path)] == []
        api.core.asked.clear()
        missing = {page.path: _begun(other, addresses.filled(page.path, {"id": "99"}))[0]
                   for page in addresses.of_method("GET") if "{id}" in page.path}  # fmt: skip
        hidden = {page.path: _begun(other, addresses.filled(page.path))[0]
                  for page in addresses.of_method("GET") if "{id}" in page.path}  # fmt: skip
        assert hidden == missing
        assert api.core.asked == [] or {asked[0] for asked in api.core.asked} == {"compute"}


def test_a_hidden_job_is_refused_in_the_words_of_one_that_is_not_there(sqlite_path):
    with _site(sqlite_path, JobVisibility.OWN) as api:
        other = signed_in(api, OTHER)
        about_one = [verb for verb, _ in addresses.shown_by_verbs() if "/jobs/{id}" in verb.path]
        assert len(about_one) > 12
        for verb in about_one:
            hidden, missing = (
                _begun(other, f"/api/v1{addresses.filled(verb.path, {'id': number})}") for number in ("1", "99")
            )
            assert hidden == (missing[0], missing[1].replace("99", "1")), verb.name


def test_what_a_hidden_job_does_changes_no_etag(sqlite_path):
    with _site(sqlite_path, JobVisibility.OWN) as api:
        other, owner = signed_in(api, OTHER), signed_in(api, OWNER)
        paths = ("/api/v1/jobs", "/api/v1/jobs?limit=5", "/api/v1/events", "/api/v1/findings")
        before = [(other.get(path).headers["etag"], owner.get(path).headers["etag"]) for path in paths]

        def more(tx: Tx) -> None:
            add_job(tx, user=OWNER, uid=pwd.getpwnam(OWNER).pw_uid, name=f"{CANARY}-name", project=f"{CANARY}-project")
            events.add(tx, [Event(EventType.WALLTIME, NOW, f"{CANARY} text", 1, ("node-1",))])

        api.core.database.write(more)
        api.core.changes += 1
        after = [(other.get(path).headers["etag"], owner.get(path).headers["etag"]) for path in paths]
    assert [old[0] == new[0] for old, new in zip(before, after, strict=True)] == [True] * 4
    assert [old[1] == new[1] for old, new in zip(before, after, strict=True)] == [False, False, False, True]


@pytest.mark.soak
@pytest.mark.parametrize("visibility", list(JobVisibility))
@pytest.mark.parametrize("role", ["nobody", "other", "leader", "support", "owner", "admin"])
def test_every_role_sees_what_it_may_under_every_visibility(sqlite_path, visibility, role):
    """All pages and verbs as each role: names by visibility, what a job runs for its owner, support and staff alone."""
    roles = {"support": ("bin",), "project_leaders": {f"{CANARY}-project": ("sys",)}}
    users = {"other": OTHER, "leader": "sys", "support": "bin", "owner": OWNER, "admin": ADMIN}
    with alone(sqlite_path, job_min_uid=1, job_visibility=visibility, **roles) as api:
        api.core.database.write(_fill)
        visitor = Visitor(api.port) if role == "nobody" else signed_in(api, users[role])
        answers = {path: _begun(visitor, path) for path in _everywhere()}
    assert {path: status for path, (status, _) in answers.items() if status >= 500} == {}
    named = {path for path, (_, text) in answers.items() if f"{CANARY}-name" in text.replace(unquote(path), "")}
    sees = role not in {"nobody", "other"} or (role == "other" and visibility is JobVisibility.ALL)
    assert bool(named - {path for path in answers if "search" in path}) == sees
    runs = {path for path, (_, text) in answers.items() if f"{CANARY}-script" in text}
    assert bool(runs) == (role in {"support", "owner", "admin"})
    lines = {path for path, (_, text) in answers.items() if f"{CANARY}-line" in text}
    assert bool(lines) == (role in {"owner", "admin"})


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
