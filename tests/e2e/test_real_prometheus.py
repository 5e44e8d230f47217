"""A real Prometheus scrapes a real server while a job of known load runs on its node, and is asked what a portal asks.

It scrapes as the example in `prometheus/` says.
"""

import os
import threading
import time
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from tests.bed import needs_root, needs_v1
from tests.e2e.instance import instance
from tests.measure.real_prometheus import BY_PATH, PORTAL, STEADY, Prometheus, answers, lacking
from tests.monitoring import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.component("prometheus"), needs_root, needs_v1, pytest.mark.timeout(150)]

WINDOW, MEGABYTES, CORES, FREE = 30, 200, 2, 1  # a job that has less than its node has a limit of memory
HOLD = f"held = bytearray({MEGABYTES} << 20); held[::4096] = b'x' * len(held[::4096])"
LOAD = f"""python3 -S -c "{HOLD}
{STEADY}" & python3 -S -c "{STEADY}"; wait"""
PAST = f"python3 -c 'import time; time.sleep({CORES})'"


def _scrape(host, port):
    """The example's entry for a server, with this server in it."""
    text = (ROOT / "prometheus" / "prometheus.yml").read_text()
    entry = text[text.index("  - job_name: oarlock-listed") : text.index("  # A push gateway")]
    assert "oarlock-server:6680" in entry
    return entry.replace("oarlock-server:6680", f"{host}:{port}")


class Truth(threading.Thread):
    """The CPU time of a job as the kernel counts it, written down while it runs."""

    def __init__(self, node, user, job):
        super().__init__()
        self._file = Path(f"/sys/fs/cgroup/cpuacct/oarlock/{node}/{user}_{job}/cpuacct.usage")
        self._seen, self._over = [], threading.Event()

    def run(self):
        while not self._over.wait(0.1):
            self._seen.append((time.time(), int(self._file.read_text()) / 1e9))

    def end(self):
        self._over.set()
        if self.ident is not None:
            self.join()

    def cores(self, until):
        """How many cores the job used in the window that ends then."""
        within = [(at, used) for at, used in self._seen if until - WINDOW <= at <= until]
        (begin, before), (end, after) = within[0], within[-1]
        return (after - before) / (end - begin)


@pytest.fixture(scope="module")
def served(shared_workspace, two_users):
    """A load that was measured for a while: the instance, the job, its cores, Prometheus, and when to ask about."""
    (shared_workspace / "prometheus").mkdir()
    more = {"SAMPLE_PERIOD": 1, "CLUSTER_NAME": "alpha", "SERVER_HOSTNAME": "127.0.0.1"}
    with instance(shared_workspace, two_users[0], f"p{os.getpid()}n", nodes=1, cores=CORES + FREE, more=more) as site:
        asked = f"/network_address=1/core={CORES},walltime=1"
        past = site.submit(PAST, asked, project="physics")  # a project that used something has a priority
        job = site.submit(LOAD, asked, project="physics", after=(past,))
        site.start()
        settings = dict(line.split("=", 1) for line in site.settings.read_text().splitlines())
        prometheus = Prometheus(
            shared_workspace / "prometheus", _scrape("127.0.0.1", settings["SERVER_PORT"].strip('"'))
        )
        truth = Truth(site.nodes[0], two_users[0], job)
        try:
            site.until(lambda: site.job(job).state is JobState.RUNNING)
            truth.start()
            wait_until(prometheus.ready, "Prometheus", 30)
            first = f'slurm_job_core_usage_total{{slurmjobid="{job}"}}'
            wait_until(lambda: prometheus.has(first), "the job's first sample", 20)
            at = time.time() + WINDOW + 4
            wait_until(lambda: time.time() > at, "enough samples", WINDOW + 10)
            truth.end()
            yield site, str(job), truth.cores(at), prometheus, at
        finally:
            truth.end()
            prometheus.end()


def test_cores_and_memory_are_those_of_the_load(served):
    _, job, cores, prometheus, at = served
    named = f'slurmjobid="{job}"'
    used = prometheus.value(f"sum(rate(slurm_job_core_usage_total{{{named}}}[{WINDOW}s]) / 1000000000)", at)
    twin = prometheus.value(f'sum(rate(oarlock_job_core_cpu_seconds_total{{job_id="{job}"}}[{WINDOW}s]))', at)
    by_program = prometheus.value(f"sum(rate(slurm_job_process_usage_total{{{named}}}[{WINDOW}s]))", at)
    assert (used, twin, by_program) == pytest.approx([cores] * 3, rel=0.05)
    for name in ("slurm_job_memory_rss", "slurm_job_memory_max"):
        assert prometheus.value(f"{name}{{{named}}}", at) == pytest.approx(MEGABYTES << 20, rel=0.05)
    assert prometheus.value(f"count(slurm_job_core_usage_total{{{named}}})", at) == CORES


def test_the_scheduler_tells_what_it_gave_away(served):
    site, _, _, prometheus, at = served
    counts = {part: prometheus.value(f"slurm_cpus_{part}", at) for part in ("alloc", "idle", "total")}
    assert counts == {"alloc": CORES, "idle": FREE, "total": CORES + FREE}
    [(labels, one)] = prometheus.ask("slurm_node_state_info", at=at)
    assert (labels["node"], labels["state"], labels["cluster"], one) == (site.nodes[0], "mixed", "alpha", 1)
    # There is one project, one user, and all that was used is theirs.
    assert prometheus.value('slurm_account_levelfs{account="physics"}', at) == 1
    assert prometheus.value(f'oarlock_user_levelfs{{user="{site.user}"}}', at) == 1


@pytest.mark.skipif(not PORTAL.exists(), reason="the portal's queries are not here")
def test_every_portal_query_about_the_scheduler_is_answered(served):
    site, job, _, prometheus, at = served
    user = site.user
    found = answers(prometheus, at, "core", "sched", filter='cluster="alpha"', job=job, job_re=job, user=user,
                    users_re=user, account="physics", node=site.nodes[0], rate_sje=str(WINDOW))  # fmt: skip
    assert {name for name, answer in found.items() if not answer} == BY_PATH
    assert lacking(found, "core", "sched") == set()
    assert len(found) > 55
