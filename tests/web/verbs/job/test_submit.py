"""Submissions through the door: rules, resources, reservations, retries, dry runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.job.explain import ReservationOutcome
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.queries.job import jobs
from tests.clusters import NOW, add_nodes
from tests.store.cluster import run, step
from tests.web.nodeless_server import Client, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root submits for others")
JOB = {"command": "true", "resources": ["/core=1,walltime=0:10"], "directory": "/tmp"}


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(database, job_min_uid=1) as api:
        yield api


@pytest.fixture(scope="module")
def empty_api(module_database: Database) -> Iterator[Running]:
    """A server whose database stays empty."""
    module_database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(module_database, job_min_uid=1) as api:
        yield api


@pytest.fixture
def client(api: Running) -> Client:
    return api.client_of("nobody")


def test_a_job_is_stored_before_it_is_answered(api: Running, client: Client):
    answer = client.post("/jobs", JOB | {"name": "first"}).body
    assert answer == {"job_ids": [1], "array_id": 1, "messages": answer["messages"], "state": "Waiting",
                      "reservation": None, "interactive": False, "notes": []}  # fmt: skip
    with api.core.database.read() as tx:
        job = jobs.get(tx, 1)
    assert (job.user, job.name, job.command, job.submitted, job.directory) == ("nobody", "first", "true", NOW, "/tmp")
    assert api.core.asked == ["schedule"]


def test_a_script_is_followed_and_what_it_may_not_say_is_noted(api: Running, client: Client):
    script = "#!/bin/sh\n#OAR -n scanned\n#OAR -l /core=1,walltime=0:10 --project p\n#OAR -d runs\n"
    body = {"command": "./s.sh", "script": script, "name": "typed", "launched_from": "/home/ada", "environment": {}}
    answer = client.post("/jobs", body).body
    assert answer["notes"] == ["Line 2 of the script (--name scanned) gives way to what was given beside it."]
    with api.core.database.read() as tx:
        job = jobs.get(tx, answer["job_ids"][0])
    assert (job.name, job.project, job.directory, job.command) == ("typed", "p", "/home/ada/runs", "./s.sh")


def test_a_script_that_names_a_parameter_file_asks_for_its_lines(client: Client):
    body = JOB | {"script": "#!/bin/sh\n#OAR --array-param-file params\n"}
    refused = client.post("/jobs", body)
    assert (refused.status, refused.body["kind"], refused.body["text"]) == (400, "ParameterFileNeeded", "params")
    assert len(client.post("/jobs", body | {"array": ["a", "b"]}).body["job_ids"]) == 2


def test_an_array_is_many_jobs(client: Client):
    answer = client.post("/jobs", JOB | {"array": ["a", "b", "c"]}).body
    assert (answer["job_ids"], answer["array_id"]) == ([1, 2, 3], 1)
    assert [job["command"] for job in client.get("/jobs?array=1&full=1").body["jobs"]] == ["true a", "true b", "true c"]


def test_only_jobs_that_are_new_and_not_held_wake_the_scheduler(api: Running, client: Client):
    for request_id, held in (("one", False), ("one", False), ("two", True), ("two", True), ("three", False)):
        assert client.post("/jobs", JOB | {"hold": held}, Request_Id=request_id).status == 200
    assert api.core.asked == ["schedule"] * 2


def test_a_retry_makes_no_second_job(client: Client):
    first, second = (client.post("/jobs", JOB, Request_Id="one").body for _ in range(2))
    assert (first["job_ids"], second["job_ids"]) == ([1], [1])
    assert [job["Job_Id"] for job in client.get("/jobs").body["jobs"]] == [1]


@pytest.mark.manual(29)
def test_a_held_job_says_so(client: Client):
    assert client.post("/jobs", JOB | {"hold": True}).body["state"] == "Hold"


def test_a_reservation_waits_for_the_answer_of_the_plan(client: Client):
    answer = client.post("/jobs", JOB | {"reservation": NOW + 600}).body
    assert answer["reservation"] == {"accepted": True, "says": "accepted", "start": NOW + 600}


def test_a_reservation_that_the_plan_did_not_answer_is_not_called_refused(api: Running):
    api.core.answer = ReservationOutcome(None, "", None)
    answer = api.client_of("nobody").post("/jobs", JOB | {"reservation": NOW + 600}).body
    assert answer["reservation"] == {"accepted": None, "says": "The scheduler has not answered yet.", "start": None}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"resources": ["/core=99"]}, "NotEnoughResources"),
        ({"resources": ["/core=zero"]}, "BadCount"),
        ({"properties": "nothing = 1"}, "UnknownProperty"),
        ({"queue": "nowhere"}, "UnknownQueue"),
        ({"command": None}, "NoCommand"),
        ({"after": [77]}, "UnknownDependency"),
        ({"resubmit": 77}, "UnknownJob"),
        ({"array": []}, "BadArray"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_leaves_nothing(empty_api: Running, change: dict, kind: str):
    client = empty_api.client_of("nobody")
    refused = client.post("/jobs", JOB | change)
    assert (refused.body["kind"], refused.status // 100) == (kind, 4)
    assert client.get("/jobs").body == {"jobs": []}
    assert empty_api.core.asked == []


def test_many_at_once_get_each_their_own_answer(api: Running, client: Client):
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> object:
        bad = {} if number % 3 else {"resources": ["/core=99"]}
        answer = Client(api.connect).post("/jobs", JOB | bad | {"name": f"n{number}"}, On_Behalf_Of="nobody").body
        return (answer["job_ids"][0], f"n{number}") if number % 3 else answer["kind"]

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(one, range(60)))
    assert answers[::3] == ["NotEnoughResources"] * 20
    made = {answer for answer in answers if not isinstance(answer, str)}
    assert made == {(job["Job_Id"], job["name"]) for job in client.get("/jobs").body["jobs"]}
    assert len(made) == 40


def test_a_dry_run_stores_nothing(api: Running, client: Client):
    answer = client.post("/jobs/dry-run", JOB).body
    assert answer == {"start": NOW + 60, "nodes": "node[1-2]", "says": "in a minute", "sooner": None,
                      "messages": answer["messages"]}  # fmt: skip
    assert client.get("/jobs").body == {"jobs": []}
    assert api.core.asked == [("when", "nobody")]


def test_a_mail_that_nobody_can_send_is_told_at_once(api: Running, client: Client, database: Database):
    told = client.post("/jobs", JOB | {"notify": "[END]mail:nobody@example.org"}).body["messages"]
    assert told[-1] == "Warning: no mail will be sent, since this server has no mail server (MAIL_SMTP_SERVER)."
    assert "mail" not in str(client.post("/jobs", JOB | {"notify": "exec:/bin/true"}).body["messages"])


def test_no_mail_is_missed_where_there_is_a_mail_server(database: Database):
    database.write(lambda tx: add_nodes(tx, ["node1"]))
    with running(database, job_min_uid=1, mail_smtp_server="localhost") as api:
        told = api.client_of("nobody").post("/jobs", JOB | {"notify": "mail:nobody@example.org"})
        assert "mail" not in str(told.body["messages"])


def test_a_checkpoint_longer_than_the_walltime_is_told_at_once(client: Client):
    hour, day = "/core=1,walltime=1:00:00", "/core=1,walltime=24:00:00"
    refused = client.post("/jobs", JOB | {"resources": [hour], "checkpoint": 7200})
    walltime = "the walltime is 1:00:00 (3600 s): the signal would come at once."
    says = f"The checkpoint is asked for 7200 s before the end, and {walltime}"
    assert (refused.body["kind"], refused.body["error"]) == ("BadCheckpoint", says)
    told = client.post("/jobs", JOB | {"resources": [hour, day], "checkpoint": 7200}).body["messages"]
    assert told[-1] == (
        "Warning: with a walltime of 1:00:00 the checkpoint signal, 7200 s before the end, would come at once."
    )
    assert "Warning" not in str(client.post("/jobs", JOB | {"resources": [day], "checkpoint": 7200}).body["messages"])


def test_what_is_asked_for_beside_resubmit_is_refused(client: Client, api: Running, database: Database):
    [number] = client.post("/jobs", JOB).body["job_ids"]
    database.write(lambda tx: run(tx, jobs.get(tx, number), [1]))
    database.write(lambda tx: step(tx, step(tx, jobs.get(tx, number), JobState.FINISHING), JobState.TERMINATED))
    refused = client.post("/jobs", {"resubmit": number, "queue": "default"}).body
    assert (refused["kind"], refused["error"]) == (
        "ResubmitRefused",
        f"Job {number} would be submitted again as it was; `queue` cannot be given beside `resubmit`.",
    )
    sent_by_oarsub = {"directory": "/tmp", "environment": {"A": "1"}, "initial_request": "oarsub --resubmit"}
    assert client.post("/jobs", {"resubmit": number, **sent_by_oarsub}).status == 200


def test_a_script_with_lines_as_on_windows_is_refused(client: Client):
    refused = client.post("/jobs", JOB | {"script": "#!/bin/sh\r\ntrue\r\n"}).body
    assert (refused["kind"], refused["error"]) == (
        "BadDirective",
        "The lines of the script end as on Windows (CR LF): its interpreter would not be found.",
    )


def test_a_very_long_request_is_read_and_ruled_in_a_thread(database: Database, site: Path):
    (site / "50_name.py").write_text("def admit(job, context): job['name'] = 'ruled'")
    database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    long = {"resources": ["/core=1+/core=1+/core=1,walltime=0:10"] * 63 + ["/core=1" + " " * 4000]}
    with running(database, job_min_uid=1, admission_rules_dir=site) as api:
        client = api.client_of("nobody")
        assert client.post("/jobs", JOB).status == 200
        assert ("compute", "nobody") not in api.core.asked  # a short one costs no thread more
        assert client.post("/jobs", JOB | long).status == 200
        assert api.core.asked.count(("compute", "nobody")) == 2
        assert [job["name"] for job in client.get("/jobs").body["jobs"]] == ["ruled", "ruled"]


@pytest.mark.parametrize("kind", ["deploy", "cosystem"])
def test_where_no_frontend_is_set_its_jobs_are_refused(client: Client, kind: str):
    job = {**JOB, "resources": ["/network_address=1,walltime=0:10"], "types": [kind]}
    refused = client.post("/jobs", job)
    assert (refused.status, refused.body["kind"]) == (403, "FrontendRefused")
    assert f"{kind.upper()}_HOSTNAME" in refused.body["error"]


@pytest.mark.parametrize(("users", "status"), [(("ada", "@staff"), 403), (("nobody",), 200), (("*",), 200)])
def test_jobs_run_on_a_frontend_only_for_those_whom_the_site_names(database: Database, users, status):
    database.write(lambda tx: add_nodes(tx, ["node1"]))
    with running(database, job_min_uid=1, cosystem_hostname="front", frontend_users=users) as api:
        answer = api.client_of("nobody").post("/jobs", JOB | {"types": ["cosystem"]})
        assert answer.status == status
        if status == 403:
            assert "FRONTEND_USERS" in answer.body["error"]
