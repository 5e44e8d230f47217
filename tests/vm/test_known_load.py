"""A job of known load on the unified cgroup tree: last sample, sums, file and report say what it did."""

import asyncio
import time

import h5py
import pytest

from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.live import LiveUsage
from oarlock.node.wire.messages import CgroupLimits
from tests.bed import needs_root, run_async
from tests.known_load import KnownLoad, check_node, did, near
from tests.vm.guest import guest
from tests.vm.machine import CPUS
from tests.waiting import wait_until

pytestmark = [
    needs_root,
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.component("qemu"),
    pytest.mark.component("qemu-img"),
    pytest.mark.component("debootstrap"),
    pytest.mark.component("busybox"),
    pytest.mark.component("mke2fs"),
]

JOB = 31
SECONDS = 180


@run_async
async def test_every_figure_of_a_known_load_is_near_what_it_did(shared, tmp_path):
    load = KnownLoad(processes=1, seconds=5.0, memory=250_000_000, written=100_000_000)
    collector, live = Collector(tmp_path / "samples"), LiveUsage(1.0)
    collector.start()
    instants: list[float] = []

    async with guest(shared, sample_period=1) as post:

        def take(data: bytes) -> None:
            now = time.time()
            collector.take("n1", data, {JOB: 1}, at=now)
            live.take("n1", data, {JOB}, at=now)
            instants.append(now)

        post.node.on_samples = take
        command = load.command(f"{post.home}/written")
        await post.node.launch(post.launch(JOB, command, limits=CgroupLimits(cpus=tuple(range(CPUS)))))
        await asyncio.to_thread(wait_until, lambda: bool(did(post.out(JOB))), seconds=SECONDS, what="the work")
        done, count = did(post.out(JOB)), len(instants)
        await asyncio.to_thread(wait_until, lambda: len(instants) >= count + 12, seconds=SECONDS, what="samples")
        used = live.usage(JOB)
        await post.node.kill(JOB, 1)
        report = await post.report(JOB)
        await asyncio.to_thread(shared.run, f"rm -f {post.home}/written")

    assert (used.cpu_seconds, used.memory_own_bytes) == (near(done["cpu"]), near(done["memory"]))
    assert (used.written_bytes, used.cpus) == (near(done["written"]), CPUS)
    measured = collector.sums.measured(JOB).nodes["1"]["n1"]
    check_node(measured, done)
    assert (measured.cores, measured.core_least_seconds) == (CPUS, None), "cores are not counted on version 2"
    assert report.counters["cpu_seconds_total"] == near(done["cpu"])
    for _ in range(2):
        collector.archive_ended(lambda ids: {job: ArchivedJob(job) for job in ids})
    with h5py.File(collector.places.archived(JOB)) as opened:
        group = opened[f"job_{JOB}"]
        assert group["cpu"]["cpu_seconds_total"].max() == near(done["cpu"])
        assert group["memory"]["memory_anonymous_bytes"].max() == near(done["memory"])
        assert group["processes"]["written_bytes_total"].max() == near(done["written"])
