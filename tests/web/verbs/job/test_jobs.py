"""What others may see of a job, and what nobody but its owner."""

import os
import pwd
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from sqlalchemy import event

from oarlock.client import Client as ApiClient
from oarlock.config import Config
from oarlock.job import explain
from oarlock.model.event import Event, EventType
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.job.listing import LIVE, JobFilter
from oarlock.web import views
from oarlock.web.identity import Caller, CallerChannel, UserAccount
from oarlock.web.verbs.job.jobs import listed_jobs
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, new, run, step
from tests.web.nodeless_server import Client, Running, running

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
SECRET = "launch --code canary"


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["node1", "node2"])
    first = add_job(
        tx, user="nobody", command=SECRET, environment='{"CODE": "canary"}', initial_request=f"oarsub '{SECRET}'",
        notify="mail:x@y", name="first", stdout="out.%jobid%", stderr="%jobname%.%arrayid%.%arrayindex%",
        types=("besteffort", "idempotent"), message="R=1",
    )  # fmt: skip
    ended = step(tx, run(tx, first, [1], at=NOW), JobState.FINISHING, at=NOW + 5)
    step(tx, replace(ended, exit_code=256), JobState.TERMINATED, at=NOW + 10)
    events.add(tx, [Event(EventType.WALLTIME, NOW + 4, "too long", first.id, ("node1",))])
    run(tx, add_job(tx, user="daemon", name="second"), [2, 3], at=NOW + 1)
    add_job(tx, "/network_address=2,walltime=0:30", user="nobody", after=(2,), where="core >= 0")


@pytest.fixture(scope="module")
def api(module_database: Database) -> Iterator[Running]:
    """A server where nobody changes anything."""
    module_database.write(_fill)
    with running(module_database) as api:
        yield api


def _ids(client: Client, query: str) -> list[int]:
    reply = client.get(f"/jobs{query}")
    assert reply.status == 200, reply.body
    return [job["Job_Id"] for job in reply.body["jobs"]]


def test_a_list_shows_what_is_not_over(api: Running):
    assert api.client.get("/jobs").body["jobs"][0] == {
        "Job_Id": 2, "state": "Running", "owner": "daemon", "queue": "default", "name": "second", "project": "default",
        "message": "", "submissionTime": NOW, "startTime": NOW + 1, "stopTime": 0, "array_id": 2, "exit_code": None,
        "walltime": 3600, "types": [], "scheduledStart": NOW + 1,
    }  # fmt: skip
    assert _ids(api.client, "") == [2, 3]


@pytest.mark.manual(53)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?ids=1,3", [1, 3]),
        ("?ids=1,99", [1]),
        ("?array=2", [2]),
        ("?user=nobody", [3]),
        ("?user=nobody&states=Terminated,Waiting", [1, 3]),
        ("?states=Error", []),
        ("?where=job_user%3D%27nobody%27", [1, 3]),
        ("?where=job_name+like+%27%25o%25%27&ids=2,3", [2]),
        (f"?since={NOW + 20}", [2, 3]),
        (f"?since=0&until={NOW + 1}", [1, 2, 3]),
        (f"?until={NOW}", []),
    ],
)
def test_jobs_are_found_in_many_ways(api: Running, query: str, found: list[int]):
    assert _ids(api.client, query) == found


def test_an_owner_sees_everything_of_a_job(api: Running):
    assert api.client.get("/jobs/1").body == {
        "Job_Id": 1, "array_id": 1, "array_index": 1, "name": "first", "project": "default", "owner": "nobody",
        "job_user": "nobody", "state": "Terminated", "queue": "default", "command": SECRET, "launchingDirectory": "/",
        "stdout_file": "out.1", "stderr_file": "first.1.1", "jobType": "PASSIVE", "properties": "",
        "reservation": "None", "walltime": 3600, "submissionTime": NOW, "startTime": NOW, "stopTime": NOW + 10,
        "scheduledStart": None, "message": "R=1", "initial_request": f"oarsub '{SECRET}'",
        "environment": '{"CODE": "canary"}',
        "wanted_resources": '-l "/network_address=1/core=1,walltime=1:0:0" ', "reserved_resources": [],
        "types": ["besteffort", "idempotent"],
        "dependencies": [], "assigned_resources": [1], "assigned_network_address": ["node1"],
        "cpuset_name": "nobody_1", "memory_limits": {},
        "resubmit_job_id": 0, "exit_code": 256, "checkpoint": 0, "checkpoint_signal": 12,
        "notify": "mail:x@y",
        "events": [
            {"id": 1, "type": "WALLTIME", "at": NOW + 4, "description": "too long", "hosts": ["node1"],
             "to_check": False}
        ],
    }  # fmt: skip


