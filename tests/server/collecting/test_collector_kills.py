"""A collector that is killed again and again: what was logged stays, jobs become one file each, energy adds up."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import update

from bench.collect_load import PERIOD, VirtualCluster, VirtualNode, cpu_of, make_nodes, resident_bytes, turns
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import read_log
from oarlock.measure.collect.sums import energy_log
from oarlock.measure.energy.division import EnergyRules
from oarlock.measure.energy.ledger import EnergyLedger
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.usage import energy
from oarlock.store.tables import jobs
from tests.waiting import until

SOAK_SECONDS = float(os.environ.get("COLLECTOR_SOAK_SECONDS", "3600"))
KILL_SECONDS = 60.0
KILLS = int(os.environ.get("COLLECTOR_KILLS", "100"))
FOREVER = 1 << 62


@pytest.fixture
def database(sqlite_path):
    with open_database(sqlite_path) as opened:
        yield opened


def end_jobs(database: Database, ended: list[int]) -> None:
    change = update(jobs).where(jobs.c.job_id.in_(ended)).values(state=JobState.TERMINATED.value)
    database.write(lambda tx: tx.execute(change))


def kept_instants(places: SamplePlaces, node: VirtualNode) -> list[int]:
    """The instants at which a node's own row is logged."""
    times = []
    for path in places.node_files(node.name):
        times += [at for group in read_log(path.read_bytes()).groups.values() for at in group.times]
    return sorted(times)


def booked_energy(database: Database) -> dict[object, tuple[int, int, int]]:
    with database.read() as tx:
        found = energy.meters_by(tx, ["node", "day"], since=0, until=FOREVER)
    return {group: (meter, idle, rest) for group, _, meter, idle, rest, _ in found}


def logged_energy(places: SamplePlaces, nodes: list[VirtualNode], now: float) -> dict[object, tuple[int, int, int]]:
    """What the logs say, read from their beginnings."""
    ledger = EnergyLedger(EnergyRules())
    energy_log.replay(places, ledger, {node.name: 1 for node in nodes}, now=now)
    return {
        (key.node, key.day): (booking.meter, booking.idle, booking.not_assigned)
        for key, booking in ledger.hand_over().items()
    }


async def check(cluster: VirtualCluster, database: Database, root: Path, now: float) -> dict[str, int]:
    """End all jobs and compare what is kept with what was sent; return what was counted."""
    places, nodes = SamplePlaces(root), cluster.nodes
    end_jobs(database, [job for node in nodes for job in node.jobs])
    await until(lambda: cluster.pid and not places.logged_jobs(), seconds=600)
    expected = logged_energy(places, nodes, now)
    await until(lambda: booked_energy(database) == expected, seconds=120)
    await cluster.client.close()
    missing = 0
    for node in nodes:
        kept = kept_instants(places, node)
        assert len(set(kept)) == len(kept)  # none twice
        assert set(kept) <= set(node.sent)
        missing += len(set(node.sent) - set(kept))
        for job in node.jobs:
            _check_job(places, job, kept)
    assert missing <= cluster.client.counts["dropped"]  # whatever was told to be logged is there
    archived = [job for job, _ in places.archived_jobs()]
    assert len(archived) == len(set(archived))
    return {"sent": sum(len(node.sent) for node in nodes), "missing": missing, "archived": len(archived)}


def _check_job(places: SamplePlaces, job: int, kept: list[int]) -> None:
    path = places.kept(job)
    if path is None:
        return  # too short for a file
    [track] = hdf5.read_tracks(path, lambda name: name == "cpu_seconds_total", 0, FOREVER)
    times = list(track.times)
    assert times == sorted(set(times))
    assert len(set(kept) - set(times) - set(range(times[-1] + 1, kept[-1] + 1))) <= 1  # killed between two rows


async def kill_again_and_again(root: Path, database: Database, kills: int, seed: str) -> dict[str, int]:
    """Let a few nodes send a minute in a moment, and kill the collector at any instant; some jobs end meanwhile."""
    dice, nodes = random.Random(seed), make_nodes(4, values=40)
    cluster = VirtualCluster(root, database, nodes, booking_seconds=0.2, look_seconds=0.2)
    cluster.client._start()
    now = time.time() - 1800.0
    running = [job for node in nodes for job in node.jobs]
    for kill in range(kills + 1):
        await until(lambda: cluster.pid, seconds=120)
        before = cluster.client.progress.number
        for _ in range(dice.randrange(6, 40)):
            now += PERIOD / 10
            for node in nodes:
                cluster.send(node, now)
            if dice.random() < 0.3:
                await asyncio.sleep(dice.random() * 0.03)
        if dice.random() < 0.8:  # one that took nothing makes the next one wait longer
            await until(lambda number=before: cluster.client.progress.number > number)
        if kill < kills:
            process = cluster.client._handle.process
            os.kill(process.pid, signal.SIGKILL)
            restarts = cluster.client.counts["restarts"]
            await until(lambda count=restarts: cluster.client.counts["restarts"] > count)
        if len(running) > len(nodes):
            end_jobs(database, [running.pop(dice.randrange(len(running)))])
    await cluster.settled()
    return await check(cluster, database, root, now)


def test_what_was_logged_stays_however_often_it_is_killed(tmp_path, database):
    counted = asyncio.run(kill_again_and_again(tmp_path / "samples", database, 2, "few kills"))
    assert counted["archived"] >= 1
    assert counted["sent"] > 60


@pytest.mark.soak
def test_what_was_logged_stays_after_100_kills(tmp_path, database):
    counted = asyncio.run(kill_again_and_again(tmp_path / "samples", database, KILLS, "many kills"))
    print(f"\n{KILLS} kills: {counted}")


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 1800)
def test_a_thousand_nodes_for_an_hour_with_a_kill_each_minute(tmp_path, database):
    """COLLECTOR_SOAK_SECONDS says for how long."""

    async def story() -> None:
        root, nodes, dice = tmp_path / "samples", make_nodes(1000), random.Random("soak")
        cluster = VirtualCluster(root, database, nodes)
        running = [job for node in nodes for job in node.jobs]
        begun, own, next_kill = time.monotonic(), time.process_time(), KILL_SECONDS
        made = spent = 0.0
        sizes: list[int] = []
        for at, group in turns(nodes, SOAK_SECONDS):
            begin = time.thread_time()
            server = sum(cluster.send(node, time.time()) for node in group)
            made += time.thread_time() - begin - server
            if at >= next_kill and cluster.pid:
                next_kill += KILL_SECONDS
                sizes.append(resident_bytes(cluster.pid))
                spent += cpu_of(cluster.pid)
                os.kill(cluster.pid, signal.SIGKILL)
                ended = [running.pop(dice.randrange(len(running))) for _ in range(20)]
                await asyncio.to_thread(end_jobs, database, ended)
            await asyncio.sleep(max(0.0, begun + at + 0.1 - time.monotonic()))
        elapsed = time.monotonic() - begun
        own = time.process_time() - own - made
        await cluster.settled()
        sizes.append(resident_bytes(cluster.pid))
        spent += cpu_of(cluster.pid)
        counted = await check(cluster, database, root, time.time())
        megabytes = [round(size / 1e6) for size in sizes]
        print(
            f"\n{elapsed:.0f} s, {len(sizes) - 1} kills: {counted}; collector {spent / elapsed:.1%} of a core, "
            f"server's part {own / elapsed:.1%}; MB before each kill: {megabytes}"
        )
        assert max(sizes) < 1.3 * sizes[0] + 20e6

    asyncio.run(story())
