"""The core of a server whose loops do not run: who gets its threads and its writer."""

import asyncio
import threading
import time
from pathlib import Path

from oarlock.config import Config
from oarlock.job.reactor.steps import QuickPass
from oarlock.server.core import ServerCore
from oarlock.server.database_access import MOST_OF_ONE, THREADS
from oarlock.server.process.clock import RealClock
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from tests.bed import run_async
from tests.store.cluster import NOW, add_job

_SLICE_SECONDS = 0.05


def _core(database: Database, folder: Path) -> ServerCore:
    return ServerCore(folder, Config(), database, RealClock(), b"key")


@run_async
async def test_steps_and_passes_find_threads_while_readers_have_all_of_theirs(database: Database, tmp_path: Path):
    core, leave, began = _core(database, tmp_path), threading.Event(), threading.Semaphore(0)

    def read_long(_: Tx) -> None:
        began.release()
        assert leave.wait(60)

    users = [f"user{number}" for number in range(THREADS // MOST_OF_ONE) for _ in range(MOST_OF_ONE)]
    readers = [asyncio.create_task(core.read(read_long, user=user)) for user in users]
    try:
        for _ in users:
            await asyncio.to_thread(began.acquire)
        async with asyncio.timeout(30):
            assert await core.read(lambda _: "a step") == "a step"
            decision, _ = await core.planning.quick(NOW, QuickPass(1, arrays=False))
            assert decision.starts == ()
    finally:
        leave.set()
        await asyncio.gather(*readers)
        await core.close()


@run_async
async def test_after_a_slice_of_an_array_others_have_the_writer_for_a_while(database: Database, tmp_path: Path):
    core = _core(database, tmp_path)
    core.readers.note("bob")

    def write_slice(tx: Tx) -> None:
        add_job(tx)
        end = time.monotonic() + _SLICE_SECONDS
        while time.monotonic() < end:
            pass

    began = time.monotonic()
    await core.write_slice(write_slice, user="ada")
    assert time.monotonic() - began >= 3 * _SLICE_SECONDS  # the slice, and twice as long for others
    await core.close()


@run_async
async def test_the_count_of_changes_rises_when_a_change_can_be_read_not_before(database: Database, tmp_path: Path):
    core, counted = _core(database, tmp_path), []
    before = core.changes
    await core.write(lambda tx: counted.append(core.changes))
    assert (counted, core.changes) == ([before], before + 1)
    await core.close()