def test_jobs_that_cannot_be_placed_say_so_in_their_message(api: Running):
    api.core.hopeless = {1: "not told of a job that is over", 3: "No enough matching resources (no_matching_slot)"}
    listed = {line["Job_Id"]: line["message"] for line in api.client.get("/jobs?ids=1,3").body["jobs"]}
    assert listed == {1: "R=1", 3: "No enough matching resources (no_matching_slot)"}
    assert api.client.get("/jobs/3").body["message"] == "No enough matching resources (no_matching_slot)"


@as_root
@pytest.mark.parametrize(
    "path",
    ["/jobs/1", "/jobs?ids=1", "/jobs?ids=1&full=1", "/jobs/1/events", "/jobs/1/story", "/jobs/1/resources",
     f"/gantt?since=0&until={NOW + 99}", "/accounting", "/jobs/1/why"],
)  # fmt: skip
def test_no_way_leads_others_to_a_command(api: Running, path: str):
    reply = api.client_of("daemon").get(path)
    assert reply.status == 200
    assert "canary" not in str(reply.body)
    assert "x@y" not in str(reply.body)


@pytest.mark.parametrize("column", ["command", "job_env", "initial_request", "notify", "message"])
@pytest.mark.parametrize("verb", ["list", "delete"])
def test_what_is_hidden_cannot_be_guessed_by_asking(api: Running, column: str, verb: str):
    condition = f"{column} like '%canary%'"
    if verb == "list":
        refused = api.client.get(f"/jobs?where={condition.replace(' ', '+').replace('%', '%25')}")
    else:
        refused = api.client.post("/jobs/delete", {"where": condition})
    assert (refused.status, refused.body["kind"]) == (400, "UnknownProperty")


def test_a_job_tells_its_story(api: Running):
    told = api.client.get("/jobs/1/story").body["story"]
    assert [(one["state"], one["start"], one["stop"]) for one in told] == [
        ("Waiting", NOW, NOW), ("toLaunch", NOW, NOW), ("Launching", NOW, NOW), ("Running", NOW, NOW + 5),
        ("Finishing", NOW + 5, NOW + 10), ("Terminated", NOW + 10, 0),
    ]  # fmt: skip
    assert [one["type"] for one in api.client.get("/jobs/1/events").body["events"]] == ["WALLTIME"]
    assert [one["resource_id"] for one in api.client.get("/jobs/2/resources").body["resources"]] == [2, 3]


def test_why_tells_every_term_of_a_priority(api: Running):
    term = {"name": "age", "factor": 0.25, "weight": 2.0, "value": 0.5, "says": "waits 1:00:00 of 4:00:00"}
    assert api.client.get("/jobs/2/why").body["priority"] == {"total": 0.5, "terms": [term]}


@pytest.mark.parametrize("path", ["", "/events", "/story", "/why", "/resources"])
def test_a_job_that_never_was_is_unknown_everywhere(api: Running, path: str):
    refused = api.client.get(f"/jobs/99{path}")
    assert (refused.status, refused.body) == (
        404, {"error": "There is no job 99.", "hint": "`oarstat` lists yours.", "kind": "UnknownJob"},
    )  # fmt: skip


def test_a_condition_that_cannot_be_read_is_shown_with_its_place(api: Running):
    refused = api.client.get("/jobs?where=state+%3D+")
    assert (refused.status, refused.body["kind"], refused.body["text"], refused.body["at"]) == (
        400, "SyntaxRefused", "state = ", 8,
    )  # fmt: skip


