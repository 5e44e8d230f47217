"""Every change that is asked for is written down with who asked; administrators read it."""

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import update

from oarlock.store.engine.database import Database
from oarlock.store.tables import audit as rows
from oarlock.web.refusals import MOST_DIFFERENT
from tests.clusters import add_nodes
from tests.store.cluster import add_job
from tests.web.nodeless_server import NOW, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(lambda tx: (add_nodes(tx, ["node1"]), add_job(tx, user="nobody")))
    with running(database, job_min_uid=1) as api:
        yield api


def _told(api: Running, query: str = "") -> list[tuple[str, ...]]:
    changes = api.client.get(f"/audit{query}").body["changes"]
    return [(one["user"], one["behalf"], one["verb"], one["channel"], one["asked"]) for one in changes]


def test_changes_are_noted_once_and_reading_is_not(api: Running):
    api.client.get("/queues")
    for _ in range(2):
        api.client.ask("POST", "/queues/stop", {"names": ["default"]}, Request_Id="same")
    api.client_of("nobody").post("/jobs/delete", {"ids": [1]})
    stopped, deleted = _told(api)
    assert stopped[:4] == ("root", "", "queues.stop", "socket")
    assert '"default"' in stopped[4]
    assert deleted[:4] == ("nobody", "", "jobs.delete", "socket")
    assert '"ids":[1]' in deleted[4]
    assert _told(api, "?by=nobody") == [deleted]
    assert _told(api, f"?since={NOW + 1}") == []


def _refused(api: Running) -> list[tuple[str, ...]]:
    changes = api.client.get("/audit").body["changes"]
    return [(one["user"], one["verb"], one["refused"]) for one in changes]


def test_a_refused_request_is_noted_with_who_what_and_why(api: Running):
    nobody = api.client_of("nobody")
    nobody.post("/queues/stop", {"names": ["default"]})
    nobody.get("/audit")
    nobody.post("/jobs", {"command": "true", "queue": "nosuch"})
    api.client.post("/queues/stop", {"names": ["nosuch"]})
    assert _refused(api) == [
        ("nobody", "queues.stop", "Only administrators may do this; nobody is not one."),
        ("nobody", "audit.list", "Only administrators may do this; nobody is not one."),
        ("nobody", "jobs.submit", "There is no queue `nosuch`."),
        ("root", "queues.stop", "There is no queue `nosuch`."),
    ]
    assert api.client.get("/audit?check=true").body["broken"] is None


def test_of_several_jobs_those_refused_are_noted_apart_from_those_done(api: Running, database: Database):
    database.write(lambda tx: (add_job(tx, user="root"), add_job(tx, user="nobody")))
    api.client_of("nobody").post("/jobs/hold", {"ids": [1, 2, 3]})
    api.client_of("nobody").post("/jobs/hold", {"ids": [2]})
    noted = [(one["asked"], one["refused"]) for one in api.client.get("/audit").body["changes"]]
    assert [(asked.partition("]")[0], refused) for asked, refused in noted] == [
        ('{"ids":[1,3', ""),
        ('{"ids":[2', "This belongs to root, not to nobody."),
    ]


def test_a_flood_of_refusals_leaves_a_few_rows(api: Running):
    nobody = api.client_of("nobody")
    for number in range(3 * MOST_DIFFERENT):
        nobody.post("/jobs/delete", {"ids": [1000 + number]})
        nobody.post("/queues/stop", {})
    assert len(_refused(api)) == MOST_DIFFERENT


def test_changes_of_a_job_are_found_by_its_number(api: Running):
    api.client_of("nobody").post("/jobs/hold", {"where": "job_user = 'nobody'"})
    api.client.post("/jobs/resume", {"ids": [1]})
    api.client.post("/jobs/resume", {"ids": [11]})
    assert [(who, verb) for who, _, verb, *_ in _told(api, "?job=1")] == [
        ("nobody", "jobs.hold"),
        ("root", "jobs.resume"),
    ]
    assert _told(api, "?job=2") == []


def test_a_job_submitted_for_somebody_else_is_noted_with_both_names(api: Running):
    api.client.ask("POST", "/jobs", {"command": "true"}, On_Behalf_Of="nobody")
    api.client_of("nobody").post("/jobs", {"command": "true"})
    [noted] = _told(api)
    assert noted[:4] == ("root", "nobody", "jobs.submit", "socket")


def test_an_edited_record_shows_when_it_is_checked(api: Running, database: Database):
    api.client.post("/queues/stop", {})
    assert api.client.get("/audit?check=true").body["broken"] is None
    database.write(lambda tx: tx.execute(update(rows).values(user_name="ada")) and None)
    body = api.client.get("/audit?check=true").body
    assert body["broken"] == body["changes"][0]["id"]
