"""A real job of known load: every figure of `--usage`, of its summary and of its file is what it did.

It keeps two cores of four busy. A machine of two cores has no others to hold: pretended nodes have the cores of their
machine, so that there it keeps all that it holds busy.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import h5py
import pytest

from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.model.job import JobState
from oarlock.model.summary import parse_detail
from oarlock.store.queries.usage import software, summaries
from oarlock.store.queries.usage.software import SoftwareQuestion
from oarlock.store.queries.usage.summaries import Summary
from tests.bed import needs_root
from tests.e2e.instance import Instance, instance
from tests.e2e.test_usage import _oarstat, _run
from tests.known_load import KnownLoad, check_node, did, near

pytestmark = needs_root

_NUMBERS = itertools.count()
CORES = min(4, os.cpu_count() or 2)


@pytest.fixture
def site(workspace, two_users) -> Iterator[Instance]:
    """An instance with one node of four cores, or as many as there are, that measures each second."""
    name = f"k{os.getpid()}x{next(_NUMBERS)}n"
    with instance(workspace, two_users[0], name, nodes=1, cores=CORES, more={"SAMPLE_PERIOD": 1}) as made:
        yield made


def _begin(site: Instance, load: KnownLoad) -> int:
    """Start a job on all cores of the node; return when it has done its work and a sample came since."""
    file = site.home / "written"
    job = site.submit(load.command(str(file)), f"/core={CORES},walltime=0:10:0", project="moon")
    site.start()
    site.until(lambda: bool(_done(site, job)), seconds=120)
    finished = time.time()
    site.until(lambda: _usage(site, job)["at"] > finished + 1)
    return job


def _done(site: Instance, job: int) -> dict[str, float]:
    out = site.home / f"OAR.{job}.stdout"
    return did(out.read_text()) if out.exists() else {}


def _usage(site: Instance, job: int) -> Any:
    return json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]


def _check_usage(used: Any, done: dict[str, float]) -> None:
    assert (used["cpus"], used["nodes"], used["walltime"]) == (CORES, used["nodes"][:1], 600)
    assert used["cpu_seconds"] == near(done["cpu"])
    assert used["cpu_seconds_offered"] == near(CORES * used["seconds"])
    assert used["memory_own_peak_bytes"] == near(done["memory"])
    assert used["written_bytes"] == near(done["written"])
    assert used["memory_peak_bytes"] >= done["memory"]


def _check_live(used: Any, done: dict[str, float]) -> None:
    _check_usage(used, done)
    assert used["memory_own_bytes"] == near(done["memory"])
    # A job begins at a whole second, and its program somewhat later.
    assert 0 <= used["seconds"] - (used["at"] - done["begin"]) < 5
    assert used["samples"] == pytest.approx(used["seconds"], abs=3.5)  # one a second
    assert used["coverage"] > 0.6


def _check_file(site: Instance, job: int, done: dict[str, float], path: str) -> None:
    with h5py.File(path) as opened:
        group = opened[f"job_{job}"]
        assert group["cpu"]["cpu_seconds_total"].max() == near(done["cpu"])
        assert group["memory"]["memory_anonymous_bytes"].max() == near(done["memory"])
        assert group["processes"]["written_bytes_total"].max() == near(done["written"])


@pytest.mark.soak  # three percent of two seconds of work: other tests beside it are more than that
def test_a_running_job_of_known_load_is_measured_within_three_percent(site):
    """Live, in the file that is made on demand, and as its nodes report it at the end."""
    job = _begin(site, KnownLoad())
    done = _done(site, job)
    _check_live(_usage(site, job), done)
    file = site.home / "live.h5"
    _run(site, "oarlock", "samples", str(job), "-o", str(file))
    _check_file(site, job, done, str(file))
    several = json.loads(_oarstat(site, "--usage", "-u", site.user, "-J"))
    assert list(several) == [str(job)]
    text = _oarstat(site, "-j", str(job), "--usage")
    assert [line.split("  ")[2] for line in text.splitlines()[1:]] == [
        "CPU", "Own memory", "Own memory, highest", "Page cache", "With cache, highest", "Time", "Read", "Written",
        "Samples",
    ]  # fmt: skip
    _run(site, "oardel", str(job))
    site.until(site.all_over)
    over = _usage(site, job)
    assert over["final"]
    _check_usage(over, done)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_what_is_kept_of_a_job_of_known_load_is_within_three_percent(site):
    """Two processes busy for 15 s each, 400 MB, 1 GB written, 30 s idle; then its summary, its sums and its file."""
    load = KnownLoad(seconds=15.0, written=1_000_000_000, idle=30.0)
    job = _begin(site, load)
    done = _done(site, job)
    _check_live(_usage(site, job), done)
    assert _usage(site, job)["memory_cache_bytes"] == near(done["written"])
    site.until(site.all_over, seconds=60)
    places = SamplePlaces(site.state / "samples")
    site.until(lambda: places.archived(job).exists() and not places.logged_jobs(), seconds=90)
    _check_usage(_usage(site, job), done)
    _check_file(site, job, done, str(places.archived(job)))
    row = _summary(site, job)
    [node] = parse_detail(row.detail).measured["1"].values()
    check_node(node, done)
    ran = site.job(job).stop - site.job(job).start
    assert site.job(job).state is JobState.TERMINATED
    assert (row.cpu_seconds, row.memory_own_peak_bytes) == (near(done["cpu"]), near(done["memory"]))
    assert (row.written_bytes, row.core_seconds, row.run_seconds) == (
        near(done["written"]),
        near(CORES * ran),
        near(ran),
    )
    assert (row.coverage, row.samples, row.walltime) == (near(1.0), near(ran), 600)
    assert row.memory_own_mean_bytes == near(done["memory"])
    assert node.node_cores == os.cpu_count()
    assert node.cpu_idle_seconds == pytest.approx(30.0, abs=2.0)  # a sample a second, at both ends
    assert node.cpu_most_cores <= 2.1
    _check_sums(site, row)


def _summary(site: Instance, job: int) -> Summary:
    with site.database.read() as tx:
        [row] = summaries.of_jobs(tx, [job])
    return row


def _check_sums(site: Instance, row: Summary) -> None:
    with site.database.read() as tx:
        [sums] = summaries.usage_by(tx, ["user", "project", "queue"], since=0, until=2**40, most=9)
        ran = software.most_used(tx, SoftwareQuestion(0, 2**40), most=9)
    assert (sums.group, sums.usage.jobs) == ((site.user, "moon", "default"), 1)
    assert (sums.usage.core_seconds, sums.usage.core_busy_seconds) == (near(row.core_seconds), near(row.cpu_seconds))
    assert sums.usage.memory_used_byte_seconds == near(row.memory_own_mean_bytes * row.run_seconds)
    # The shell that started the program has what that did after the last sample.
    assert (ran[0].name.startswith("python3"), ran[0].users, ran[0].sums.jobs) == (True, 1, 1)
    assert sum(total.sums.core_seconds for total in ran) == near(row.core_seconds)
    assert sum(total.sums.cpu_seconds for total in ran) == near(row.cpu_seconds)
