"""Jobs beside measuring: how much later they start while 1,000 nodes send 20,000 values a second to the same server.

Quiet and measured rounds alternate on one server, so that what else the machine does meets both alike.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.collect_load import PERIOD, make_nodes
from bench.harness import figure
from bench.life import new_site
from oarlock.config import Config
from oarlock.lang import request as requests
from oarlock.model.job import FINAL, Job, JobState
from oarlock.server import instance, serve
from oarlock.server.core import ServerCore
from oarlock.server.process.clock import RealClock
from oarlock.settings.kinds import NodeTransport
from oarlock.store.engine.database import Database
from oarlock.store.queries.job import jobs as stored
from oarlock.store.queries.job import new_jobs

_ROUNDS = 10
_SINGLE, _ARRAY = 8, 100
_NODES, _VALUES = 1000, 200
_TURN = 0.1
_LONGEST_SECONDS = 60


class Rounds(NamedTuple):
    """Seconds of each round: from a submission to the command, and from that of an array to the end of its last job."""

    latencies: list[float]
    arrays: list[float]


class _Bench:
    """A server in this process, and what is asked of it."""

    def __init__(self, core: ServerCore, database: Database, state: Path, user: str) -> None:
        self._core, self._database, self._home, self._user = core, database, state / "home", user
        self._submitted = 0
        nodes = make_nodes(_NODES, values=2 * _VALUES, jobs_a_node=0)  # of which half are the node's: all there are
        self._frames = iter(_frames(nodes))

    async def round(self) -> tuple[float, float]:
        """Submit jobs one after the other, then an array; return the median latency, and how long the array took."""
        latencies = [await self._latency() for _ in range(_SINGLE)]
        begin = time.monotonic()
        await self._submit("/bin/true", _ARRAY)
        await self._all_over()
        return statistics.median(latencies), time.monotonic() - begin

    async def _latency(self) -> float:
        mark = self._home / f"mark{self._submitted}"
        begin = time.time()
        await self._submit(f"date +%s.%N > {mark}", 1)
        async with asyncio.timeout(_LONGEST_SECONDS):
            while not mark.exists() or not mark.read_text().strip():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        await self._all_over()
        return float(mark.read_text()) - begin

    async def _submit(self, command: str, count: int) -> None:
        job = Job(
            id=0, state=JobState.WAITING, user=self._user, queue="default", command=command, directory=str(self._home)
        )
        request = requests.parse(["/resource_id=1,walltime=1"])
        await self._core.write(lambda tx: new_jobs.add(tx, [new_jobs.NewJob(job, request)] * count))
        self._submitted += count
        self._core.wake_scheduler()

    async def _all_over(self) -> None:
        async with asyncio.timeout(_LONGEST_SECONDS):
            while True:
                with self._database.read() as tx:
                    count = stored.count(tx)
                if set(count) <= FINAL and sum(count.values()) == self._submitted:
                    return
                await asyncio.sleep(0.01)

    async def send_names(self) -> None:
        """Hand over the first sample of each node, with the table of its names: they are sent once."""
        for _ in range(round(PERIOD / _TURN)):
            for node, frame in next(self._frames):
                self._core._measured(node, frame, {})
            await asyncio.sleep(0.01)

    async def send(self) -> None:
        """Hand over what the nodes send, until cancelled."""
        begun, turn = time.monotonic(), 0
        while True:
            for node, frame in next(self._frames):
                self._core._measured(node, frame, {})
            turn += 1
            await asyncio.sleep(max(0.0, begun + turn * _TURN - time.monotonic()))


def _frames(nodes: list[Any]) -> "list[list[tuple[str, bytes]]]":
    """Encode what is sent in each tenth of a second beforehand: it is the nodes who do that, not the server."""
    share = round(len(nodes) * _TURN / PERIOD)
    now = time.time()
    turns: list[list[tuple[str, bytes]]] = []
    for turn in range(int(_ROUNDS * 20 / _TURN)):
        begin = turn * share % len(nodes)
        group = nodes[begin : begin + share]
        turns.append([(node.name, node.frame(now + turn * _TURN)) for node in group])
    return turns


async def _measure(database: Database, state: Path, user: str) -> tuple[Rounds, Rounds]:
    instance.prepare_state_dir(state)
    core = ServerCore(
        state, Config(node_transport=NodeTransport.LOCAL), database, RealClock(), instance.attempt_key(database)
    )
    running = asyncio.create_task(serve.run(core))
    bench = _Bench(core, database, state, user)
    await bench.round()  # the nodes are reached, and everything is loaded
    await bench.send_names()
    quiet, beside = Rounds([], []), Rounds([], [])
    for number in range(_ROUNDS):
        for rounds in (quiet, beside) if number % 2 else (beside, quiet):
            latency, array = await (_beside(bench.send(), bench.round()) if rounds is beside else bench.round())
            rounds.latencies.append(latency)
            rounds.arrays.append(array)
    core.stopping.set()
    await running
    await core.close()
    return quiet, beside


async def _beside(
    load: Coroutine[Any, Any, None], work: Coroutine[Any, Any, tuple[float, float]]
) -> tuple[float, float]:
    sending = asyncio.create_task(load)
    try:
        return await work
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending


@cache
def _rounds() -> tuple[Rounds, Rounds]:
    with new_site() as (database, state, user):
        return asyncio.run(_measure(database, state, user))


@figure("life.latency_collecting", unit="% of quiet", target=105)
def latency() -> float:
    """Compare the latency of a job while 20,000 values a second are collected with that of a quiet server."""
    quiet, beside = _rounds()
    return 100 * statistics.median(beside.latencies) / statistics.median(quiet.latencies)


@figure("life.array_collecting", unit="% of quiet", target=105)
def array() -> float:
    """Compare how long an array of 100 jobs takes while 20,000 values a second are collected with a quiet server."""
    quiet, beside = _rounds()
    return 100 * statistics.median(beside.arrays) / statistics.median(quiet.arrays)
