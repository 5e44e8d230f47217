"""Submissions through the door: rules, resources, reservations, retries, dry runs."""

import os
from collections.abc import Iterator

import pytest

from oarlock.store import jobs
from oarlock.store.database import Database
from tests.store.cluster import NOW, add_nodes
from tests.web.house import Answered, Client, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root submits for others")
JOB = {"command": "true", "resources": ["/core=1,walltime=0:10"], "directory": "/tmp"}


@pytest.fixture
def house(database: Database) -> Iterator[Running]:
    database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(database, job_min_uid=1) as house:
        yield house


@pytest.fixture(scope="module")
def empty_house(module_database: Database) -> Iterator[Running]:
    """A house that stays empty."""
    module_database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(module_database, job_min_uid=1) as house:
        yield house


@pytest.fixture
def client(house: Running) -> Client:
    return house.client_of("nobody")


def test_a_job_is_stored_before_it_is_answered(house: Running, client: Client):
    answer = client.post("/jobs", JOB | {"name": "first"}).body
    assert answer == {"job_ids": [1], "array_id": 1, "messages": answer["messages"], "state": "Waiting",
                      "reservation": None}  # fmt: skip
    with house.core.database.read() as tx:
        job = jobs.get(tx, 1)
    assert (job.user, job.name, job.command, job.submitted, job.directory) == ("nobody", "first", "true", NOW, "/tmp")
    assert house.core.asked == ["schedule"]


def test_an_array_is_many_jobs(client: Client):
    answer = client.post("/jobs", JOB | {"array": ["a", "b", "c"]}).body
    assert (answer["job_ids"], answer["array_id"]) == ([1, 2, 3], 1)
    assert [job["command"] for job in client.get("/jobs?array=1&full=1").body["jobs"]] == ["true a", "true b", "true c"]


def test_a_retry_makes_no_second_job(client: Client):
    first, second = (client.post("/jobs", JOB, Request_Id="one").body for _ in range(2))
    assert (first["job_ids"], second["job_ids"]) == ([1], [1])
    assert [job["Job_Id"] for job in client.get("/jobs").body["jobs"]] == [1]


def test_a_held_job_says_so(client: Client):
    assert client.post("/jobs", JOB | {"hold": True}).body["state"] == "Hold"


def test_a_reservation_waits_for_the_answer_of_the_plan(client: Client):
    answer = client.post("/jobs", JOB | {"reservation": NOW + 600}).body
    assert answer["reservation"] == {"accepted": True, "says": "accepted", "start": NOW + 600}


def test_a_reservation_that_the_plan_did_not_answer_is_not_called_refused(house: Running):
    house.core.answer = Answered(None, "", None)
    answer = house.client_of("nobody").post("/jobs", JOB | {"reservation": NOW + 600}).body
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
def test_what_cannot_be_is_refused_and_leaves_nothing(empty_house: Running, change: dict, kind: str):
    client = empty_house.client_of("nobody")
    refused = client.post("/jobs", JOB | change)
    assert (refused.body["kind"], refused.status // 100) == (kind, 4)
    assert client.get("/jobs").body == {"jobs": []}
    assert empty_house.core.asked == []


def test_many_at_once_get_each_their_own_answer(house: Running, client: Client):
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> object:
        bad = {} if number % 3 else {"resources": ["/core=99"]}
        answer = Client(house.connect).post("/jobs", JOB | bad | {"name": f"n{number}"}, On_Behalf_Of="nobody").body
        return (answer["job_ids"][0], f"n{number}") if number % 3 else answer["kind"]

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(one, range(60)))
    assert answers[::3] == ["NotEnoughResources"] * 20
    made = {answer for answer in answers if not isinstance(answer, str)}
    assert made == {(job["Job_Id"], job["name"]) for job in client.get("/jobs").body["jobs"]}
    assert len(made) == 40


def test_a_dry_run_stores_nothing(house: Running, client: Client):
    answer = client.post("/jobs/dry-run", JOB).body
    assert answer == {"start": NOW + 60, "nodes": "node[1-2]", "says": "in a minute", "sooner": None,
                      "messages": answer["messages"]}  # fmt: skip
    assert client.get("/jobs").body == {"jobs": []}
    assert house.core.asked == [("when", "nobody")]
