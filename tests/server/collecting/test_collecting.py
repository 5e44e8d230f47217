"""The collector's process: takes what it is handed, is replaced when it dies, and never holds anybody up."""

import asyncio
import json
import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import LogContent, read_log
from oarlock.measure.collect.questions import CSV, FileSizes, JobCurves, JobFile
from oarlock.measure.collect.retention import RetentionPolicy
from oarlock.measure.collect.series import NoSamples
from oarlock.measure.remote.target import RemoteTarget
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.node.measure.wire import SampleDecoder, SampleEncoder, encode_sample
from oarlock.server.collecting.bookkeeping import EnergyBooker, store_shortage
from oarlock.server.collecting.client import CollectorClient
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import events
from oarlock.store.queries.usage import energy, pins
from oarlock.store.queries.usage.pins import ArchivePin
from tests.measure.energy.controller import Controller, controllers
from tests.measure.remote.receivers import receiving
from tests.store.cluster import add_job
from tests.waiting import until

BOOT = "0d5a6a4e7a434d6d9d536f9a2a3a9a11"


class Node:
    """A node that sends samples of one job, and the server's decoder of it."""

    def __init__(self, job: int) -> None:
        self.job, self.second = job, 0
        self._encoder, self._decoder = SampleEncoder(BOOT), SampleDecoder()

    def tables(self, _node: str) -> bytes:
        return self._decoder.tables_frame()

    def send(self, client: CollectorClient, count: int = 1, values: int = 3) -> None:
        for _ in range(count):
            self.second += 1
            sample = {f"cpus_{n}": float(self.second) for n in range(values)}
            data = self._encoder.encode(float(self.second), {}, {self.job: sample})
            client.put("n1", data, {self.job}, at=float(self.second))
            self._decoder.parse(data)


def content(root: Path, job: int) -> LogContent:
    path = SamplePlaces(root).log(job)
    return read_log(path.read_bytes()) if path.exists() else LogContent()


@pytest.fixture
def database(sqlite_path):
    with open_database(sqlite_path) as opened:
        yield opened


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "samples"


def test_energy_is_booked_in_the_database_and_adds_up(root, database):
    job = database.write(lambda tx: add_job(tx, user="ada", state=JobState.RUNNING)).id
    decoder, encoder = SampleDecoder(), SampleEncoder(BOOT)
    cores = {f'core_cpu_seconds_total{{core="{n}",mode="user"}}': 0.0 for n in range(4)}
    node = {'power_watts{meter="ipmi"}': 100.0, **cores}

    async def story() -> None:
        client = CollectorClient(
            root, database.address, lambda _: decoder.tables_frame(), look_seconds=600, booking_seconds=0.2,
            on_booked=EnergyBooker(database).take,
        )  # fmt: skip
        for second in range(1, 12):
            data = encoder.encode(float(second), node, {job: {"cpus": 1.0}})
            client.put("n1", data, {job}, at=float(second))
            decoder.parse(data)
        await until(lambda: database.write(lambda tx: energy.of_jobs(tx, [job])) == {job: 250_000})
        await client.close()

    asyncio.run(story())
    with database.read() as tx:
        [meter] = energy.meters_by(tx, ["node"], since=0, until=86_400)
    assert meter == energy.MeterOfGroup(("n1",), ("controller",), 1_000_000, 750_000, 0, 10.0)


def test_a_node_that_sends_nothing_is_read_by_its_controller(root, database, tmp_path):
    """It sleeps, or nobody is connected to it: the collector reads its power by itself."""
    bmc = Controller(150.0)
    file = tmp_path / "controllers"
    file.write_text(f'n1 {bmc.url} monitor "se cret"\n')
    file.chmod(0o600)

    async def story() -> None:
        client = CollectorClient(root, database.address, lambda _: b"", look_seconds=600, redfish=file)
        client.begin()
        await until(lambda: client.figures["controller_readings_total"] == 1)
        assert client.figures["controllers_failing"] == 0
        await client.close()

    with controllers(bmc):
        asyncio.run(story())
        assert bmc.tokens == set()  # its session is ended with the process
    [path] = SamplePlaces(root).node_files("n1")
    [group] = read_log(path.read_bytes()).groups.values()
    assert (group.names, list(group.column(0))) == (('power_watts{meter="redfish"}',), [150.0])


