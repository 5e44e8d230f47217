"""Acting on jobs: each is answered for itself, and nobody acts on another's."""

import os
from collections.abc import Iterator

import pytest

from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, new_jobs
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, new, run, step
from tests.web.nodeless_server import Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["node1", "node2"])
    add_job(tx, user="nobody", name="mine")
    add_job(tx, user="daemon", name="theirs")
    step(tx, run(tx, add_job(tx, user="nobody"), [1]), JobState.SUSPENDED)
    step(tx, add_job(tx, user="nobody", name="over"), JobState.ERROR, at=NOW + 1)


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    with open_database(tmp_path / "oarlock.db", create=True) as database:
        database.write(_fill)
        yield database


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    with running(database) as api:
        yield api


def test_every_job_is_answered_for_itself_in_the_order_asked(api: Running):
    told = api.client_of("nobody").post("/jobs/delete", {"ids": [2, 99, 1, 2]})
    assert told.body == {
        "jobs": [
            {
                "job_id": 2,
                "done": False,
                "says": "Job 2 belongs to daemon, not to nobody.",
                "kind": "Forbidden",
                "hint": "Ask its owner.",
            },
            {
                "job_id": 99,
                "done": False,
                "says": "There is no job 99.",
                "kind": "UnknownJob",
                "hint": "`oarstat` lists yours.",
            },
            {"job_id": 1, "done": True, "says": "done"},
        ]
    }
    assert api.core.asked == [("kill", "nobody", False, [1])]


@pytest.mark.manual(62)
def test_an_administrator_acts_on_everybodys_jobs(api: Running):
    told = api.client.post("/jobs/delete", {"ids": [1, 2], "exterminate": True})
    assert [one["done"] for one in told.body["jobs"]] == [True, True]
    assert api.core.asked == [("kill", "root", True, [1, 2])]


def test_only_administrators_give_a_job_up(api: Running):
    refused = api.client_of("nobody").post("/jobs/delete", {"ids": [1], "exterminate": True})
    assert (refused.status, refused.body["kind"], api.core.asked) == (403, "Forbidden", [])


def test_only_administrators_switch_the_best_effort_type_of_a_job(api: Running):
    request = {"ids": [3], "besteffort": True}
    refused = api.client_of("nobody").post("/jobs/delete", request)
    assert (refused.status, refused.body["kind"], api.core.asked) == (403, "Forbidden", [])
    assert api.client.post("/jobs/delete", request | {"signal": 9}).status == 400
    assert [job["done"] for job in api.client.post("/jobs/delete", request).body["jobs"]] == [True]
    assert api.core.asked == [("besteffort", "root", [3])]


@pytest.mark.manual(61)
def test_signals_and_checkpoints_are_sent_instead(api: Running):
    client = api.client_of("nobody")
    client.post("/jobs/delete", {"ids": [1], "signal": 10})
    client.post("/jobs/delete", {"ids": [1], "checkpoint": True})
    assert api.core.asked == [("signal", "nobody", 10, [1]), ("checkpoint", "nobody", [1])]


@pytest.mark.manual(60, 65, 67)
def test_a_condition_finds_ones_own_jobs_that_are_not_over(api: Running):
    everything = {"where": "job_id > 0"}
    api.client_of("nobody").post("/jobs/hold", everything)
    api.client.post("/jobs/hold", everything)
    assert api.core.asked == [("hold", "nobody", False, [1, 3]), ("hold", "root", False, [1, 2, 3])]


def test_an_array_means_its_members_that_are_not_over(api: Running):
    api.client_of("nobody").post("/jobs/delete", {"array": 1})
    assert api.client_of("nobody").post("/jobs/delete", {"array": 4}).body == {"jobs": []}
    assert api.core.asked == [("kill", "nobody", False, [1])]


