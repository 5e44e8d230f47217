"""Turns: whoever waits for the scheduler holds none, and administrators have some of their own."""

import json
import os
import socket
from collections.abc import Iterator

import pytest

from oarlock.store.engine.database import Database
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job
from tests.waiting import wait_until
from tests.web.nodeless_server import Gate, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root asks for others")

RESERVATION = {"command": "true", "resources": ["/core=1,walltime=0:10"], "directory": "/tmp", "reservation": NOW + 600}


@pytest.fixture
def api(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    # Fewer slots than a server has: a test's connections all come from this machine, which is one caller.
    monkeypatch.setattr("oarlock.web.dispatch.SLOTS", 64)
    database.write(lambda tx: add_nodes(tx, ["node1", "node2"]))
    with running(database, job_min_uid=1) as api:
        api.core.gate = Gate()
        yield api
        api.core.gate.open()


def _token(api: Running, user: str) -> str:
    return str(api.client_of(user).post("/tokens", {"name": "t"}).body["token"])


def _sent(api: Running, token: str, request: str, body: bytes = b"") -> socket.socket:
    """Send a request whose answer nobody waits for yet."""
    sock = socket.create_connection(("127.0.0.1", api.port), timeout=20)
    head = f"{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nRequest-Id: one\r\n"
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return sock


def _status(sock: socket.socket) -> bytes:
    with sock:
        return sock.recv(65_536).split(b"\r\n")[0]


def test_who_waits_for_a_reservation_keeps_nobody_from_working(api: Running):
    gate, token = api.core.gate, _token(api, "nobody")
    body = json.dumps(RESERVATION).encode()
    waiting = [_sent(api, token, "POST /api/v1/jobs", body) for _ in range(70)]
    wait_until(lambda: gate.waiting == 70)
    assert api.client_of("daemon").get("/jobs").status == 200
    assert api.client_of("nobody").get("/jobs").status == 200
    gate.open()
    assert {_status(sock) for sock in waiting} == {b"HTTP/1.1 200 OK"}


def test_administrators_find_a_turn_when_users_have_all_of_theirs(api: Running):
    gate = api.core.gate
    tokens = [_token(api, user) for user in ("daemon", "bin", "sys", "games", "nobody")]
    api.core.database.write(add_job)
    waiting = [_sent(api, token, "GET /api/v1/jobs/1/why") for token in tokens for _ in range(20)]
    wait_until(lambda: gate.waiting == 64)
    assert api.client.get("/jobs").status == 200
    for sock in waiting:
        sock.close()
