"""A server for tests: real sockets, real store, real users of this machine; only the nodes are missing."""

import asyncio
import http.client
import json
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oarlock.config import Config
from oarlock.job.check.finding import CheckFinding
from oarlock.job.check.live import NodeAttempts
from oarlock.job.explain import ReservationOutcome, StartEstimate
from oarlock.job.monitoring import MonitoringStatus
from oarlock.job.reactor.passes import PassRecord
from oarlock.job.run.effects import ActionResult
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.jobs import describe_jobs
from oarlock.measure.collect.questions import Question, answer
from oarlock.measure.collect.series import NoSamples
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.receive import AgentReceiver
from oarlock.model.errors import OarlockError
from oarlock.model.plan import Obstacle, Priority, PriorityTerm, WaitReason
from oarlock.model.resource import NextState
from oarlock.server.collecting.elsewhere import MeasurementsElsewhere
from oarlock.server.http import listen as server
from oarlock.server.http.connection import ConnectionLimits
from oarlock.server.job_keys import KeyVault
from oarlock.server.sources.facilities import SiteFacilities
from oarlock.server.staging.stage_in import ArchiveStore, archive_folder
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.files import StoredFile
from oarlock.store.queries.job.new_jobs import NewJob
from oarlock.web.core import ServerStep, SessionConnection
from oarlock.web.identity import Caller, UserAccount
from oarlock.web.policy import AccessPolicy

T = TypeVar("T")
NOW = 1_000_000


class StillClock:
    """A clock that stands still until somebody turns it."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> int:
        return self.at


class Gate:
    """Where questions to the scheduler wait until a test opens it."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._is_open = False

    async def passed(self) -> None:
        if self._is_open:
            return
        self._waiting.append(asyncio.get_running_loop().create_future())
        await self._waiting[-1]

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def open(self) -> None:
        self._is_open = True
        for future in self._waiting:
            future.get_loop().call_soon_threadsafe(lambda one: one.done() or one.set_result(None), future)


class CollectorHere:
    """The collector without a process of its own."""

    def __init__(self, folder: Path, config: Config, database: Database) -> None:
        self.collector, self._database = Collector(folder / "samples"), database
        self.collector.start()
        self.figures = {}
        self.refused = self.collector.refused
        self._elsewhere = MeasurementsElsewhere(folder / "samples", config)
        self.full = False

    def has_room(self, size: int) -> bool:
        return not self.full

    def put(self, node, data, expected, *, at, posted=False, cluster="") -> None:
        self.collector.take(node, data, expected, at=at, posted=posted, cluster=cluster)

    def mark_missing(self, node, jobs, *, since, until, why) -> None:
        self.collector.mark_gap(node, jobs, since=since, until=until, why=why)

    async def ask(self, question: Question) -> bytes:
        try:
            return await self._ask(question)
        except NoSamples:
            if (answer := await self._elsewhere.answer(question, self._ask)) is None:
                raise
            return answer

    async def _ask(self, question: Question) -> bytes:
        def describe(ids):
            with self._database.read() as tx:
                return describe_jobs(tx, ids)

        return await asyncio.to_thread(answer, self.collector, question, describe)


@dataclass
class NodelessServer:
    """What the way in needs of a server, without nodes and loops; remembers what it was asked to do."""

    state_dir: Path
    config: Config
    database: Database
    clock: StillClock = field(default_factory=StillClock)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Any] = field(default_factory=list)
    answer: ReservationOutcome = field(default_factory=lambda: ReservationOutcome(True, "accepted", NOW + 600))
    live: LiveUsage = field(default_factory=lambda: LiveUsage(10, "cluster"))
    gate: Gate | None = None
    hopeless: dict[int, str] = field(default_factory=dict)
    passes: list[PassRecord] = field(default_factory=list)
    changes: int = 0
    source_health: tuple[Any, ...] = ()
    collector: CollectorHere = field(init=False)

    def __post_init__(self) -> None:
        self.collector = CollectorHere(self.state_dir, self.config, self.database)
        self.agents = AgentReceiver(self)
        self.facilities = SiteFacilities(self.config, self.clock.now)
        self.keys = KeyVault(self.state_dir / "keys", b"secret", self.read)

    async def restart_measuring(self) -> None:
        """Forget what only a running server knows of measurements."""
        await self.agents.close()
        self.collector = CollectorHere(self.state_dir, self.config, self.database)
        self.live = LiveUsage(10, "cluster")
        self.agents = AgentReceiver(self)

    async def write(self, change: Callable[[Tx], T]) -> T:
        changed = await asyncio.wrap_future(self.database.submit(change))
        self.changes += 1
        return changed

    async def write_slice(self, change: Callable[[Tx], None], *, user: str) -> None:
        await self.write(change)

    async def read(self, question: Callable[[Tx], T], *, user: str | None = None, key: Hashable = None) -> T:
        def answer() -> T:
            with self.database.read() as tx:
                return question(tx)

        return await asyncio.to_thread(answer)

    async def ask(self, question: Callable[[Tx], T], *, user: str, key: Hashable = None) -> T:
        def answer() -> T:
            with self.database.ask() as tx:
                return question(tx)

        return await asyncio.to_thread(answer)

    async def compute(self, work: Callable[[], T], *, user: str) -> T:
        self.asked.append(("compute", user))
        return await asyncio.to_thread(work)

    def wake_scheduler(self) -> None:
        self.asked.append("schedule")

    def forget_failures(self) -> None:
        self.asked.append("forget failures")

    async def run_step(self, step: ServerStep) -> None:
        self.asked.append(step)

    async def kill(self, ids: Sequence[int], *, by: str, exterminate: bool = False) -> list[ActionResult]:
        return self._results(ids, "kill", by, exterminate)

    async def checkpoint(self, ids: Sequence[int], *, by: str) -> list[ActionResult]:
        return self._results(ids, "checkpoint", by)

    async def signal(self, ids: Sequence[int], number: int, *, by: str) -> list[ActionResult]:
        return self._results(ids, "signal", by, number)

    async def switch_besteffort(self, ids: Sequence[int], *, by: str) -> list[ActionResult]:
        return self._results(ids, "besteffort", by)

    async def hold(self, ids: Sequence[int], *, by: str, running: bool = False) -> list[ActionResult]:
        return self._results(ids, "hold", by, running)

    async def resume(self, ids: Sequence[int], *, by: str) -> list[ActionResult]:
        return self._results(ids, "resume", by)

    async def why(self, job_id: int, *, user: str | None = None) -> WaitReason:
        if self.gate is not None:
            await self.gate.passed()
        smaller = "/network_address=1,walltime=1:0:0"
        priority = Priority(job_id, 0.5, (PriorityTerm("age", 0.25, "waits 1:00:00 of 4:00:00", 2.0),))
        return WaitReason(job_id, Obstacle.BUSY, "needs 4 nodes; 1 is free now", self.clock.at + 60, smaller, priority)

    async def when(self, new: NewJob, *, user: str | None = None) -> StartEstimate:
        self.asked.append(("when", new.job.user))
        return StartEstimate(self.clock.at + 60, ("node1", "node2"), "in a minute", None)

    async def answered(self, job_id: int, *, seconds: float = 10) -> ReservationOutcome:
        if self.gate is not None:
            await self.gate.passed()
        return self.answer

    async def measure(self, nodes: Sequence[str], change: Any) -> None:
        self.asked.append(("measure", list(nodes), dict(change)))

    async def check_nodes_agree(self) -> tuple[list[NodeAttempts], list[CheckFinding]]:
        return [], []

    async def read_output(self, node: str, path: str, *, user: str, uid: int | None) -> tuple[str, int, str]:
        self.asked.append(("output", node, path, user, uid))
        return f"the end of {path} <b>&</b>\n", 17, ""

    async def end_unknown(self, number: int) -> None:
        self.asked.append(("end unknown", number))

    async def set_state(self, ids: Sequence[int], state: NextState) -> list[int]:
        self.asked.append(("state", list(ids), state))
        return [1]

    async def store_file(self, account: UserAccount, pieces: AsyncIterator[bytes], **about: Any) -> StoredFile:
        store = ArchiveStore(self.config, archive_folder(self.config, self.state_dir), self)
        return await store.receive(account, pieces, now=self.clock.now(), **about)

    async def monitor(self, job_id: int, period: int) -> MonitoringStatus:
        self.asked.append(("monitor", job_id, period))
        return await self.monitoring_status(job_id)

    async def monitoring_status(self, job_id: int) -> MonitoringStatus:
        return MonitoringStatus(job_id=job_id, state="Running", runs=True, recording=True)

    async def serve_session(self, caller: Caller, connection: SessionConnection) -> OarlockError | None:
        self.asked.append(("session", caller.name))
        return None

    async def serve_desktop(self, caller: Caller, connection: SessionConnection) -> OarlockError | None:
        self.asked.append(("desktop", caller.node))
        return None

    def _results(self, ids: Sequence[int], *what: Any) -> list[ActionResult]:
        self.asked.append((*what, list(ids)))
        return [ActionResult(number, True, "done") for number in ids]


