"""The server's socket and port: who is at the other end is what the kernel says."""

import asyncio
import gc
import os
import resource
import socket
import stat
import time
from dataclasses import replace
from http.client import RemoteDisconnected
from ipaddress import ip_network
from pathlib import Path

import pytest

from oarlock import __version__
from oarlock.config import Config
from oarlock.model.errors import PortTaken
from oarlock.server.http.connection import ConnectionLimits, caller_of
from oarlock.server.http.listen import answer, listen
from oarlock.server.process.reserves import connection_shares
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.web.policy import AccessPolicy
from tests.waiting import wait_until
from tests.web.nodeless_server import NOW, Client, NodelessServer, Running, alone, running

LOOPBACK = Config().allowed_networks


@pytest.mark.manual(157, 178)
def test_socket_and_port_say_which_server_this_is(database: Database):
    told = {"version": __version__, "cluster": "cluster", "now": NOW}
    with running(database) as api:
        assert api.client.get("/version").body == told
        assert api.client_at_port().get("/version").body == told


def test_who_is_asked_over_the_port_without_a_token_has_no_name(database: Database):
    with running(database) as api:
        assert api.client.get("/jobs").status == 200
        refused = api.client_at_port().get("/jobs")
        assert (refused.status, refused.body["kind"]) == (401, "NotSignedIn")


def test_a_connection_that_says_nothing_or_half_a_word_is_closed(sqlite_path: Path):
    with alone(sqlite_path, limits=ConnectionLimits(LOOPBACK, head_seconds=0.2)) as api:
        for beginning in (b"", b"GET /api/v1/version HT", b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\nA: "):
            with api.connect() as sock:
                sock.sendall(beginning)
                assert sock.recv(100) == b""  # closed from the other side


def test_the_time_for_a_head_begins_anew_with_each_request(sqlite_path: Path):
    with (
        alone(sqlite_path, limits=ConnectionLimits(LOOPBACK, head_seconds=0.2)) as api,
        api.client.connected() as mine,
    ):
        assert api.client.ask_on(mine, "GET", "/version").status == 200
        mine.sock.sendall(b"GET /api/")
        assert mine.sock.recv(100) == b""


def test_a_head_that_goes_on_and_on_is_refused(sqlite_path: Path):
    with alone(sqlite_path) as api, api.connect() as sock:
        sock.sendall(b"GET /api/v1/version HTTP/1.1\r\nA: ")
        answer = b""
        try:
            for _ in range(40):
                sock.sendall(b"x" * 65_536)
        except OSError:  # closed from the other side while we went on
            pass
        answer = sock.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 413")


def test_one_user_has_so_many_connections_and_no_more(sqlite_path: Path):
    with alone(sqlite_path, limits=ConnectionLimits(LOOPBACK, most_of_one=3)) as api:
        held = [api.connect() for _ in range(3)]
        refused = api.client.get("/version")
        assert (refused.status, refused.body["kind"]) == (429, "TooManyAtOnce")
        assert api.client_at_port().get("/version").status == 200
        held.pop().close()
        wait_until(lambda: api.client.get("/version").status == 200)
        for sock in held:
            sock.close()


def _from(api: Running, address: str) -> socket.socket:
    """Connect to the port from one of the many addresses of this machine."""
    return socket.create_connection(("127.0.0.1", api.port), timeout=20, source_address=(address, 0))


def test_all_addresses_of_this_machine_are_one_caller(sqlite_path: Path):
    with alone(sqlite_path, limits=ConnectionLimits(LOOPBACK, most_of_one=3)) as api:
        held = [_from(api, f"127.1.2.{n}") for n in range(1, 4)]
        refused = Client(lambda: _from(api, "127.9.9.9")).get("/version")
        assert (refused.status, refused.body["kind"]) == (429, "TooManyAtOnce")
        assert api.client.get("/version").status == 200  # the socket counts by user
        for sock in held:
            sock.close()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.1.2.3", "this machine"), ("::1", "this machine"), ("::ffff:127.0.0.9", "this machine"),
        ("10.1.2.3", "10.1.2.3"), ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("fe80::1%eth0", "fe80::/64"),
    ],
)  # fmt: skip
def test_who_has_many_addresses_is_one_caller(address: str, name: str):
    assert caller_of(address) == name


def test_connections_at_the_port_leave_room_at_the_socket(sqlite_path: Path):
    with alone(sqlite_path, limits=ConnectionLimits(LOOPBACK, most=4, most_at_port=3)) as api:
        held = [_from(api, "127.0.0.1") for _ in range(3)]
        refused = api.client_at_port().get("/version")
        assert refused.body["error"] == "The server has as many connections as it can take."
        with api.connect():
            wait_until(lambda: api.client.get("/version").status == 429)
        wait_until(lambda: api.client.get("/version").status == 200)
        for sock in held:
            sock.close()
        wait_until(lambda: api.client_at_port().get("/version").status == 200)


