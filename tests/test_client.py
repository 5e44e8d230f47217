"""The client against a server with canned answers: what goes over the wire, and what a broken wire means."""

import json
import os
import socket
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock import client as wire
from oarlock import minimal_http
from oarlock.client import ATTEMPTS, Client, RequestRefused, request_id
from oarlock.client_connection import CONNECT_SECONDS, SYSTEM_SOCKET, default_server, parse_url
from oarlock.minimal_http import quoted
from tests import canned
from tests.canned import ok, refusal


@pytest.fixture
def server(tmp_path):
    made, end = canned.unix(tmp_path)
    yield made
    end()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(wire, "RETURN_SECONDS", 0.1)


def test_a_submission_is_one_post_with_a_request_id(server):
    server.says(ok({"job_ids": [7]}))
    assert Client(server.address).submit({"command": "sleep 1", "name": "é"}) == {"job_ids": [7]}
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/api/v1/jobs")
    assert request.json == {"command": "sleep 1", "name": "é"}
    assert UUID(request.headers["request-id"]).version == 4
    assert "authorization" not in request.headers


def test_reading_asks_with_a_query_and_leaves_out_what_was_not_said(server):
    server.says(ok({"jobs": [1]}))
    assert Client(server.address).jobs(user="ada", where="project = 'a&b'", array=None) == [1]
    [request] = server.requests
    assert request.path == "/api/v1/jobs?user=ada&where=project%20%3D%20%27a%26b%27"
    assert (request.body, "request-id" in request.headers) == (b"", False)


def test_a_connection_that_breaks_is_tried_again_with_the_same_request_id(server):
    server.says(None, b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{", ok({"jobs": [{"job_id": 3}]}))
    assert Client(server.address).delete({"ids": [3]}) == [{"job_id": 3}]
    assert len(server.requests) == 3
    assert len({(request.headers["request-id"], request.body) for request in server.requests}) == 1


def test_two_changes_have_two_request_ids(server):
    client = Client(server.address)
    client.rename_property("p1", "p2")
    client.rename_property("p1", "p2")
    first, second = (request.headers["request-id"] for request in server.requests)
    assert first != second


def test_a_server_that_never_answers_leaves_the_outcome_open(server):
    server.says(None)
    with pytest.raises(RequestRefused, match="took the request but did not answer") as refused:
        Client(server.address).submit({})
    assert refused.value.kind == "NoAnswer"
    assert "not known" in refused.value.hint
    assert len(server.requests) == ATTEMPTS


def test_a_lost_answer_is_not_said_to_have_done_nothing(tmp_path, impatient):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "server.sock"))
    listener.listen()

    def take_one_and_die():
        connection, _ = listener.accept()
        listener.close()
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=take_one_and_die)
    thread.start()
    with pytest.raises(RequestRefused) as refused:
        Client(str(tmp_path / "server.sock")).submit({})
    thread.join()
    assert refused.value.kind == "NoAnswer"


def test_a_server_that_breaks_off_a_change_is_waited_for_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.1)
    place = tmp_path / "server.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()
    ends = []

    def die_and_come_back():
        connection, _ = listener.accept()
        listener.close()
        connection.recv(65536)
        connection.close()
        time.sleep(0.5)  # longer than a server that is down would be given
        place.unlink()
        ends.append(canned.unix(tmp_path, ok({"job_ids": [7]}))[1])

    thread = threading.Thread(target=die_and_come_back)
    thread.start()
    try:
        assert Client(str(place)).submit({}) == {"job_ids": [7]}
    finally:
        thread.join()
        ends[0]()


def test_a_server_that_is_down_has_changed_nothing(tmp_path, impatient):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "server.sock"))
    dead.close()
    with pytest.raises(RequestRefused, match="nothing was changed") as refused:
        Client(str(tmp_path / "server.sock")).submit({})
    assert refused.value.kind == "ServerDown"


def test_a_server_that_starts_again_meanwhile_is_waited_for(tmp_path):
    ends = []

    def start_late():
        waiting.wait()
        _, end = canned.unix(tmp_path, ok({"queues": ["q"]}))
        ends.append(end)

    waiting = threading.Event()
    starter = threading.Thread(target=start_late)
    starter.start()
    timer = threading.Timer(0.1, waiting.set)
    timer.start()
    try:
        assert Client(str(tmp_path / "server.sock")).queues() == ["q"]
    finally:
        timer.join()
        starter.join()
        ends[0]()


@pytest.fixture
def standby(tmp_path):
    (tmp_path / "standby").mkdir()
    made, end = canned.unix(tmp_path / "standby")
    yield made
    end()


