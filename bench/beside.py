"""Jobs beside measuring: how much later they start while 1,000 nodes send 20,000 values a second to the same server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.collect_load import PERIOD, make_nodes
from bench.harness import figure
from bench.life import new_site
from bench.rounds import ROUNDS, JobRounds, Rounds, alternate, percent
from oarlock.config import Config
from oarlock.server import instance, serve
from oarlock.server.core import ServerCore
from oarlock.server.process.clock import RealClock
from oarlock.settings.kinds import NodeTransport
from oarlock.store.engine.database import Database

_NODES, _VALUES = 1000, 200
_TURN = 0.1


class _Senders:
    """Nodes that send what they measured."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        nodes = make_nodes(_NODES, values=2 * _VALUES, jobs_a_node=0)  # of which half are the node's: all there are
        self._frames = iter(_frames(nodes))

    async def send_names(self) -> None:
        """Hand over the first sample of each node, with the table of its names: they are sent once."""
        for _ in range(round(PERIOD / _TURN)):
            for node, frame in next(self._frames):
                self._core._measured(node, frame, {})
            await asyncio.sleep(0.01)

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send all the time."""
        sending = asyncio.create_task(self._send())
        try:
            yield
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send(self) -> None:
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
    for turn in range(int(ROUNDS * 20 / _TURN)):
        begin = turn * share % len(nodes)
        group = nodes[begin : begin + share]
        turns.append([(node.name, node.frame(now + turn * _TURN)) for node in group])
    return turns


@contextlib.asynccontextmanager
async def serving_here(
    database: Database, state: Path, *, listen: serve.Listener | None = None, **settings: Any
) -> AsyncIterator[ServerCore]:  # fmt: skip
    """Run a server in this process; without `listen` nobody can ask it anything."""
    instance.prepare_state_dir(state)
    config = Config(node_transport=NodeTransport.LOCAL, **settings)
    core = ServerCore(state, config, database, RealClock(), instance.attempt_key(database))
    running = asyncio.create_task(serve.run(core, listen))
    try:
        yield core
    finally:
        core.stopping.set()
        await running
        await core.close()


async def _measure(database: Database, state: Path, user: str) -> tuple[Rounds, Rounds]:
    async with serving_here(database, state) as core:
        jobs, senders = JobRounds(core, database, state, user), _Senders(core)
        await jobs.round()  # the nodes are reached, and everything is loaded
        await senders.send_names()
        return await alternate(jobs, senders.sending)


@cache
def _rounds() -> tuple[Rounds, Rounds]:
    with new_site() as (database, state, user):
        return asyncio.run(_measure(database, state, user))


@figure("life.latency_collecting", unit="% of quiet", target=105)
def latency() -> float:
    """Compare the latency of a job while 20,000 values a second are collected with that of a quiet server."""
    quiet, beside = _rounds()
    return percent(beside.latencies, quiet.latencies)


@figure("life.array_collecting", unit="% of quiet", target=105)
def array() -> float:
    """Compare how long an array of 100 jobs takes while 20,000 values a second are collected with a quiet server."""
    quiet, beside = _rounds()
    return percent(beside.arrays, quiet.arrays)
