"""Summaries on their way from the collector's process to the database, and the sums of days with them."""

import asyncio
import json
import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from oarlock.job import summaries as summarising
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.questions import MeasuredSoFar
from oarlock.model.job import JobState
from oarlock.model.summary import DayUsage
from oarlock.node.measure.wire import SampleDecoder, SampleEncoder
from oarlock.server.collecting.bookkeeping import EnergyBooker, store_summaries
from oarlock.server.collecting.client import CollectorClient
from oarlock.server.collecting.messages import MeasuredJobs
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.job import jobs
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.usage.summaries import Summary
from tests.clusters import add_nodes
from tests.server.collecting.test_collecting import BOOT, until
from tests.store.cluster import add_job, run, step


@pytest.fixture
def database(sqlite_path):
    with open_database(sqlite_path) as opened:
        yield opened


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "samples"


class Summarised:
    """A job of ada's on n1 that is busy with one core, its node, and what the database says of it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        core = database.write(lambda tx: add_nodes(tx, ["n1"]))[:1]
        self.second = int(time.time()) - 1000
        self.job = database.write(lambda tx: run(tx, add_job(tx, user="ada"), core, at=self.second)).id
        self._begin = self.second
        self._encoder, self._decoder = SampleEncoder(BOOT), SampleDecoder()
        self._booker = EnergyBooker(database)
        self.failing, self.refused = False, 0

    def client(self, root: Path, **more: Any) -> CollectorClient:
        return CollectorClient(
            root, self.database.address, lambda _: self._decoder.tables_frame(), booking_seconds=600,
            on_booked=self._booker.take, booked=self._booker.booked, on_measured=self._store, **more,
        )  # fmt: skip

    def _store(self, measured: MeasuredJobs) -> "Future[None]":
        if self.failing:
            self.refused += 1
            failed: Future[None] = Future()
            failed.set_exception(OSError("the disk is full"))
            return failed
        return store_summaries(self.database, measured)

    def send(self, client: CollectorClient, count: int) -> None:
        node = {'power_watts{meter="ipmi"}': 80.0, 'core_cpu_seconds_total{core="0",mode="user"}': 0.0}
        for _ in range(count):
            self.second += 1
            values = {"cpus": 1.0, "cpu_seconds_total": float(self.second - self._begin), "memory_anonymous_bytes": 1e6}
            data = self._encoder.encode(float(self.second), node, {self.job: values})
            client.put("n1", data, {self.job: 1}, at=float(self.second))
            self._decoder.parse(data)

    def end(self) -> None:
        for state in (JobState.FINISHING, JobState.TERMINATED):
            self.database.write(lambda tx, state=state: step(tx, jobs.get(tx, self.job), state, at=self.second))

    def summary(self) -> Summary | None:
        with self.database.read() as tx:
            return next(iter(summaries.of_jobs(tx, [self.job])), None)

    def samples(self) -> int:
        row = self.summary()
        return 0 if row is None else row.samples

    def sums(self) -> DayUsage:
        with self.database.read() as tx:
            [row] = summaries.usage_by(tx, ["user"], since=0, until=2**40, most=9)
        assert row.group == ("ada",)
        return row.usage


def test_a_summary_is_written_while_a_job_runs_and_at_its_end(root, database):
    """The collector is killed and the database away meanwhile: in the end nothing is missing, nothing counts twice."""
    story_of = Summarised(database)

    async def story() -> None:
        client = story_of.client(root, look_seconds=0.2, summary_seconds=0.2)
        story_of.send(client, 5)
        await until(lambda: story_of.samples() == 5)
        measured = json.loads(await client.ask(MeasuredSoFar([story_of.job, 999])))
        assert list(measured) == [str(story_of.job)]
        story_of.failing = True
        story_of.send(client, 15)
        await until(lambda: client.progress.counts.get("rows") == 40)
        story_of.end()
        os.kill(client._handle.process.pid, signal.SIGKILL)
        await until(lambda: story_of.refused >= 3)
        assert SamplePlaces(root).logged_jobs() == {story_of.job}
        await client.close()
        story_of.failing = False
        after = story_of.client(root, look_seconds=0.2)
        after.begin()
        await until(lambda: not SamplePlaces(root).logged_jobs())
        await after.close()

    asyncio.run(story())
    database.write(lambda tx: summarising.book(tx, now=story_of.second))  # what of its energy came after it
    row = story_of.summary()
    assert (row.samples, row.cpu_seconds, row.core_seconds, row.memory_own_mean_bytes) == (20, 20.0, 20.0, 1_000_000)
    assert (row.coverage, row.booked) == (1.0, 1)
    usage = story_of.sums()
    assert usage == DayUsage(
        jobs=1, core_seconds=20.0, core_busy_seconds=20.0, memory_used_byte_seconds=19e6,
        energy_joules=row.energy_joules,
    )  # fmt: skip
    assert row.energy_joules == 19 * 80.0