def _dead_socket(tmp_path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    return str(tmp_path / "dead.sock")


def test_of_several_addresses_the_one_that_answers_is_asked(standby, tmp_path):
    standby.says(ok({"queues": ["q"]}))
    client = Client(f"{_dead_socket(tmp_path)}, {standby.address}")
    assert client.queues() == ["q"]
    assert client.queues() == ["q"]
    assert len(standby.requests) == 2


def test_a_change_broken_off_goes_to_the_other_server_with_the_same_id(server, standby):
    server.says(None)
    standby.says(ok({"job_ids": [7]}))
    assert Client(f"{server.address},{standby.address}").submit({}) == {"job_ids": [7]}
    [first], [second] = server.requests, standby.requests
    assert first.headers["request-id"] == second.headers["request-id"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("DatabaseRefused", "The database cannot be read: connection timeout expired"),
        ("Stopping", "The server is stopping."),
    ],
)
def test_a_server_cut_off_or_stopping_is_left_for_the_other(server, standby, kind, says):
    server.says(refusal(503, kind, says))
    standby.says(ok({"job_ids": [7]}))
    assert Client(f"{server.address},{standby.address}").submit({}) == {"job_ids": [7]}
    [first], [second] = server.requests, standby.requests
    assert first.headers["request-id"] == second.headers["request-id"]


def test_a_server_cut_off_from_its_database_says_so_where_it_is_alone(server, standby, monkeypatch):
    monkeypatch.setattr(wire, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(Client, "_patience", lambda _: 5.0)  # of 0 it would not wait for any answer
    server.says(*[refusal(503, "DatabaseRefused", "The database cannot be read: no")] * 2)
    for address in (server.address, f"{server.address},{standby.address}"):
        with pytest.raises(RequestRefused, match="The database cannot be read") as refused:
            Client(address).submit({})
        assert refused.value.kind == "DatabaseRefused"


def test_a_frozen_server_is_left_for_the_other_one(standby, tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "TURN_SECONDS", 0.2)
    standby.says(ok({"job_ids": [7]}))
    with socket.socket(socket.AF_UNIX) as frozen:  # the kernel takes the connection, and nobody reads
        frozen.bind(str(tmp_path / "frozen.sock"))
        frozen.listen()
        assert Client(f"{tmp_path / 'frozen.sock'},{standby.address}").submit({}) == {"job_ids": [7]}


def test_a_slow_answer_is_waited_for_where_the_other_server_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "TURN_SECONDS", 0.1)
    monkeypatch.setattr(wire, "ANSWER_SECONDS", 0.5)
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(tmp_path / "frozen.sock"))
        frozen.listen()
        with pytest.raises(RequestRefused, match="took the request but did not answer"):
            Client(f"{tmp_path / 'frozen.sock'},{_dead_socket(tmp_path)}").submit({})
        frozen.setblocking(False)
        for _ in range(3):  # it was asked again and again
            frozen.accept()[0].close()


def test_the_take_over_by_the_other_server_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.1)
    ends = []

    def take_over():
        time.sleep(0.3)
        ends.append(canned.unix(tmp_path, ok({"queues": ["q"]}))[1])

    thread = threading.Thread(target=take_over)
    thread.start()
    try:
        assert Client(f"{_dead_socket(tmp_path)},{tmp_path}/server.sock").queues() == ["q"]
    finally:
        thread.join()
        ends[0]()


def test_no_server_at_any_address_is_one_sentence_with_all_of_them(tmp_path, impatient):
    servers = f"{_dead_socket(tmp_path)},{tmp_path}/none.sock"
    with pytest.raises(RequestRefused, match=f"No server answers at {servers} .*nothing was changed"):
        Client(servers).submit({})


def test_a_socket_whose_path_has_a_comma_is_one_address(tmp_path):
    (tmp_path / "a,b").mkdir()
    made, end = canned.unix(tmp_path / "a,b")
    made.says(ok({"queues": ["q"]}))
    try:
        assert Client(made.address).queues() == ["q"]
    finally:
        end()


def test_nobody_waits_for_a_server_whose_folder_does_not_exist(tmp_path):
    began = time.monotonic()
    with pytest.raises(RequestRefused, match="No such file"):
        Client(str(tmp_path / "nowhere" / "server.sock")).queues()
    assert time.monotonic() - began < CONNECT_SECONDS / 2


