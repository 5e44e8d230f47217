"""Who asks is what the kernel or a token says, and nothing else."""

import os
import pwd
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from oarlock.store.engine.database import Database
from oarlock.store.queries.job import jobs
from oarlock.store.queries.users import user_records
from oarlock.web.identity import Caller, CallerChannel, UserAccount, token_hash
from tests import bed
from tests.clusters import add_nodes
from tests.web.nodeless_server import NOW, Client, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
JOB = {"command": "true", "resources": ["/resource_id=1,walltime=1"], "directory": "/"}


def test_a_refusal_names_the_owner_and_tells_a_namesake_apart():
    ada = Caller(UserAccount("ada", 1000), CallerChannel.SOCKET)
    assert (ada.owner_shown("bob", 1001), ada.owner_shown("ada", 999)) == ("bob", "another ada")
    assert (ada.owner_shown("ada", 1000), ada.owner_shown("ada", None)) == ("ada", "ada")


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(database, job_min_uid=1) as api:
        yield api


@pytest.fixture(scope="module")
def shared_api(module_database: Database) -> Iterator[Running]:
    """A server for those who are refused, and for those who look only at what they made themselves."""
    module_database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(module_database, job_min_uid=1) as api:
        yield api


def _owners(api: Running, ids: list[int]) -> list[str]:
    with api.core.database.read() as tx:
        return [job.user for job in jobs.get_many(tx, ids)]


def test_who_was_not_found_for_a_moment_is_found_at_the_next_request(shared_api: Running):
    """As after an outage of the directory service, which says the same of everybody: no such user."""
    uid = 2_000_000 + os.getpid()
    assert shared_api.client_of(uid).get("/jobs").status == 401
    with bed.account(f"oarlk{os.getpid() % 100000}i", uid):
        assert shared_api.client_of(uid).get("/jobs").status == 200


def test_interleaved_requests_of_two_users_get_their_own_names(api: Running):
    clients = {user: api.client_of(user) for user in ("nobody", "daemon")}

    def fifty(user: str) -> list[int]:
        client, made = clients[user], []
        with client.connected() as connection:
            for _ in range(50):
                reply = client.ask_on(connection, "POST", "/jobs", JOB)
                assert reply.status == 200, reply.body
                made += reply.body["job_ids"]
        return made

    with ThreadPoolExecutor(2) as threads:
        made = dict(zip(clients, threads.map(fifty, clients), strict=True))
    assert {user: set(_owners(api, ids)) for user, ids in made.items()} == {
        "nobody": {"nobody"},
        "daemon": {"daemon"},
    }
    assert len({*made["nobody"], *made["daemon"]}) == 100


@pytest.mark.parametrize("field", ["user", "uid", "gid", "job_user", "owner", "groups", "admin", "on_behalf_of"])
def test_no_request_can_say_who_sends_it(shared_api: Running, field: str):
    refused = shared_api.client_of("nobody").post("/jobs", JOB | {field: "root"})
    assert (refused.status, refused.body["kind"]) == (400, "UnknownField")
    assert field in refused.body["error"]


@pytest.mark.parametrize("header", ["X_Remote_User", "Remote_User", "X_Remote_Ident", "X_Forwarded_User"])
def test_no_header_can_say_who_sends_it(shared_api: Running, header: str):
    submitted = shared_api.client_of("nobody").post("/jobs", JOB, **{header: "daemon"})
    assert _owners(shared_api, submitted.body["job_ids"]) == ["nobody"]


def test_a_token_on_the_socket_changes_nothing(api: Running):
    made = api.client_of("daemon").post("/tokens", {"name": "mine"}).body["token"]
    client = api.client_of("nobody")
    client.token = made
    assert _owners(api, client.post("/jobs", JOB).body["job_ids"]) == ["nobody"]


