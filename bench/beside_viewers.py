"""Jobs beside viewers: how much later they start, and what the server holds more, while 50 look at live pages."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

from bench import door
from bench.beside import serving_here
from bench.harness import figure
from bench.life import new_site
from bench.restart import OUT_OF_REACH, await_pass, held_bytes, site_where_many_wait
from bench.rounds import JobRounds, Rounds, alternate, percent
from bench.viewers import looking
from oarlock.server.http.listen import serve_http
from oarlock.store.engine.database import Database

_VIEWERS = 50
_LOOKED_SECONDS = 20


async def _measure(database: Database, state: Path, user: str) -> tuple[Rounds, Rounds]:
    @contextlib.asynccontextmanager
    async def watched() -> AsyncIterator[None]:
        viewers = looking(state / "server.sock", _VIEWERS)
        await asyncio.to_thread(viewers.__enter__)
        try:
            yield
        finally:
            await asyncio.to_thread(viewers.__exit__, None, None, None)

    async with serving_here(database, state, listen=serve_http, job_min_uid=1, server_port=0) as core:
        jobs = JobRounds(core, database, state, user)
        await jobs.round()  # the nodes are reached, and everything is loaded
        async with watched():
            await jobs.round()
        return await alternate(jobs, watched)


@cache
def _rounds() -> tuple[Rounds, Rounds]:
    with new_site() as (database, state, user):
        return asyncio.run(_measure(database, state, user))


@figure("life.latency_viewers", unit="% of quiet", target=105)
def latency() -> float:
    """Compare the latency of a job while 50 look at the live overview with that of a server at which nobody looks."""
    quiet, beside = _rounds()
    return percent(beside.latencies, quiet.latencies)


@figure("life.array_viewers", unit="% of quiet", target=105)
def array() -> float:
    """Compare how long an array of 100 jobs takes while 50 look at the live overview with how long it takes alone."""
    quiet, beside = _rounds()
    return percent(beside.arrays, quiet.arrays)


@figure("server.memory_viewers", unit="% of quiet", target=105)
def memory() -> float:
    """Let 100,000 jobs wait and 50 look at the live overview: what the server holds, of what it held before."""
    with site_where_many_wait() as state, door.serving(state, OUT_OF_REACH) as server:
        socket = door.appeared(state / "server.sock", server)
        await_pass(state)
        before = held_bytes(server.pid)
        with looking(socket, _VIEWERS):
            time.sleep(_LOOKED_SECONDS)
            return 100 * held_bytes(server.pid) / before