@pytest.mark.manual(54)
def test_a_chart_shows_who_has_what_when(api: Running):
    chart = api.client.get(f"/gantt?since={NOW}&until={NOW + 5}").body
    assert [(job["Job_Id"], job["startTime"], job["stopTime"], job["resources"]) for job in chart["jobs"]] == [
        (1, NOW, NOW + 10, [1]), (2, NOW + 1, NOW + 3601, [2, 3]),
    ]  # fmt: skip
    assert [one["resource_id"] for one in chart["resources"]] == [1, 2, 3, 4]
    assert chart["states"] == []
    late = api.client.get(f"/gantt?since={NOW + 11}&until={NOW + 12}").body
    assert [job["Job_Id"] for job in late["jobs"]] == [2]


def test_a_list_costs_as_many_questions_for_thousands_as_for_one(database: Database):
    who = Caller(UserAccount("nobody", 65534), CallerChannel.SOCKET)

    def asked() -> int:
        statements: list[str] = []
        with database.read() as tx:
            event.listen(tx, "before_cursor_execute", lambda *call: statements.append(call[2]))
            listed_jobs(tx, JobFilter(states=LIVE), who, {}, full=False)
            listed_jobs(tx, JobFilter(states=LIVE), who, {}, full=True)
        return len(statements)

    database.write(lambda tx: add_job(tx, user="nobody", types=("besteffort",)))
    one = asked()
    database.write(lambda tx: new_jobs.add(tx, [new(user="nobody", name=f"job{n}") for n in range(2000)]))
    assert asked() == one


def test_too_long_a_list_is_refused_and_not_cut(api: Running, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(views, "MOST_LISTED", 1)
    assert api.client.get("/jobs").body["kind"] == "TooMuch"
    assert api.client.get("/jobs?ids=1").status == 200


def test_a_long_answer_comes_in_pages_that_the_client_puts_together(database: Database):
    long = {"command": "c" * 60_000, "environment": '{"A": "' + "e" * 100_000 + '"}', "initial_request": "i" * 100_000}
    me = pwd.getpwuid(os.getuid()).pw_name
    members = [replace(new(user=me, array_index=place, **long), parameters=str(place)) for place in range(1, 91)]
    added = database.write(lambda tx: new_jobs.add(tx, members))
    with running(database) as api:
        first = api.client.get("/jobs?full=1").body
        assert 0 < len(first["jobs"]) < 90
        assert first["next"] == first["jobs"][-1]["Job_Id"]
        rest = api.client.get(f"/jobs?full=1&after={first['next']}").body
        together = [job["Job_Id"] for job in first["jobs"] + rest["jobs"]]
        assert (together, rest["next"]) == ([job.id for job in added], None)
        listed = ApiClient(str(api.socket)).jobs(full=1)
    assert [job["command"].rpartition(" ")[2] for job in listed] == [str(place) for place in range(1, 91)]


def _fail_to_notify(tx: Tx) -> None:
    job = add_job(tx, user="nobody", state=JobState.ERROR, message="it failed")
    kinds = (EventType.USER_MAIL_NOTIFICATION, EventType.USER_EXEC_NOTIFICATION_ERROR)
    events.add(tx, [Event(EventType.WALLTIME, NOW, "too long", job.id)])
    events.add(tx, [Event(kind, NOW + 1, "ada@lab.org canary", job.id, ("node1",)) for kind in kinds])


@as_root
def test_whom_a_user_has_told_of_a_job_is_shown_to_nobody_else(database: Database):
    database.write(_fail_to_notify)
    ways = ("/jobs/1/events", "/jobs/1", "/jobs?ids=1&full=1", "/events", "/jobs/1/why")
    with running(database) as api:
        own, others = api.client_of("nobody"), api.client_of("daemon")
        assert [str(own.get(way).body).count("canary") for way in ways[:3]] == [2, 2, 2]
        assert [str(api.client.get(way).body).count("canary") for way in ways[:4]] == [2, 2, 2, 2]
        assert [str(others.get(way).body).count("canary") for way in ways] == [0] * 5


def test_what_could_not_be_told_to_a_user_is_not_why_a_job_failed(database: Database):
    database.write(_fail_to_notify)
    with database.read() as tx:
        assert explain.why(tx, Config(), 1, now=NOW).says == "it is over (Error): too long"
