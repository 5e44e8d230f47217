"""A disk of measurements that is full, read-only or hangs: jobs start and end as always, and somebody is told once."""

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.store.queries.cluster import events
from tests.bed import needs_root
from tests.e2e.instance import Instance, instance
from tests.e2e.test_usage import _metrics
from tests.node.attempt.fuse import mounted

pytestmark = needs_root

_NUMBERS = itertools.count()


@pytest.fixture
def site(workspace, two_users) -> Iterator[Instance]:
    """An instance that measures each second, whose measurements have a disk of their own."""
    more = {"SAMPLE_PERIOD": 1, "SERVER_HOSTNAME": "127.0.0.1"}
    with instance(workspace, two_users[0], f"f{os.getpid()}x{next(_NUMBERS)}n", more=more) as made:
        samples = made.state / "samples"
        samples.mkdir(0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", samples], check=True)
        try:
            yield made
        finally:
            made.close()
            subprocess.run(["umount", "--lazy", samples], check=True)


def figures(site: Instance) -> dict[str, float]:
    """What the page of metrics says about the collector."""
    lines = [line for line in _metrics(site).splitlines() if line.startswith("oarlock_collector_")]
    return {line.partition("{")[0].removeprefix("oarlock_collector_"): float(line.split()[-1]) for line in lines}


def troubles(site: Instance) -> int:
    with site.database.read() as tx:
        return len(events.after(tx, 0, [EventType.MEASUREMENTS_NOT_KEPT], most=100))


def fill(samples: Path) -> None:
    with (samples / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def make_read_only(samples: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", samples], check=True)


@pytest.mark.parametrize("break_disk", [fill, make_read_only])
def test_a_disk_that_takes_nothing_costs_measurements_alone(site, break_disk):
    break_disk(site.state / "samples")
    ids = site.submit_many(["sleep 2"] * 4, array=False)
    site.serve()
    site.until(lambda: figures(site).get("failing") == 1.0)
    site.until(site.all_over)
    assert [site.job(job).state for job in ids] == [JobState.TERMINATED] * 4
    site.until(lambda: troubles(site) == 1)
    assert figures(site)["rows_total"] == 0


def test_while_a_write_hangs_jobs_start_and_end(site):
    """The collector is stopped, as a disk that hangs would stop it."""
    first = site.submit("sleep 600", "/core=1,walltime=0:10:0")
    ids = site.submit_many(["sleep 1"] * 6, array=False)
    site.serve()
    site.until(lambda: figures(site).get("rows_total", 0.0) > 0)
    stopped = collector(site)
    os.kill(stopped, signal.SIGSTOP)
    try:
        site.until(lambda: all(site.job(job).state is JobState.TERMINATED for job in ids))
        site.delete(first)
        assert site.stop() < 10
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)


@pytest.mark.soak
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this kernel has no FUSE")
def test_with_ten_seconds_a_write_jobs_start_and_end_and_it_is_seen(site):
    """A process that waits for such a disk cannot be killed: the server stops without it."""
    live = site.state / "samples" / "live"
    live.mkdir(0o700)
    with mounted(live, 0, 0, write_seconds=10.0) as disk:
        ids = site.submit_many(["sleep 2"] * 4, array=False)
        site.serve()
        site.until(site.all_over)
        assert [site.job(job).state for job in ids] == [JobState.TERMINATED] * 4
        site.until(lambda: figures(site)["behind_seconds"] > 3)
        assert not disk.written
        assert site.stop() < 10


def collector(site: Instance) -> int:
    """The process of the collector."""
    children = Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children").read_text().split()
    [pid] = [int(pid) for pid in children if b"collecting.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid
