"""How fast jobs are taken: over the socket, through identity, rules and checks, onto the disk."""

import asyncio
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from bench.harness import cpu_seconds, figure, workspace
from oarlock.config import Config
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState
from oarlock.model.resource import Value
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.job.listing import LIVE, JobFilter
from oarlock.web.identity import Caller, CallerChannel, UserAccount
from oarlock.web.verbs.job.jobs import listed_jobs

T = TypeVar("T")

CONNECTIONS = 50
_SUBMISSIONS = 3000
_MEMBERS = 10_000
_LISTED = 5000
_NODES, _CORES = 64, 16
_START_SECONDS = 20
_WHOM = "nobody"  # root, who may run this, has no jobs of its own


@figure("life.submit", unit="jobs/s", target=800, better="higher")
def single() -> float:
    """Submit single jobs from 50 connections; each is on disk before its answer."""
    with _server() as path, seen_as(_WHOM):
        asyncio.run(_submit(path, 200))  # warm
        before = time.perf_counter()
        asyncio.run(_submit(path, _SUBMISSIONS))
        return _SUBMISSIONS / (time.perf_counter() - before)


@figure("life.big_array", unit="s", target=1.5, better="lower")
def big_array() -> float:
    """Submit an array of 10,000 jobs in one request."""
    with _server() as path, seen_as(_WHOM):
        asyncio.run(_submit(path, 10))
        before = time.perf_counter()
        body = _body(array=[str(n) for n in range(_MEMBERS)])
        [answer] = asyncio.run(ask(path, [body]))
        spent = time.perf_counter() - before
    if len(answer["job_ids"]) != _MEMBERS:
        raise ValueError(answer)
    return spent


@figure("web.list", unit="ms for 5,000 jobs", target=50, better="lower")
def listing() -> float:
    """Read 5,000 waiting jobs and write the answer, all in one thread."""
    who = Caller(UserAccount("ada", 1000), CallerChannel.SOCKET)
    with (
        tempfile.TemporaryDirectory(prefix="oarlock-bench-") as folder,
        open_database(Path(folder) / "oarlock.db", create=True) as database,
    ):
        database.write(lambda tx: new_jobs.add(tx, [_waiting(number) for number in range(_LISTED)]))
        with database.read() as tx:
            return 1000 * cpu_seconds(lambda: listed_jobs(tx, JobFilter(states=LIVE), who, {}, full=False), times=7)


def _waiting(number: int) -> new_jobs.NewJob:
    job = Job(id=0, state=JobState.WAITING, user="ada", queue="default", name=f"job{number}", submitted=number)
    return new_jobs.NewJob(job, requests.parse(["/network_address=1/core=1,walltime=1"]))


def _body(**more: Any) -> bytes:
    asked = {"resources": ["/network_address=1/core=1,walltime=1:00:00"], "command": "/bin/true", "directory": "/tmp"}
    return json.dumps(asked | more).encode()


async def _submit(path: Path, count: int) -> None:
    share = [_body()] * (count // CONNECTIONS or 1)
    await asyncio.gather(*(ask(path, share) for _ in range(min(count, CONNECTIONS))))


@contextmanager
def seen_as(user: str) -> Iterator[None]:
    """Call as a user of the site: who submits for another pays for a line in the audit as well, and users do not."""
    if os.geteuid():
        yield
        return
    os.seteuid(pwd.getpwnam(user).pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


async def ask(path: Path, bodies: list[bytes]) -> list[Any]:
    """Send bodies one after the other over one connection; every answer has to be a good one."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2**24)
    answers = []
    for body in bodies:
        writer.write(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nRequest-Id: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (uuid.uuid4().hex.encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        text = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError(text.decode())
        answers.append(json.loads(text))
    writer.close()
    return answers


@contextmanager
def _server() -> Iterator[Path]:
    """Run a server of its own process on a fresh database, with a cluster that nothing runs on."""
    with workspace() as state:
        with open_database(state / "oarlock.db", create=True) as database:
            database.write(_fill)
        program = f"import bench.door; bench.door.serve({str(state)!r})"
        process = subprocess.Popen([sys.executable, "-c", program])
        try:
            yield appeared(state / "server.sock", process)
        finally:
            process.terminate()
            process.wait()


@contextmanager
def serving(
    state: Path, settings: Mapping[str, object], *, started_in: AbstractContextManager[None] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `oarlock serve` with these settings, on a port that is free; `started_in` is around its start only."""
    file = state.parent / "oar.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**settings, "SERVER_PORT": _free_port()}.items()))
    command = [sys.executable, "-m", "oarlock", "serve", "--state", str(state), "--config", str(file)]
    with started_in or nullcontext():
        process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as taken:
        return int(taken.getsockname()[1])


def appeared(path: Path, process: subprocess.Popen[bytes]) -> Path:
    """Wait until a server listens."""
    deadline = time.monotonic() + _START_SECONDS
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError("the server did not start")
        time.sleep(0.05)
    return path


def _fill(tx: Tx) -> None:
    properties.add(tx, "core", int)
    rows: list[dict[str, Value]] = [
        {"network_address": f"node{node}", "core": node * _CORES + core, "cpuset": core}
        for node in range(_NODES)
        for core in range(_CORES)
    ]
    resources.add(tx, rows, at=0)


def serve(folder: str) -> None:
    """Serve until terminated; what the child process runs."""
    from oarlock.server.http import listen
    from oarlock.server.http.connection import ConnectionLimits
    from oarlock.web.policy import AccessPolicy
    from tests.web.nodeless_server import NodelessServer

    config = Config(server_hostname="127.0.0.1", server_port=0, job_min_uid=1)
    with open_database(Path(folder) / "oarlock.db") as database:

        async def run() -> None:
            core: Any = NodelessServer(Path(folder), config, database)
            await listen.answer(
                core, await listen.listen(core), AccessPolicy.of(config), ConnectionLimits(config.allowed_networks)
            )

        asyncio.run(run())
