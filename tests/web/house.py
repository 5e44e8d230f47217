"""A server for tests: real sockets, real store, real users of this machine; only the nodes are missing."""

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oarlock.config import Config
from oarlock.server import http as server
from oarlock.server.connection import Limits
from oarlock.store.database import Database
from oarlock.store.tx import Tx
from oarlock.web.policy import Site

T = TypeVar("T")
NOW = 1_000_000


class StillClock:
    def now(self) -> int:
        return NOW


@dataclass
class House:
    """What the way in needs of a server, without nodes and loops; remembers what it was asked to do."""

    state_dir: Path
    config: Config
    database: Database
    clock: StillClock = field(default_factory=StillClock)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Any] = field(default_factory=list)

    async def write(self, change: Callable[[Tx], T]) -> T:
        return await asyncio.wrap_future(self.database.submit(change))

    async def read(self, question: Callable[[Tx], T]) -> T:
        def answer() -> T:
            with self.database.read() as tx:
                return question(tx)

        return await asyncio.to_thread(answer)

    def wake_scheduler(self) -> None:
        self.asked.append("schedule")


@dataclass
class Reply:
    status: int
    body: Any
    headers: dict[str, str]


class Client:
    """Speaks HTTP to a server, by its socket or by its port."""

    def __init__(self, where: Path | int, token: str = "") -> None:
        self.where, self.token = where, token

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.where if isinstance(self.where, int) else 80, 20)
        if isinstance(self.where, Path):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(20)
            connection.sock.connect(str(self.where))
        return connection

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection = self.connect()
        try:
            return self.ask_on(connection, method, path, body, **headers)
        finally:
            connection.close()

    def ask_on(self, connection: Any, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if method != "GET":
            sent = {"Request-Id": uuid.uuid4().hex} | sent
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, f"/api/v1{path}", content, sent)
        reply = connection.getresponse()
        text = reply.read()
        return Reply(reply.status, json.loads(text) if text else None, dict(reply.getheaders()))

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", path, body, **headers)


@dataclass
class Running:
    """A server that runs in a thread of this process."""

    core: House
    socket: Path
    port: int

    @property
    def client(self) -> Client:
        """Asks over the socket, as the user of this process."""
        return Client(self.socket)

    def client_at_port(self, token: str = "") -> Client:
        return Client(self.port, token)

    def as_user(self, uid: int, calls: Sequence[tuple[Any, ...]]) -> list[Reply]:
        """Ask over the socket from a process of another user: (method, path, body, headers) each."""
        ran = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE, str(self.socket), json.dumps(calls)],
            user=uid, group=uid, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return [Reply(*line) for line in json.loads(ran.stdout)]


_ELSEWHERE = """
import http.client, json, socket, sys, uuid
path, calls = sys.argv[1], json.loads(sys.argv[2])
connection = http.client.HTTPConnection("localhost", timeout=20)
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
replies = []
for method, where, body, headers in calls:
    headers = {"Request-Id": uuid.uuid4().hex, **headers}
    connection.request(method, "/api/v1" + where, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    replies.append((reply.status, json.loads(reply.read() or "null"), dict(reply.getheaders())))
print(json.dumps(replies))
"""


@contextmanager
def running(
    database: Database, *, site: Site | None = None, limits: Limits | None = None, **settings: Any
) -> Iterator[Running]:
    """Run a server on a fresh state directory that every user of this machine can reach."""
    folder = Path(tempfile.mkdtemp(prefix="oarlock-", dir="/tmp"))
    folder.chmod(0o755)
    config = Config(server_hostname="127.0.0.1", server_port=0, **settings)
    core = House(folder, config, database)
    try:
        with _in_thread(core, site or Site.of(config), limits or Limits(config.allowed_networks)) as ears:
            yield Running(core, ears.path, ears.port)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _in_thread(core: House, site: Site, limits: Limits) -> Iterator[server.Ears]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        ears = asyncio.run_coroutine_threadsafe(server.listen(core), loop).result(10)
        serving = asyncio.run_coroutine_threadsafe(server.answer(core, ears, site, limits), loop)
        yield ears
        serving.cancel()
        asyncio.run_coroutine_threadsafe(_ended(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _ended() -> None:
    """Wait until nothing runs any more on this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=8) if others else None


ROOT = os.geteuid() == 0