def test_an_administrator_submits_for_somebody_and_nobody_else_does(api: Running):
    done = api.client.post("/jobs", JOB, On_Behalf_Of="nobody")
    assert _owners(api, done.body["job_ids"]) == ["nobody"]
    asked = [
        api.client_of("daemon").post("/jobs", JOB, On_Behalf_Of="nobody"),
        api.client.post("/jobs", JOB, On_Behalf_Of="root"),
        api.client.post("/jobs", JOB, On_Behalf_Of="no-such-user"),
        api.client.post("/jobs/delete", {"ids": [1]}, On_Behalf_Of="nobody"),
    ]
    assert [one.body["kind"] for one in asked] == ["Forbidden", "SubmitterRefused", "BadRequest", "BadRequest"]


def _at_port(api: Running, made: str) -> Client:
    return api.client_at_port(made)


def test_a_token_stands_for_its_user_until_it_is_revoked(api: Running):
    client = api.client_of("nobody")
    made = client.post("/tokens", {"name": "laptop", "days": 1}).body["token"]
    at_port = _at_port(api, made)
    assert _owners(api, at_port.post("/jobs", JOB).body["job_ids"]) == ["nobody"]
    assert at_port.get("/tokens").body == {
        "tokens": [{"name": "laptop", "created": NOW, "expires": NOW + 86_400, "node": None, "scripts": False,
                    "cluster": None, "relay": None}]
    }  # fmt: skip
    assert client.delete("/tokens/laptop").status == 200
    assert at_port.get("/jobs").status == 401
    assert client.delete("/tokens/laptop").body["kind"] == "UnknownToken"


def test_a_token_of_an_account_whose_name_was_given_again_opens_nothing(api: Running):
    made = api.client_of("nobody").post("/tokens", {"name": "old"}).body["token"]
    assert api.client_at_port(made).get("/jobs").status == 200
    api.core.database.write(lambda tx: tx.exec_driver_sql("UPDATE tokens SET uid = 4242"))
    refused = api.client_at_port(made).get("/jobs")
    assert (refused.status, refused.body["error"]) == (
        401, "That token was made by another account of the name nobody: its number was 4242, now it is 65534.",
    )  # fmt: skip


def test_only_the_hash_of_a_token_is_stored(api: Running):
    made = api.client_of("nobody").post("/tokens", {"name": "laptop"}, Request_Id="once").body["token"]
    with api.core.database.read() as tx:
        stored = [tuple(row) for row in tx.exec_driver_sql("SELECT * FROM tokens")]
        remembered = [tuple(row) for row in tx.exec_driver_sql("SELECT * FROM request_ids")]
    assert [row[:5] for row in stored] == [(token_hash(made), "nobody", "laptop", NOW, NOW + 30 * 86_400)]
    assert made not in str(remembered)
    again = api.client_of("nobody").post("/tokens", {"name": "laptop"}, Request_Id="once")
    assert (again.status, again.body["kind"]) == (409, "TokenExists")


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer nonsense", "Basic cm9vdDo=", "bearer \xff", ""])
def test_what_is_no_token_of_ours_opens_nothing(shared_api: Running, header: str):
    assert shared_api.client_at_port().get("/jobs", Authorization=header).status == 401


def test_a_token_that_expired_or_whose_user_is_gone_opens_nothing(api: Running):
    kept = [("old", "nobody", NOW), ("orphan", "no-such-user", NOW + 60)]
    for name, user, expires in kept:
        row = user_records.StoredToken(token_hash(name), user, name, 0, expires)
        api.core.database.write(lambda tx, row=row: user_records.add_token(tx, row))
    assert [_at_port(api, name).get("/jobs").status for name, *_ in kept] == [401, 401]


def test_a_user_id_without_a_name_gets_nothing(api: Running):
    nameless = next(uid for uid in range(60_000, 64_000) if not _known(uid))
    assert api.client_of(nameless).get("/jobs").body["kind"] == "NotSignedIn"


def _known(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False