def test_a_client_that_does_not_take_its_answers_is_hung_up_on(sqlite_path: Path):
    limits = ConnectionLimits(LOOPBACK, answer_seconds=0.2)
    with alone(sqlite_path, limits=limits) as api, api.connect() as sock:
        wait_until(lambda: limits.in_all == 1)
        sock.sendall(b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\n\r\n" * 4000)
        wait_until(lambda: limits.in_all == 0)


def test_a_client_that_takes_its_answers_slowly_gets_all_of_them(sqlite_path: Path):
    with alone(sqlite_path) as api, api.connect() as sock:
        sock.sendall(b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\n\r\n" * 4000)
        got = b""
        while got.count(b"HTTP/1.1 200 OK") < 4000:
            got += sock.recv(65_536)


@pytest.mark.manual(164)
def test_other_networks_are_turned_away_at_the_port_alone(sqlite_path: Path):
    elsewhere = (ip_network("10.0.0.0/8"),)
    with alone(sqlite_path, allowed_networks=elsewhere) as api:
        with pytest.raises((ConnectionError, RemoteDisconnected)):
            api.client_at_port().get("/version")
        assert api.client.get("/version").status == 200


def test_a_port_that_is_taken_is_a_refusal(sqlite_path: Path):
    with alone(sqlite_path) as api:
        core = replace(api.core, config=Config(server_hostname="127.0.0.1", server_port=api.port))
        with pytest.raises(PortTaken, match=f"port {api.port} of 127.0.0.1"):
            asyncio.run(listen(core))


def test_what_a_dead_server_left_does_not_keep_the_next_from_listening(sqlite_path: Path):
    with alone(sqlite_path) as api:
        folder = api.socket.parent
        (folder / "second").mkdir()
        (folder / "second" / "server.sock").touch()
        core = replace(api.core, state_dir=folder / "second")
        ears = asyncio.run(listen(core))
        assert stat.S_IMODE(ears.path.stat().st_mode) == (0o600 if os.geteuid() else 0o666)
        for sock in (ears.unix, *ears.tcp):
            sock.close()


def test_a_state_directory_too_deep_for_a_socket_is_a_refusal(sqlite_path: Path, tmp_path: Path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with alone(sqlite_path) as api, pytest.raises(PortTaken, match="too long"):
        asyncio.run(listen(replace(api.core, state_dir=deep)))


def test_the_socket_is_gone_when_the_server_is(sqlite_path: Path):
    with alone(sqlite_path) as api:
        assert api.socket.exists()
    assert not api.socket.exists()


def test_a_body_that_nobody_wanted_does_not_go_on_for_ever(sqlite_path: Path):
    with alone(sqlite_path) as api, api.client_at_port().connected() as mine:
        mine.sock.sendall(b"POST /api/v1/queues HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n")
        assert b"401" in mine.sock.recv(65_536)
        with pytest.raises(OSError, match=r"reset|pipe"):
            mine.sock.sendall(b"x" * 200 * 2**20)


def test_each_connection_has_its_own_state(sqlite_path: Path):
    """uvicorn hands one dictionary to all connections; a peer written into it would be everybody's."""
    with alone(sqlite_path) as api, api.client.connected() as mine:
        assert api.client.ask_on(mine, "GET", "/jobs").status == 200
        assert api.client_at_port().get("/jobs").status == 401
        assert api.client.ask_on(mine, "GET", "/jobs").status == 200


def test_a_connection_to_a_server_that_stops_as_it_starts_is_closed(sqlite_path: Path, tmp_path: Path):
    config = Config(server_hostname="127.0.0.1", server_port=0)

    async def stop_at_the_start(database: Database, client: socket.socket) -> None:
        core = NodelessServer(tmp_path, config, database)
        listeners = await listen(core)
        client.connect(str(listeners.path))
        limits = ConnectionLimits(LOOPBACK)
        answering = asyncio.create_task(answer(core, listeners, AccessPolicy.of(config), limits))
        await asyncio.sleep(0)
        answering.cancel()
        await asyncio.wait({answering})

    with open_database(sqlite_path) as database, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        asyncio.run(stop_at_the_start(database, client))
        gc.collect()  # a transport that nobody closed warns when it is collected
        assert client.recv(100) == b""


def test_half_of_the_descriptors_are_kept_from_connections():
    assert connection_shares(1024) == (512, 384)
    assert connection_shares(resource.RLIM_INFINITY) == (32_768, 24_576)


def test_a_connection_too_many_is_told_so_only_after_a_moment(sqlite_path: Path):
    limits = ConnectionLimits(LOOPBACK, most_of_one=2, refusal_seconds=0.3)
    with alone(sqlite_path, limits=limits) as house:
        held = [_from(house, "127.0.0.1") for _ in range(2)]
        wait_until(lambda: limits.at_port == 2)
        began = time.monotonic()
        many = [_from(house, f"127.1.2.{n}") for n in range(1, 100)]
        assert {sock.recv(20) for sock in many} == {b"HTTP/1.1 429 Refused"}
        assert time.monotonic() - began >= 0.3
        assert limits.open == {"this machine": 2}  # none of them became a connection of the server
        for sock in (*held, *many):
            sock.close()
