"""Login hosts other than the server: the relay there, or munge, says who asks, and where."""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock import client as commands
from oarlock import munge
from oarlock.cli import oarlock
from oarlock.cli.subcommands.site.relay import _address
from oarlock.config import Config
from oarlock.server.http.connection import ConnectionLimits
from oarlock.server.login_relay import LoginRelay, RelayRefusal, ServerAddress, relayed_head
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.job import jobs
from tests.bed import needs_root
from tests.certificates import certificate
from tests.clusters import add_nodes
from tests.waiting import wait_until
from tests.web.nodeless_server import Client, Running, alone, connected_as

NOBODY = 65534


@contextlib.contextmanager
def relay(folder: Path, addresses: list[ServerAddress], key: str) -> Iterator[Path]:
    """Run a relay in a thread; give its socket."""
    folder.chmod(0o755)
    key_file, path = folder / "relay.key", folder / "relay.sock"
    key_file.write_text(key)
    key_file.chmod(0o600)
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        serving = asyncio.ensure_future(LoginRelay(addresses, key_file).serve(path))
        await ended.wait()
        serving.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=8)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        wait_until(path.exists, what="the relay")
        yield path
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user of this machine can reach."""
    folder = Path("/tmp") / f"oarlock-login-{os.getpid()}-{os.urandom(3).hex()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def tunnel(api: Running) -> list[ServerAddress]:
    return [ServerAddress("127.0.0.1", api.port, None)]


def key_of(api: Running, host: str = "login1") -> str:
    answered = api.client.post("/tokens", {"name": f"relay.{host}", "relay": host, "days": 366})
    assert answered.status == 200, answered.body
    return str(answered.body["token"])


@contextlib.contextmanager
def serving(path: Path, **settings: Any) -> Iterator[Running]:
    """Run a server with a node; of a database that is not there, on a new one."""
    if not path.exists():
        open_database(path, create=True).close()
    with alone(path, **settings) as api:
        api.core.database.write(lambda tx: add_nodes(tx, ["n1"], cores=4, cpus=[0], at=1))
        yield api


def through(path: Path, uid: int) -> Client:
    return Client(lambda: connected_as(uid, path))


def users(api: Running) -> list[tuple[str, str]]:
    """Return who submitted what from where."""
    with api.core.database.read() as tx:
        return [(job.user, job.login_host) for job in jobs.existing(tx, range(1, 20))]


JOB = {"command": "true", "directory": "/tmp"}


@needs_root
def test_a_relay_asks_in_the_name_of_whom_the_kernel_names(sqlite_path: Path, shared: Path, two_users: Any):
    with serving(sqlite_path) as api, relay(shared, tunnel(api), key_of(api)) as path:
        for name in two_users:
            assert through(path, pwd.getpwnam(name).pw_uid).post("/jobs", JOB).status == 200
        assert users(api) == [(name, "login1") for name in two_users]
        other = through(path, pwd.getpwnam(two_users[1]).pw_uid).delete("/jobs?ids=1")
        lied = through(path, pwd.getpwnam(two_users[1]).pw_uid).post(
            "/jobs", JOB, Authorization="Relay x 0", Cookie="y"
        )
        assert (other.status >= 400, lied.status) == (True, 200)
        assert users(api)[-1] == (two_users[1], "login1")
        unknown = through(path, 4_000_000).get("/jobs")
        assert (unknown.status, "no user with the number 4000000" in unknown.body["error"]) == (401, True)


@needs_root
def test_root_of_a_login_host_administers_only_where_the_site_says_so(sqlite_path: Path, shared: Path):
    with serving(sqlite_path) as api, relay(shared, tunnel(api), key_of(api)) as path:
        far = commands.Client(str(path))
        assert far.jobs() == []
        with pytest.raises(commands.RequestRefused, match="Only administrators"):
            far.stop_queue(None)
        link = through(path, 0).post("/tokens", {"name": "mine"})
        assert (link.status, "more rights on the server" in link.body["error"]) == (403, True)
    with (
        serving(shared / "second.db", admin_login_hosts=("login1",)) as api,
        relay(shared, tunnel(api), key_of(api)) as path,
    ):
        commands.Client(str(path)).stop_queue(None)
        assert through(path, 0).post("/tokens", {"name": "mine"}).status == 200


@needs_root
def test_the_key_of_a_relay_opens_nothing_else_and_can_be_revoked(sqlite_path: Path, shared: Path, two_users: Any):
    with serving(sqlite_path) as api:
        key = key_of(api)
        alone_ = api.client_at_port(key).get("/jobs")
        assert (alone_.status, alone_.body["error"]) == (
            403, "This token is good for the relay of login1 and nothing else.",
        )  # fmt: skip
        own = api.client_of(two_users[0]).post("/tokens", {"name": "laptop"}).body["token"]
        forged = Client(lambda: socket.create_connection(("127.0.0.1", api.port)))
        assert forged.get("/jobs", Authorization=f"Relay {own} 0").status == 401
        assert api.client_of(two_users[0]).post("/tokens", {"name": "x", "relay": "h"}).status == 403
        with relay(shared, tunnel(api), key) as path:
            uid = pwd.getpwnam(two_users[0]).pw_uid
            assert through(path, uid).post("/tokens", {"name": "made-there"}).status == 200
            assert through(path, uid).get("/jobs").status == 200
            assert api.client.delete("/tokens/relay.login1").status == 200
            refused = through(path, uid).get("/jobs")
            assert (refused.status, "oarlock token add --relay" in refused.body["hint"]) == (401, True)


def test_a_relay_speaks_tls_and_says_why_it_does_not_reach_a_server(sqlite_path: Path, shared: Path):
    pem, tls_key = certificate(shared)
    with serving(sqlite_path, tls_certificate=pem, tls_key=tls_key) as api:
        key = key_of(api)
        trusted = [_address(f"https://localhost:{api.port}", pem)]
        with relay(shared, [ServerAddress("127.0.0.1", 1, None), *trusted], key) as path:
            assert commands.Client(str(path)).jobs() == []  # the first address does not answer, the second does
        with relay(shared, [_address(f"https://localhost:{api.port}", None)], key) as path:
            refused = through(path, os.geteuid()).get("/jobs")
            assert "its certificate is not to be trusted" in refused.body["error"]
    with relay(shared, trusted, key) as path, pytest.raises(commands.RequestRefused) as away:
        commands.Client(str(path)).jobs()
    assert (away.value.kind, "nothing was changed" in str(away.value)) == ("ServerDown", True)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/jobs HTTP/1.1\r\nAuthorization: Relay k 0\r\nauthorization:Bearer x\r\nHost: h",
        b"GET /api/v1/jobs HTTP/1.1\r\nConnection: keep-alive\r\nHost: h\r\nCookie: a=b",
    ],
)
def test_what_a_command_says_of_who_it_is_never_reaches_the_server(head: bytes):
    assert relayed_head(head, uid=7, key="K") == (
        b"GET /api/v1/jobs HTTP/1.1\r\nAuthorization: Relay K 7\r\nConnection: close\r\nHost: h\r\n\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: h\nAuthorization: Relay k 0",
        b"GET /api/v1/jobs HTTP/1.1\r\nX: y\r\n Authorization: Relay k 0",
        b"GET /api/v1/jobs HTTP/1.1\r\nAuthorization : Relay k 0",
        b"GET /api/v1/jobs HTTP/1.0",
        b"GET /a b HTTP/1.1",
        b"\x16\x03\x01",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes):
    with pytest.raises(RelayRefusal):
        relayed_head(head, uid=7, key="K")


def test_the_relay_command_names_what_it_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o644)
    assert oarlock.main(["relay", "https://head", "--key", str(key)]) != 0
    assert oarlock.main(["relay", "http://head", "--key", str(key)]) != 0
    assert oarlock.main(["relay", "ftp://head", "--key", str(key)]) != 0
    said = capsys.readouterr().err
    assert [part in said for part in ("others can read", "would cross the network unencrypted", "`ftp://head`")] == [
        True, True, True,
    ]  # fmt: skip


@contextlib.contextmanager
def munged(folder: Path, *, key: bytes | None = None, name: str = "m") -> Iterator[Path]:
    """Run Debian's munge with a key and a socket of its own."""
    home = folder / name
    home.mkdir(mode=0o755)
    (home / "key").write_bytes(key or os.urandom(128))
    (home / "key").chmod(0o600)
    files = [f"--{what}-file={home / what}" for what in ("key", "pid", "log", "seed")]
    program = shutil.which("munged", path=f"{os.environ['PATH']}:/usr/sbin") or "munged"
    process = subprocess.Popen(
        [program, "--foreground", "--force", "--origin=127.0.0.1", f"--socket={home}/socket", *files],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until((home / "socket").exists, what="munged")
        yield home / "socket"
    finally:
        process.terminate()
        process.wait()


def credential(path: Path, payload: str, *, uid: int, ttl: int | None = None) -> str:
    """Have Debian's command make a credential, as some user."""
    more = [] if ttl is None else [f"--ttl={ttl}"]
    ran = subprocess.run(
        ["munge", "-S", path, "-s", payload, *more], user=uid, group=uid, extra_groups=[], capture_output=True,
        text=True, check=True, timeout=20,
    )  # fmt: skip
    return ran.stdout.strip()


def asked(api: Running, made: str, path: str = "/jobs") -> tuple[int, str]:
    answer = Client(lambda: socket.create_connection(("127.0.0.1", api.port))).get(path, Authorization=f"Munge {made}")
    return answer.status, answer.body.get("error", "")


@needs_root
@pytest.mark.component("munged")
def test_munge_says_who_asks_once_and_for_one_request(sqlite_path: Path, shared: Path, monkeypatch: Any):
    with munged(shared) as path, serving(sqlite_path, munge_socket=path, login_hosts=("127.0.0.1",)) as api:
        made = credential(path, "GET /api/v1/jobs", uid=NOBODY)
        assert asked(api, made) == (200, "")
        assert asked(api, made) == (401, "The credential of munge is refused: it was used before.")
        other = credential(path, "GET /api/v1/events", uid=NOBODY)
        assert asked(api, other) == (401, "The credential of munge was made for another request.")
        assert asked(api, "MUNGE:AAAA:")[0] == 401
        late = credential(path, "GET /api/v1/jobs", uid=NOBODY, ttl=1)
        wait_until(lambda: "older than munge allows" in asked(api, late)[1], what="the end of its one second")

        monkeypatch.setenv("OARLOCK_MUNGE", str(path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(shared))
        monkeypatch.delenv("OARLOCK_TOKEN", raising=False)
        far = commands.Client(f"http://127.0.0.1:{api.port}")
        assert far.jobs(user="nobody") == []
        assert [user for user, _ in users(api)] == []
        with pytest.raises(commands.RequestRefused, match="Only administrators"):
            far.stop_queue(None)  # root there is not root here


@needs_root
@pytest.mark.component("munged")
def test_a_job_that_munge_vouches_for_knows_its_login_host(sqlite_path: Path, shared: Path, two_users: Any):
    uid = pwd.getpwnam(two_users[0]).pw_uid
    with munged(shared) as path, serving(sqlite_path, munge_socket=path, login_hosts=("127.0.0.1",)) as api:
        made = credential(path, "POST /api/v1/jobs", uid=uid)
        at_port = Client(lambda: socket.create_connection(("127.0.0.1", api.port)))
        assert at_port.post("/jobs", JOB, Authorization=f"Munge {made}").status == 200
        assert users(api) == [(two_users[0], "127.0.0.1")]


@needs_root
@pytest.mark.component("munged")
def test_munge_of_another_key_or_away_is_one_sentence(sqlite_path: Path, shared: Path, monkeypatch: Any):
    monkeypatch.setattr(munge, "_AWAY_SECONDS", 0.1)
    with munged(shared) as here, munged(shared, name="other") as other:
        with serving(sqlite_path, munge_socket=here) as api:
            status, sentence = asked(api, credential(other, "GET /api/v1/jobs", uid=NOBODY))
            assert (status, "made with another key" in sentence) == (401, True)
        with serving(shared / "second.db") as api:
            assert "takes no credentials" in asked(api, credential(here, "GET /api/v1/jobs", uid=NOBODY))[1]
    with serving(shared / "third.db", munge_socket=shared / "gone") as api:
        assert asked(api, "MUNGE:x:") == (503, "The server cannot ask munge who you are; nothing was done.")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(shared))
        monkeypatch.delenv("OARLOCK_TOKEN", raising=False)
        stale = shared / "stale"
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(stale))
        monkeypatch.setenv("OARLOCK_MUNGE", str(stale))
        with pytest.raises(commands.RequestRefused, match="Nobody says who you are: munge does not answer"):
            commands.Client(f"http://127.0.0.1:{api.port}").jobs()


