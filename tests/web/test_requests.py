"""What is asked badly is refused with a sentence, never with a fault of ours."""

import json
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock.store.engine.opening import open_database
from oarlock.web import decode
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import VERBS
from tests.clusters import add_nodes
from tests.store.cluster import add_job
from tests.web.nodeless_server import Running, running


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with open_database(tmp_path_factory.mktemp("requests") / "oarlock.db", create=True) as database:
        database.write(lambda tx: (add_nodes(tx, ["node1"]), add_job(tx)))
        with running(database, job_min_uid=1) as api:
            yield api


def test_a_field_that_is_not_known_is_named(api: Running):
    refused = api.client.post("/jobs/delete", {"ids": [1], "exterminat": True})
    assert (refused.status, refused.body) == (
        400,
        {
            "error": "There is no field `exterminat` in this request.",
            "hint": "Did you mean `exterminate`?",
            "kind": "UnknownField",
        },
    )
    refused = api.client.get("/jobs?usr=ada")
    assert (refused.status, refused.body["error"]) == (400, "There is no field `usr` in this request.")


@pytest.mark.parametrize(("name", "shown"), [("", "``"), ("a b\x1b", "`a b\\x1b`"), ("x" * 65, "`xxxxx")])
def test_a_name_that_cannot_be_is_shown_with_what_it_must_have(api: Running, name: str, shown: str):
    refused = api.client.post("/tokens", {"name": name})
    assert (refused.status, refused.body["kind"]) == (400, "BadField")
    assert re.fullmatch(rf"{re.escape(shown)}.* cannot be the `name`\.", refused.body["error"])
    assert refused.body["hint"] == "It must have 1 to 64 letters, digits, `_`, `.` and `-`."


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_takes_a_field_that_says_who_asks(api: Running, name: str):
    verb = VERBS[name]
    fields = {"user", "uid", "gid", "owner"}
    if name in {
        "jobs.list",
        "accounting.show",
        "advice.list",
        "advice.send",
        "quotas.list",
        "findings.list",
        "usage.days",
        "usage.profile",
        "waste.snooze",
        "software.show",
        "agents.jobs",
        "reports.period",
        "reports.period_pdf",
    }:
        fields.remove("user")  # here it says whose jobs, accounts, quotas or sums are wanted
    assert fields.isdisjoint(verb.request.__struct_fields__)
    if verb.role in {RequiredRole.NODES, RequiredRole.SCRIPTS}:
        return  # refused for the role of the caller, before the fields are read
    path = verb.path.format(id=1, name="x")
    headers = {"On_Behalf_Of": "nobody"} if verb.behalf else {}
    for field in fields:
        if verb.in_body:
            refused = api.client.post(path, {field: "root"}, **headers)
        else:
            refused = api.client.ask(verb.method, f"{path}?{field}=0")
        assert (refused.status, refused.body["kind"]) in {(400, "UnknownField"), (403, "SubmitterRefused")}, field


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/jobs/delete", b"", "BadRequest"),
        ("/jobs/delete", b"{", "BadRequest"),
        ("/jobs/delete", b"[]", "BadField"),
        ("/jobs/delete", b"null", "BadField"),
        ("/jobs/delete", b'{"ids": ["1"]}', "BadField"),
        ("/jobs/delete", b'{"ids": [0]}', "BadField"),
        ("/jobs/delete", b'{"ids": [99999999999999999999]}', "BadField"),
        ("/jobs/delete", b'{"ids": [1], "array": 2}', "BadRequest"),
        ("/jobs/delete", b'{"ids": [1], "signal": 65}', "BadField"),
        ("/jobs/delete", b'{"ids": [1], "signal": 9, "checkpoint": true}', "BadRequest"),
        ("/jobs/delete", b'{"array": 77}', "UnknownArray"),
        ("/jobs/delete", b'{"where": "a\\u0000b"}', "BadRequest"),
        ("/jobs/delete", b'{"where": "\\ud800"}', "BadRequest"),
        ("/jobs/delete", b'{"where": "\xff"}', "BadRequest"),
        ("/resources", b'{"host": ""}', "BadField"),
        ("/resources", b'{"host": "n", "count": 1000000}', "BadField"),
        ("/resources", b'{"host": "n", "properties": {"nothing": 1}}', "UnknownProperty"),
        ("/resources", b'{"host": "n", "properties": {"cpuset": 9223372036854775808}}', "BadPropertyValue"),
        ("/resources/state", b'{"state": "Alive"}', "BadRequest"),
        ("/resources/state", b'{"state": "Asleep", "ids": [1]}', "BadField"),
        ("/resources/state", b'{"state": "Alive", "nodes": ["nowhere"]}', "UnknownNode"),
        ("/queues", b'{"name": "a b"}', "BadField"),
        ("/tokens", b'{"name": "x", "days": 4000}', "BadField"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_kind(api: Running, path: str, body: bytes, kind: str):
    refused = api.client.post(path, body)
    assert (refused.body["kind"], refused.status // 100) == (kind, 4)
    assert refused.body["error"]


@pytest.mark.parametrize(
    "path",
    ["/jobs/0", "/jobs/x", "/jobs/-1", "/jobs/1.5", "/jobs/99999999999999999999", "/jobs?ids=a", "/jobs?user=%00",
     "/jobs?user=%ff", "/jobs?user=a&user=b", "/jobs?states=Asleep", "/jobs?" + "&".join(f"a{n}=1" for n in range(99)),
     "/jobs?since=-1", "/gantt", "/gantt?since=5&until=5", "/jobs?full=perhaps"],
)  # fmt: skip
def test_an_address_that_does_not_fit_is_refused(api: Running, path: str):
    assert api.client.get(path).status == 400


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/jobs/delete", {"ids": [1], "signal": 65}, "`signal` must be a whole number of at most 64."),
        ("/jobs/delete", {"ids": [1], "signal": 0}, "`signal` must be a whole number of at least 1."),
        ("/jobs/delete", {"ids": [0]}, "`ids[0]` must be a whole number of at least 1."),
        ("/jobs/delete", {"ids": 1}, "`ids` must be a list."),
        ("/queues", {"name": 7}, "`name` must be a text."),
        ("/resources", {"host": ""}, "A resource of type `default` is on a node: jobs run there."),
        ("/resources", {"host": "n" * 256}, "`host` must be a text of at most 255 characters."),
        ("/jobs/hold", {"ids": [1], "running": "x"}, "`running` must be true or false."),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_words(api: Running, path: str, body: Any, says: str):
    assert api.client.post(path, body).body["error"] == says


def test_where_nothing_is_nothing_is_found(api: Running):
    for method, path in [("GET", "/nothing"), ("DELETE", "/jobs"), ("POST", "/jobs/1"), ("PUT", "/queues")]:
        refused = api.client.ask(method, path)
        assert (refused.status, refused.body["kind"]) == (404, "UnknownVerb")


def test_a_change_without_a_request_id_is_refused(api: Running):
    for bad in ["", "x" * 65, "a\tb"]:
        refused = api.client.post("/queues/start", {}, Request_Id=bad)
        assert (refused.status, refused.body["kind"]) == (400, "BadRequest")


def test_a_change_asked_twice_with_one_id_is_done_once(api: Running):
    first = api.client.post("/resources", {"host": "twice"}, Request_Id="twice")
    second = api.client.post("/resources", {"host": "twice"}, Request_Id="twice")
    assert first.body == second.body
    assert len(api.client.get("/resources?nodes=twice").body["resources"]) == 1
    other = api.client.post("/queues/start", {}, Request_Id="twice")
    assert (other.status, other.body["kind"]) == (409, "RequestIdReused")


def test_a_request_over_its_limit_is_refused_and_the_connection_lives_on(api: Running):
    client = api.client
    with client.connected() as connection:
        refused = client.ask_on(connection, "POST", "/jobs/delete", b" " * (decode.LARGEST_BODY + 1))
        assert (refused.status, refused.body["kind"]) == (413, "TooLong")
        assert client.ask_on(connection, "GET", "/version").status == 200


def test_only_a_submission_may_be_large(api: Running):
    large = {"command": "true", "array": ["x" * 1000] * 3000, "directory": "/"}
    assert api.client.post("/jobs", large, On_Behalf_Of="nobody").status == 200
    huge = large | {"array": ["x" * 1000] * 11_000}
    assert api.client.post("/jobs", huge, On_Behalf_Of="nobody").status == 413
    script = {"command": "true", "script": "#" * (2 * decode.LARGEST_BODY), "directory": "/"}
    assert api.client.post("/jobs", script, On_Behalf_Of="nobody").status == 413


def test_deep_nests_cost_nothing(api: Running):
    before = time.monotonic()
    for body in (b"[" * 900_000, b'{"ids":' + b"[" * 900_000, b'{"a":' * 100_000, b'{"properties":' + b"{" * 900_000):
        for path in ("/jobs/delete", "/resources"):
            assert api.client.post(path, body).status == 400
    assert time.monotonic() - before < 10


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
_ADDRESSES = sorted({verb.path for verb in VERBS.values() if verb.in_body})


def _plausible(data: st.DataObject, path: str) -> Any:
    """Draw a body with the verb's own fields and odd values."""
    verb = next(verb for verb in VERBS.values() if verb.path == path and verb.in_body)
    names = st.sampled_from(verb.request.__struct_encode_fields__ or ("none",))
    return data.draw(st.dictionaries(names, _JSON, max_size=4))


@settings(
    max_examples=max(150, settings.default.max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data(), st.sampled_from(_ADDRESSES))
def test_no_body_brings_the_server_to_a_fault(api: Running, data: st.DataObject, path: str):
    body = _plausible(data, path) if data.draw(st.booleans()) else data.draw(_JSON | st.binary(max_size=40))
    headers = {"On_Behalf_Of": "nobody"} if path.startswith("/jobs") and path.count("/") == 1 else {}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = api.client.post(path, content, **headers)
    assert reply.status == 200 or 400 <= reply.status < 500, reply.body


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([verb for verb in VERBS.values() if verb.method == "GET"]),
    st.dictionaries(st.text("abcdefghijklmnopqrstuvwxyz", max_size=6), st.text(max_size=12), max_size=3),
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6),
)
def test_no_address_brings_the_server_to_a_fault(api: Running, verb: Any, query: dict[str, str], part: str):
    from urllib.parse import urlencode

    reply = api.client.get(f"{verb.path.format(id=part, name=part)}?{urlencode(query)}")
    assert reply.status == 200 or 400 <= reply.status < 500, reply.body


def test_a_flipped_byte_never_brings_the_server_to_a_fault(api: Running):
    good = json.dumps({"command": "true", "resources": ["/core=1,walltime=1"], "types": ["besteffort"], "after": [1],
                       "environment": {"A": "b"}, "name": "n", "reservation": None, "hold": True}).encode()  # fmt: skip
    chance = random.Random(7)
    for _ in range(100):
        place = chance.randrange(len(good))
        body = good[:place] + bytes([chance.randrange(256)]) + good[place + 1 :]
        reply = api.client.post("/jobs", body, On_Behalf_Of="nobody")
        assert reply.status == 200 or 400 <= reply.status < 500, (body, reply.body)


def test_a_fault_of_ours_is_told_by_a_number_and_not_by_a_traceback(
    api: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def broken(question: Any) -> None:
        raise ZeroDivisionError("insides")

    monkeypatch.setattr(api.core, "read", broken)
    told = api.client.get("/queues")
    number = told.body["error"].partition("reference ")[2][:8]
    assert (told.status, told.body["kind"]) == (500, "InternalError")
    assert "insides" not in str(told.body)
    assert [record.reference for record in caplog.records if record.message == "request failed"] == [number]


def test_while_the_server_stops_nothing_is_changed_and_all_can_be_read(api: Running):
    api.core.stopping.set()
    try:
        refused = api.client.post("/queues/start", {})
        assert (refused.status, refused.body["kind"]) == (503, "Stopping")
        assert api.client.get("/queues").status == 200
    finally:
        api.core.stopping.clear()


def test_what_can_be_asked_is_described(api: Running):
    def raw(path: str) -> tuple[int, str]:
        with api.client.connected() as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    status, text = raw("/api/openapi.json")
    described = json.loads(text)
    named = {one["operationId"] for path in described["paths"].values() for one in path.values()}
    assert (status, named) == (200, set(VERBS))
    status, page = raw("/api/docs")
    assert status == 200
    assert "<script" not in page
    assert all(verb.path in page for verb in VERBS.values())


def test_a_client_that_sends_nothing_good_gets_an_answer_in_json(api: Running):
    sock = api.connect()
    with sock:
        sock.sendall(b"this is no HTTP\r\n\r\n")
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["kind"] == "BadRequest"