@pytest.mark.manual(64)
@pytest.mark.parametrize("allowed", [False, True])
def test_stopping_what_runs_is_for_administrators_by_default(database: Database, allowed: bool):
    with running(database, users_allowed_hold_resume=allowed) as api:
        client = api.client_of("nobody")
        answers = [
            client.post("/jobs/hold", {"ids": [1]}),
            client.post("/jobs/hold", {"ids": [1], "running": True}),
            client.post("/jobs/resume", {"ids": [1]}),
            client.post("/jobs/resume", {"ids": [3]}),
            client.post("/jobs/hold", {"ids": [2], "running": True}),
        ]
    assert [one.body["jobs"][0]["done"] for one in answers] == [True, allowed, True, allowed, False]
    if not allowed:
        refused = answers[1].body["jobs"][0]
        assert refused["says"] == "Only administrators may suspend and resume running jobs here; nobody is not one."
        assert refused["hint"].startswith("With USERS_ALLOWED_HOLD_RESUME=yes in the server's settings")


def test_asked_again_with_the_same_id_nothing_is_done_again(api: Running):
    client = api.client_of("nobody")
    first, second = (client.post("/jobs/delete", {"ids": [1]}, Request_Id="once") for _ in range(2))
    assert first.body == second.body
    assert api.core.asked == [("kill", "nobody", False, [1])]


def test_the_same_id_of_two_users_is_two_requests(api: Running):
    for user in ("nobody", "daemon"):
        api.client_of(user).post("/jobs/delete", {"where": "job_id > 0"}, Request_Id="same")
    assert api.core.asked == [("kill", "nobody", False, [1, 3]), ("kill", "daemon", False, [2])]


def test_settings_name_the_administrators(database: Database):
    with running(database, admins=("daemon",)) as api:
        assert api.client_of("daemon").post("/queues/stop", {}).status == 200
        assert api.client.post("/queues/stop", {}).status == 403


def test_a_new_account_of_an_old_name_does_not_inherit_its_jobs(api: Running, database: Database):
    [job] = database.write(lambda tx: new_jobs.add(tx, [new(user="nobody", command="secret", uid=4242)]))
    client = api.client_of("nobody")
    [answer] = client.post("/jobs/delete", {"ids": [job.id]}).body["jobs"]
    assert (answer["kind"], answer["says"]) == (
        "Forbidden", f"Job {job.id} belongs to another account that was called nobody (number 4242).",
    )  # fmt: skip
    assert client.get(f"/jobs/{job.id}").body["command"] is None
    database.write(lambda tx: step(tx, jobs.get(tx, job.id), JobState.ERROR, at=NOW + 1))
    assert client.post("/jobs", {"resubmit": job.id}).body["kind"] == "NotYourJob"


def test_an_answer_too_long_to_be_kept_is_given_anew(api: Running, database: Database):
    asked = {"ids": [*range(1, 4), *range(1000, 3000)]}
    first, second = (api.client_of("nobody").post("/jobs/delete", asked, Request_Id="r").body for _ in range(2))
    assert first == second
    with database.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM request_ids").scalar_one() == 0


def test_a_queue_with_an_unknown_policy_is_refused_with_those_there_are(api: Running):
    refused = api.client.post("/queues", {"name": "night", "policy": "esay"})
    assert (refused.status, refused.body["kind"]) == (400, "UnknownPolicy")
    assert refused.body["error"] == "There is no policy `esay`."
    assert "conservative, easy, easy-sjbf" in refused.body["hint"]
    assert api.client.post("/queues", {"name": "night", "policy": "depth-3-sjbf+multifactor"}).status == 200


def test_the_queue_of_jobs_that_name_none_is_removed_only_by_force(api: Running):
    refused = api.client.ask("DELETE", "/queues/default")
    assert (refused.status, refused.body["kind"]) == (409, "QueueInUse")
    assert "--force" in refused.body["hint"]


def test_an_interactive_job_needs_no_command(api: Running):
    reply = api.client_of("nobody").post("/jobs", {"interactive": True, "resources": ["core=1"]})
    assert (reply.status, reply.body["state"]) == (200, "Waiting")


def test_a_session_needs_an_upgraded_connection(api: Running):
    refused = api.client_of("nobody").ask("GET", "/sessions")
    assert (refused.status, refused.body["kind"]) == (426, "UpgradeNeeded")


def test_an_action_without_a_selection_of_jobs_is_refused(api: Running):
    refused = api.client.post("/jobs/delete", {})
    assert (refused.status, refused.body["error"]) == (400, "Which jobs?")