def test_something_else_at_the_socket_of_munge_is_not_believed(shared: Path):
    path = shared / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        connection, _ = listener.accept()
        connection.recv(1 << 16)
        connection.sendall(json.dumps({"uid": 0}).encode() + b" " * 20)
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(munge.MungeAway, match="not munge"):
        munge.decode("MUNGE:x:", str(path))
    thread.join(10)
    listener.close()


def test_the_connections_of_a_proven_relay_are_counted_apart(sqlite_path: Path):
    limits = ConnectionLimits(Config().allowed_networks, most_of_one=2, most_of_relay=4, refusal_seconds=0.0)
    with alone(sqlite_path, limits=limits) as api, contextlib.ExitStack() as held:
        key = key_of(api)

        def asked(*headers: str) -> int:
            sock = held.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=20))
            lines = ["GET /api/v1/version HTTP/1.1", "Host: x", *headers, "", ""]
            sock.sendall("\r\n".join(lines).encode())
            return int(sock.recv(4096).split()[1])

        as_relay = f"Authorization: Relay {key} {os.getuid()}"
        assert [asked(as_relay) for _ in range(4)] == [200] * 4  # more than an address may have
        assert asked(as_relay) == 429
        assert asked() == 200
        assert asked() == 429  # the fifth of the relay is one of the address, and this is the third
        assert limits.open == {"relay of login1": 4, "this machine": 2}
    wait_until(lambda: not limits.open, what="the connections to be counted as closed")
