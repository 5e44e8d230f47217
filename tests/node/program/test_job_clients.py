"""Connections of job processes to a node program: announced with their user, bounded, dropped when they do not read."""

import contextlib
import json
import os
import socket

import pytest

from oarlock.node.program.event_loop import EndpointLoop
from oarlock.node.program.job_clients import MOST_OF_USER, JobClients
from oarlock.node.wire.channel import EVENT, RAW, Frame
from oarlock.node.wire.stream import FIRST_CLIENT_STREAM, SWITCHED

HEAD = b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: oarlock-session\r\n\r\n"


class Node:
    """A loop with the socket of a node, and what was sent to the server."""

    def __init__(self, path):
        self.path, self.sent, self.loop = path, [], EndpointLoop()
        self.clients = JobClients(self.loop, lambda *frame: self.sent.append(frame), lambda _client: None)
        self.clients.listen(path)

    def connect(self, data=b""):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(self.path)
        connection.sendall(data)
        return connection

    def until(self, done):
        for _ in range(1000):
            if done():
                return
            self.loop.poll(0.01)
        raise AssertionError(self.sent)


@pytest.fixture
def node(tmp_path):
    with contextlib.chdir(tmp_path):  # a path of pytest may be longer than that of a socket can be
        made = Node("s")
        yield made
        made.clients.close()


def test_a_client_is_announced_with_its_user_and_bytes_pass_both_ways(node):
    with node.connect(HEAD + b"first") as client:
        node.until(lambda: len(node.sent) == 2)
        (kind, _, announced), raw = node.sent
        stream = FIRST_CLIENT_STREAM
        assert (kind, json.loads(announced)) == (EVENT, {"event": "client", "stream": stream, "uid": os.getuid()})
        assert raw == (RAW, stream, b"first")
        node.clients.take(Frame(RAW, stream, b"answer"))
        node.clients.take(Frame(RAW, stream, b""))
        assert client.recv(1000, socket.MSG_WAITALL) == SWITCHED + b"answer"
        assert node.sent[2:] == [(EVENT, 0, {"event": "client-ended", "stream": stream})]


def test_a_client_that_leaves_is_told_to_the_server(node):
    node.connect(HEAD).close()
    node.until(lambda: len(node.sent) == 2)
    assert node.sent[1][2]["event"] == "client-ended"


@pytest.mark.parametrize("head", [b"GET /api/v1/jobs HTTP/1.1\r\n\r\n", b"x" * 9000])
def test_anything_but_a_session_is_refused_unannounced(node, head):
    with node.connect(head) as client:
        refused = []
        node.until(lambda: refused or _received(client, refused))
        assert refused[0].startswith(b"HTTP/1.1 404 ")
        assert node.sent == []


def _received(client, refused):
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        refused.append(client.recv(1000))
    return bool(refused)


def test_a_user_has_a_bounded_number_of_connections(node):
    with contextlib.ExitStack() as held:
        for _ in range(MOST_OF_USER):
            held.enter_context(node.connect(HEAD))
        node.until(lambda: len(node.sent) == MOST_OF_USER)
        refused = []
        client = held.enter_context(node.connect())
        node.until(lambda: refused or _received(client, refused))
        assert refused[0].startswith(b"HTTP/1.1 503 ")
        assert b"Too many sessions are open on this node" in refused[0]


def test_a_client_that_does_not_read_is_dropped(node):
    with node.connect(HEAD):
        node.until(lambda: node.sent)
        for _ in range(40):
            node.clients.take(Frame(RAW, FIRST_CLIENT_STREAM, bytes(64 << 10)))
        assert node.sent[1:] == [(EVENT, 0, {"event": "client-ended", "stream": FIRST_CLIENT_STREAM})]