def test_samples_are_logged_asked_for_and_archived_when_the_job_is_over(root, database):
    job = database.write(lambda tx: add_job(tx, user="ada", state=JobState.TERMINATED)).id

    async def story() -> None:
        node = Node(job)
        client = CollectorClient(root, database.address, node.tables, look_seconds=0.3)
        client.begin()
        assert client._task is None  # nothing to collect: no process
        node.send(client, 20)
        await until(lambda: SamplePlaces(root).archived(job).exists() and not SamplePlaces(root).logged_jobs())
        view = json.loads(await client.ask(JobCurves(job, ["cpus"])))
        assert (view["job_id"], view["live"]) == (job, False)
        made = json.loads(await client.ask(JobFile(job, CSV)))
        text = await asyncio.to_thread(Path(made["path"]).read_text)
        assert text.splitlines()[:2] == [
            "time,node,cpus_0,cpus_1,cpus_2",
            "1.000,n1,1.0,1.0,1.0",
        ]
        with pytest.raises(NoSamples, match="no curves of job 99"):
            await client.ask(JobCurves(99))
        await client.close()

    asyncio.run(story())


def test_a_nearly_full_disk_is_an_event_and_pinned_files_stay(root, database):
    jobs = [database.write(lambda tx: add_job(tx, user="ada", state=JobState.TERMINATED)).id for _ in range(2)]
    database.write(lambda tx: pins.add(tx, ArchivePin(jobs[0], "ada", 1)))
    collector = Collector(root)
    collector.start()
    for second in range(1, 21):
        data = encode_sample(float(second), {}, {job: {"cpus": 4.0} for job in jobs})
        collector.take("n1", data, set(jobs), at=float(second))
    for _ in range(2):
        collector.archive_ended(lambda ids: {job: ArchivedJob(job, "ada") for job in ids})
    collector.close()

    async def story() -> None:
        client = CollectorClient(
            root, database.address, lambda _: b"", look_seconds=0.1, policy=RetentionPolicy(keep_free=101),
            on_shortage=partial(store_shortage, database),
        )  # fmt: skip
        sizes = json.loads(await client.ask(FileSizes([*jobs, 99])))
        assert sizes.keys() == {str(job) for job in jobs}
        await until(lambda: SamplePlaces(root).kept(jobs[1]).name == f"{jobs[1]}.thin.h5")
        await client.close()

    asyncio.run(story())
    assert SamplePlaces(root).kept(jobs[0]).name == f"{jobs[0]}.h5"
    with database.read() as tx:
        [row] = events.after(tx, 0, [EventType.ARCHIVE_SHORT_OF_ROOM], most=9)
    assert "less than 101 % (ARCHIVE_KEEP_FREE): the oldest files are thinned early" in row.event.description


def test_an_engine_that_hangs_or_is_away_leaves_our_own_files_whole(root, database):
    job = database.write(lambda tx: add_job(tx, user="ada", state=JobState.TERMINATED)).id
    answers = threading.Event()

    def status(count: int) -> int:
        if count > 1:
            return 204 if answers.is_set() else 503
        answers.wait(20)  # the first request is not answered for as long as the test wants
        return 503

    async def story() -> None:
        node = Node(job)
        client = CollectorClient(
            root, database.address, node.tables, look_seconds=0.3, remote=RemoteTarget(receiver.url, cluster="alpha")
        )
        node.send(client, 20)
        await until(lambda: receiver.requests)
        await until(lambda: SamplePlaces(root).archived(job).exists() and not SamplePlaces(root).logged_jobs())
        view = json.loads(await client.ask(JobFile(job, CSV)))
        assert len((await asyncio.to_thread(Path(view["path"]).read_text)).splitlines()) == 21
        assert client.figures["remote_written_total"] == 0
        answers.set()
        await until(lambda: client.figures["remote_written_total"] == 60)
        assert (client.figures["remote_failing"], client.figures["remote_dropped_total"]) == (0, 0)
        await client.close()

    with receiving() as receiver:
        receiver.status = status
        asyncio.run(story())


