"""The file of a job with a very large log is made while a thousand nodes go on sending."""

import asyncio
import os
import random
import struct
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.collect_load import VirtualCluster, make_nodes, turns
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import RowLog
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from tests.server.collecting.test_collector_kills import end_jobs
from tests.store.cluster import add_job

MEGABYTES = int(os.environ.get("LARGE_LOG_MB", "300"))
NODES, VALUES = 1000, 400
QUIET_SECONDS = 10.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def write_log(places: SamplePlaces, job: int) -> int:
    """Write a log of four nodes; return how many rows it has."""
    places.prepare()
    names = tuple(f'process_threads{{exe="/bin/{n}"}}' for n in range(VALUES))
    log, rows = RowLog(places.log(job)), MEGABYTES * 1_000_000 // (8 * VALUES)
    dice = random.Random("large")
    values = [struct.pack(f"<{VALUES}d", *(dice.randrange(1 << 20) for _ in range(VALUES))) for _ in range(977)]
    for row in range(rows):
        log.row(1000 * (row // 4), f"n{row % 4}", names, values[row % len(values)])
        if row % 1000 == 999:
            log.write()
    log.write()
    log.close()
    return rows


async def story(root: Path, database: Database) -> None:
    places = SamplePlaces(root)
    cluster = VirtualCluster(root, database, make_nodes(NODES))
    job = database.write(add_job).id
    rows = write_log(places, job)
    for node in cluster.nodes:
        cluster.send(node, time.time())
    await cluster.settled()
    begun, since, waited, queued, behind = time.monotonic(), 0.0, 0.0, 0, 0.0
    for at, group in turns(cluster.nodes, 600.0):
        for node in group:
            cluster.send(node, time.time())
        await asyncio.sleep(max(0.0, begun + at + 0.1 - time.monotonic()))
        figures = cluster.client.figures
        if at >= QUIET_SECONDS and not since:
            end_jobs(database, [job])
            since = time.monotonic()
        if since:
            queued, behind = max(queued, cluster.client._bytes), max(behind, figures["behind_seconds"])
        if places.kept(job):
            waited = time.monotonic() - since
            break
    await cluster.settled()
    samples = sum(len(node.sent) for node in cluster.nodes)
    counts = cluster.client.counts + Counter(cluster.client.progress.counts)
    await cluster.client.close()
    size = places.archived(job).stat().st_size
    print(
        f"\na log of {MEGABYTES} MB became a file of {size / 1e6:.0f} MB within {waited:.1f} s of the job's end; "
        f"meanwhile at most {queued / 1e6:.2f} MB waited for the collector, for at most {behind:.1f} s"
    )
    assert waited
    assert counts["dropped"] == 0
    assert counts["rows"] == 3 * samples  # of each node its own row, and two of its jobs'
    assert queued < 8e6  # of 64
    with hdf5.opened(places.archived(job)) as group:
        assert {len(table) for table in group.values()} == {rows}


def test_a_thousand_nodes_send_while_the_file_of_a_large_log_is_made(tmp_path, sqlite_path):
    """LARGE_LOG_MB says how large (300)."""
    with open_database(sqlite_path) as database:
        asyncio.run(story(tmp_path / "samples", database))