def test_a_refusal_keeps_its_sentence_its_hint_and_its_kind(server):
    server.says(refusal(400, "BadCount", "`nodes=0` asks for nothing.", "Ask for 1.", text="nodes=0", at=6))
    with pytest.raises(RequestRefused) as refused:
        Client(server.address).submit({})
    told = refused.value
    assert (str(told), told.hint, told.kind, told.text) == (
        "`nodes=0` asks for nothing.", "Ask for 1.", "BadCount", "nodes=0"
    )  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        canned.answer(500, "oops"),
        b"HTTP/1.1 502 Bad\r\ncontent-length: 6\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnul!",
    ],
)
def test_an_answer_without_a_sentence_is_a_failure_of_the_server(server, answer):
    server.says(answer)
    with pytest.raises(RequestRefused, match="The server failed") as refused:
        Client(server.address).submit({})
    assert (refused.value.kind, "not known" in refused.value.hint) == ("ServerFailed", True)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n"])
def test_something_else_on_the_socket_is_told_as_such(server, answer):
    server.says(answer)
    with pytest.raises(RequestRefused, match="not an Oarlock server"):
        Client(server.address).queues()


def test_an_answer_in_chunks_is_put_together(server):
    chunks = b'8;x=y\r\n{"jobs":\r\n4\r\n [1]\r\n1\r\n}\r\n0\r\n\r\n'
    server.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    assert Client(server.address).jobs() == [1]


def test_a_long_answer_arrives_whole(server):
    server.says(ok({"jobs": ["x" * 1000] * 3000}))
    assert len(Client(server.address).jobs()) == 3000


def test_over_tcp_a_token_goes_along(monkeypatch):
    made, end = canned.tcp()
    made.says(ok({"queues": ["q"]}))
    monkeypatch.setenv("OARLOCK_TOKEN", "s3cret")
    try:
        assert Client(f"{made.address}/proxied/").queues() == ["q"]
    finally:
        end()
    [request] = made.requests
    assert request.path == "/proxied/api/v1/queues"
    assert request.headers["authorization"] == "Bearer s3cret"
    assert made.address.endswith(request.headers["host"])


@pytest.mark.parametrize("token", ["", "a\r\nb"])
def test_a_server_on_the_network_is_not_asked_without_a_token(monkeypatch, token):
    monkeypatch.setenv("OARLOCK_TOKEN", token)
    with pytest.raises(RequestRefused, match="needs a token"):
        Client("http://127.0.0.1:9").queues()


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://host:port", "http://hôte"])
def test_an_address_that_leads_nowhere_is_refused(address):
    with pytest.raises(RequestRefused, match="is not the address of a server") as refused:
        Client(address)
    assert refused.value.kind == "BadAddress"


@pytest.mark.parametrize(
    ("address", "host", "name", "port"),
    [
        ("http://login", "login", "login", 6680),
        ("http://login:80", "login:80", "login", 80),
        ("http://[::1]:80", "[::1]:80", "::1", 80),
        ("http://[::1]", "[::1]", "::1", 6680),
    ],
)
def test_an_address_says_name_and_port(address, host, name, port):
    assert parse_url(address) == (host, name, port, "")


def test_the_server_is_the_one_named_else_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("OARLOCK_SERVER", "/env.sock")
    assert (Client("/given.sock").server, Client().server) == ("/given.sock", "/env.sock")


def test_a_plain_users_own_instance_comes_before_the_systems(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_server() == SYSTEM_SOCKET
    own = Path(tmp_path, "oarlock", "server.sock")
    own.parent.mkdir()
    own.touch()
    assert default_server() == str(own)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_server() == SYSTEM_SOCKET


def test_request_ids_are_random_uuids():
    made = {request_id() for _ in range(100)}
    assert len(made) == 100
    assert {(len(one), UUID(one).version, UUID(one).variant) for one in made} == {(32, 4, "specified in RFC 4122")}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_written_is_json_and_json_is_read(value):
    assert json.loads(minimal_http.written(value)) == value
    assert minimal_http.read(json.dumps(value, indent=1)) == value
    assert minimal_http.written(value).isascii()


@given(st.text())
def test_any_other_text_is_a_value_error_for_both(text):
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            minimal_http.read(text)
    else:
        assert repr(minimal_http.read(text)) == repr(expected)  # not by value: `NaN` equals nothing


@pytest.mark.parametrize("text", ["", " ", "{", "{}{}", "[1,]", '"\\u12"', "nul", '{"a" 1}', "[1 2]"])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        minimal_http.read(text)


def test_numbers_and_words_are_read_as_json_reads_them():
    assert minimal_http.read(' [1, -2.5, 1e3, true, false, null, "\\u00e9\\ud83d\\ude00"] ') == [
        1, -2.5, 1000.0, True, False, None, "é😀"
    ]  # fmt: skip


def test_what_a_url_cannot_hold_is_written_in_percents():
    assert quoted("a b/é?\udcff~") == "a%20b%2F%C3%A9%3F%FF~"