def test_a_collector_that_is_killed_is_replaced_and_the_gap_is_marked(root, database):
    async def story() -> None:
        node = Node(7)
        client = CollectorClient(root, database.address, node.tables, look_seconds=600)
        node.send(client, 5)
        await until(lambda: client.progress.counts.get("rows") == 5)  # what was not told by then may be lost
        process = client._handle.process
        os.kill(process.pid, signal.SIGSTOP)
        node.send(client, 3)  # they are in its socket, and nobody reads them any more
        await until(lambda: len(client._sent) >= 3)
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: client.counts["restarts"] == 1)
        node.send(client, 2)
        await until(lambda: content(root, 7).rows >= 7)
        logged = content(root, 7)
        assert logged.rows == 7
        assert [list(group.times) for group in logged.groups.values()] == [[1000, 2000, 3000, 4000, 5000, 9000, 10000]]
        assert [note.about for note in logged.notes] == [{"since": 6000, "until": 8000, "why": "the collector ended"}]
        await client.close()

    asyncio.run(story())


def test_a_collector_that_hangs_costs_samples_and_never_time(root, database):
    """It is stopped, as a disk that hangs would stop it: what is above the bound is dropped and marked."""

    async def story() -> None:
        node = Node(7)
        told: list[str] = []
        client = CollectorClient(
            root, database.address, node.tables, look_seconds=600, most_bytes=1 << 20, on_trouble=told.append
        )
        node.send(client, 2)
        await until(lambda: content(root, 7).rows == 2)
        os.kill(client._handle.process.pid, signal.SIGSTOP)
        for _ in range(40):
            node.send(client, 10, values=1000)
            await asyncio.sleep(0)
        assert client.counts["dropped"] > 100
        assert client._bytes <= 1 << 20
        words = "the collector is behind: 0 MB wait for it, and what comes now is dropped"
        assert (told, client.figures["failing"]) == ([words], 1.0)
        os.kill(client._handle.process.pid, signal.SIGCONT)
        await until(lambda: not client._queue)
        node.send(client, 3)
        await until(lambda: any("since" in note.about for note in content(root, 7).notes))
        await until(lambda: content(root, 7).rows == 405 - client.counts["dropped"])
        logged = content(root, 7)
        gaps = [note.about for note in logged.notes]
        assert {gap["why"] for gap in gaps} == {"the collector was behind"}
        missing = {second for gap in gaps for second in range(gap["since"] // 1000, gap["until"] // 1000 + 1)}
        kept = {at // 1000 for group in logged.groups.values() for at in group.times}
        assert missing | kept == set(range(1, 406))
        await client.close()

    asyncio.run(story())


def test_a_collector_that_logs_nothing_for_long_is_told_once_until_it_does(root, database):
    """Nothing is lost yet: all of it waits."""

    async def story() -> None:
        node = Node(7)
        told: list[str] = []
        client = CollectorClient(
            root, database.address, node.tables, look_seconds=600, on_trouble=told.append, behind_seconds=0.5
        )

        def is_told() -> bool:
            node.send(client)
            return bool(told)

        for turn in range(2):
            node.send(client)
            await until(lambda: client.figures["behind_seconds"] == 0.0)
            os.kill(client._handle.process.pid, signal.SIGSTOP)
            await until(is_told)
            assert is_told()
            assert (len(told), client.figures["failing"]) == (1, 1.0), turn
            assert told.pop().startswith("the collector is behind: what came ")
            os.kill(client._handle.process.pid, signal.SIGCONT)
            await until(lambda: not client.figures["failing"])
        assert client.counts["dropped"] == 0
        await client.close()

    asyncio.run(story())


def test_what_the_collector_alone_refuses_is_counted_by_node(root, database):
    """More series than a node may have, in samples that are whole; also after its process was killed."""

    async def story() -> None:
        node = Node(7)
        client = CollectorClient(root, database.address, node.tables, look_seconds=600)
        for turn in range(2):
            for part in range(5):
                sample = {f"x{part}_{n}": 1.0 for n in range(45_000)}
                at = float(10 * turn + part)
                client.put("n1", encode_sample(at, {}, {7: sample}), {7}, at=at)
            await until(lambda: client.refused == {"n1": turn + 1})  # noqa: B023
            os.kill(client._handle.process.pid, signal.SIGKILL)
            await until(lambda: client.counts["restarts"] == turn + 1)  # noqa: B023
        assert client.refused == {"n1": 2}
        await client.close()

    asyncio.run(story())