@dataclass
class Reply:
    status: int
    body: Any
    headers: dict[str, str]


class Client:
    """Speaks HTTP to a server; `connect` opens a connection to it, as somebody."""

    def __init__(self, connect: Callable[[], socket.socket], token: str = "") -> None:
        self._connect, self.token = connect, token

    @contextmanager
    def connected(self) -> Iterator[http.client.HTTPConnection]:
        """Give a connection that stays open for several requests."""
        connection = http.client.HTTPConnection("localhost", timeout=20)
        connection.sock = self._connect()
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        with self.connected() as connection:
            return self.ask_on(connection, method, path, body, **headers)

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
        is_json = reply.getheader("content-type") == "application/json"
        is_file = reply.getheader("content-type") == "application/pdf"
        told = json.loads(text) if is_json else text if is_file else text.decode()
        return Reply(reply.status, told if text else None, dict(reply.getheaders()))

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Reply:
        return self.ask("DELETE", path, **headers)


@dataclass
class Running:
    """A server that runs in a thread of this process."""

    core: NodelessServer
    socket: Path
    port: int
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    @property
    def client(self) -> Client:
        """Asks over the socket, as the user of this process."""
        return Client(self.connect)

    def client_of(self, user: str | int) -> Client:
        """Asks over the socket, as another user of this machine."""
        uid = user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
        return Client(lambda: connected_as(uid, self.socket))

    def client_at_port(self, token: str = "") -> Client:
        """Asks over the port, with a token or without."""
        return Client(lambda: socket.create_connection(("127.0.0.1", self.port), timeout=20), token)

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(str(self.socket))
        return sock


def connected_as(uid: int, path: Path) -> socket.socket:
    """Let a process of another user connect, and take the connection over: the kernel remembers who opened it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ran = subprocess.run(
            [sys.executable, "-ISc", _CONNECT, str(theirs.fileno()), str(uid), str(path)],
            pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        _, [number], *_ = socket.recv_fds(ours, 1, 1)
    sock = socket.socket(fileno=number)
    sock.settimeout(20)
    return sock


_CONNECT = """
import os, sys, socket
back, uid, path = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
sock = socket.socket(socket.AF_UNIX)
sock.connect(path)
socket.send_fds(back, [b"x"], [sock.fileno()])
"""


@contextmanager
def running(
    database: Database, *, site: AccessPolicy | None = None, limits: ConnectionLimits | None = None, **settings: Any
) -> Iterator[Running]:
    """Run a server on a fresh state directory that every user of this machine can reach."""
    folder = Path(tempfile.mkdtemp(prefix="oarlock-", dir="/tmp"))
    folder.chmod(0o755)
    config = Config(server_hostname="127.0.0.1", server_port=0, **settings)
    core = NodelessServer(folder, config, database)
    try:
        with _in_thread(core, site or AccessPolicy.of(config), limits or ConnectionLimits(config.allowed_networks)) as (
            ears,
            loop,
        ):
            yield Running(core, ears.path, ears.port, loop)
    finally:
        shutil.rmtree(folder)


@contextmanager
def alone(path: Path, **options: Any) -> Iterator[Running]:
    """Run a server on a database file of its own, where the kind of database does not matter."""
    with open_database(path) as database, running(database, **options) as api:
        yield api


@contextmanager
def _in_thread(
    core: NodelessServer, site: AccessPolicy, limits: ConnectionLimits
) -> Iterator[tuple[server.Listeners, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        ears = asyncio.run_coroutine_threadsafe(server.listen(core), loop).result(10)
        serving = asyncio.run_coroutine_threadsafe(server.answer(core, ears, site, limits), loop)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)  # a task that never began cleans nothing up
        try:
            yield ears, loop
        finally:  # what a failed test left open would be blamed on a later one
            serving.cancel()
            asyncio.run_coroutine_threadsafe(core.keys.close(), loop).result(10)
            asyncio.run_coroutine_threadsafe(core.agents.close(), loop).result(10)
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
