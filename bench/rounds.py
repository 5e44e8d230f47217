"""Rounds of jobs on one server, with and without a load beside them, in turn: what else the machine does meets both.

A round is a few jobs one after the other, then an array.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from oarlock.lang import request as requests
from oarlock.model.job import FINAL, Job, JobState
from oarlock.server.core import ServerCore
from oarlock.store.engine.database import Database
from oarlock.store.queries.job import jobs as stored
from oarlock.store.queries.job import new_jobs

ROUNDS = 10
_SINGLE, _ARRAY = 8, 100
_LONGEST_SECONDS = 60

Load = Callable[[], AbstractAsyncContextManager[None]]


class Rounds(NamedTuple):
    """Seconds of each round: from a submission to the command, and from that of an array to the end of its last job."""

    latencies: list[float]
    arrays: list[float]


class JobRounds:
    """Submits jobs to a server in this process, and waits for them."""

    def __init__(self, core: ServerCore, database: Database, state: Path, user: str) -> None:
        self._core, self._database, self._home, self._user = core, database, state / "home", user
        self._submitted = 0

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


async def alternate(jobs: JobRounds, load: Load) -> tuple[Rounds, Rounds]:
    """Return quiet rounds, and those beside a load."""
    quiet, beside = Rounds([], []), Rounds([], [])
    for number in range(ROUNDS):
        for rounds in (quiet, beside) if number % 2 else (beside, quiet):
            async with load() if rounds is beside else nullcontext():
                latency, array = await jobs.round()
            rounds.latencies.append(latency)
            rounds.arrays.append(array)
    return quiet, beside


def percent(beside: list[float], quiet: list[float]) -> float:
    """Return the median of some as a percentage of the median of others."""
    return 100 * statistics.median(beside) / statistics.median(quiet)
