"""What jobs use, from the node's cgroups to the page that Prometheus reads and to `oarstat --usage`."""

import http.client
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import h5py
import pytest

from oarlock.cli.commands import module_name
from oarlock.client import Client, RequestRefused
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance, instance

pytestmark = needs_root

_NUMBERS = itertools.count()
BUSY = "python3 -c 'held = bytearray(60_000_000); held[::4096] = b\"x\" * len(held[::4096])\nwhile True: pass'"

CACHE = """import tempfile, time
file = tempfile.TemporaryFile()
for _ in range(40): file.write(bytes(1_000_000))
file.flush()
time.sleep(300)"""


@pytest.fixture
def site(workspace, two_users) -> Iterator[Instance]:
    """An instance that measures each second, with a port of its own."""
    more = {"SAMPLE_PERIOD": 1, "SERVER_PORT": _free_port(), "SERVER_HOSTNAME": "127.0.0.1"}
    with instance(workspace, two_users[0], f"u{os.getpid()}x{next(_NUMBERS)}n", nodes=2, more=more) as made:
        yield made


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _metrics(site: Instance) -> str:
    """Read the page over the port, without a token; empty while nobody listens there."""
    port = int(re.findall(r'SERVER_PORT="(\d+)"', site.settings.read_text())[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except ConnectionRefusedError:
        return ""
    finally:
        connection.close()


def _values(page: str, name: str, job: int, label: str = "job_id") -> list[float]:
    lines = [line for line in page.splitlines() if line.startswith(f"{name}{{") and f'{label}="{job}"' in line]
    return [float(line.rpartition(" ")[2]) for line in lines]


def _run(site: Instance, command: str, *words: str) -> str:
    """Run a command of users against the server; give what it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", f"from {module_name(command)} import main; raise SystemExit(main())", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OARLOCK_SERVER": str(site.state / "server.sock")},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _oarstat(site: Instance, *words: str) -> str:
    return _run(site, "oarstat", *words)


def test_a_busy_job_is_seen_while_it_runs_and_its_series_vanish_with_it(site):
    job = site.submit(BUSY, "/core=1,walltime=0:5:0", project="physics")
    begun = time.monotonic()
    site.start()
    site.until(lambda: sum(_values(_metrics(site), "oarlock_job_cpu_seconds_total", job)) > 2.5)
    used = json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]
    page = _metrics(site)
    assert f'user="{site.user}",account="physics",instance="{site.nodes[0]}",cluster="cluster"' in page
    assert sum(_values(page, "slurm_job_core_usage_total", job, "slurmjobid")) > 2.4e9
    assert 2.0 < used["cpu_seconds"] < time.monotonic() - begun  # it has one core
    assert 60e6 < used["memory_bytes"] <= used["memory_peak_bytes"] < 120e6
    assert (used["final"], used["nodes"], used["cpus"]) == (False, site.nodes[:1], 1)
    assert 60e6 < used["memory_own_bytes"] <= used["memory_own_peak_bytes"] < 120e6
    assert used["memory_own_bytes"] + used["memory_cache_bytes"] <= used["memory_bytes"]
    assert re.search(r"CPU +\d\.\d of 1 core, \d+ %", _oarstat(site, "-j", str(job), "--usage"))
    _look_at_samples(site, job)
    _run(site, "oardel", str(job))
    site.until(site.all_over)
    assert f'"{job}"' not in _metrics(site)
    over = json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]
    assert (over["final"], over["cpus"], over["memory_own_peak_bytes"] > 60e6) == (True, 1, True)


def _look_at_samples(site: Instance, job: int) -> None:
    """Its curve says one core, its file has what `--usage` says, and nobody else can read either."""
    site.until(lambda: _curve(site, job) != [])
    file = site.home / "samples.h5"
    _run(site, "oarlock", "samples", str(job), "-o", str(file))
    with h5py.File(file) as opened:
        group = opened[f"job_{job}"]
        seconds = group["cpu"]["cpu_seconds_total"]
        assert (group.attrs["owner"], json.loads(group.attrs["nodes"])) == (site.user, site.nodes[:1])
        assert seconds.tolist() == sorted(seconds)
        assert group["memory"]["memory_anonymous_bytes"].max() > 60e6
    assert all(0.2 < rate < 1.1 for rate in _curve(site, job))
    assert "cpu_seconds_total" in _run(site, "oarlock", "samples", str(job))
    assert (site.state / "samples").stat().st_mode & 0o777 == 0o700


def _curve(site: Instance, job: int) -> list[float]:
    """The cores that it kept busy, from sample to sample; empty while there are fewer than three."""
    try:
        series = Client(str(site.state / "server.sock"))._get(f"/jobs/{job}/series", metrics="cpu_seconds_total")[
            "series"
        ]
    except RequestRefused:  # nothing was logged yet
        return []
    rates = [point[2] for curve in series for point in curve["points"] if point[2] is not None]
    return rates if len(rates) >= 2 else []


def test_a_job_that_fills_the_page_cache_is_not_charged_with_it_as_its_own(site):
    """It writes 40 MB: memory is mostly cache, and `Written` is what it wrote, never `0 B`."""
    job = site.submit(f"python3 -c '{CACHE}'", "/core=1,walltime=0:5:0")
    site.start()
    site.until(lambda: sum(_values(_metrics(site), "oarlock_job_written_bytes_total", job)) >= 40e6)
    used = json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]
    assert used["memory_own_bytes"] < 20e6
    assert used["written_bytes"] >= 40e6
    assert used["memory_bytes"] > 40e6
    assert used["memory_cache_bytes"] > 40e6
    _run(site, "oardel", str(job))
    site.until(site.all_over)
    over = json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]
    assert (over["final"], over["written_bytes"] >= 40e6) == (True, True)


def test_a_short_job_leaves_its_last_counters(site):
    job = site.submit("python3 -c 'held = bytearray(80_000_000); held[::4096] = b\"x\" * len(held[::4096])'")
    site.start()
    site.until(site.all_over)
    site.until((site.state / "server.sock").exists)
    used = json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]
    assert (used["final"], used["nodes"], used["memory_bytes"]) == (True, site.nodes[:1], None)
    assert 0 < used["cpu_seconds"] < 5
    assert 80e6 < used["memory_peak_bytes"] < 140e6
    assert "at its end" in _oarstat(site, "-j", str(job), "--usage")
    assert used["written_bytes"] != 0, "what the kernel did not count is not known, not nothing"
    assert used["cpus"] == 1
    # The kernel counts from the fork, the clock runs from the command: so short a job may have used more than its time.
    assert used["cpu_seconds_offered"] == max(used["seconds"], used["cpu_seconds"])


def test_a_job_on_two_nodes_counts_on_both(site):
    job = site.submit("true", "/network_address=2,walltime=1")
    site.start()
    site.until(site.all_over)
    used = json.loads(_oarstat(site, "-j", str(job), "--usage", "-J"))[str(job)]
    assert (used["final"], used["nodes"]) == (True, site.nodes)
