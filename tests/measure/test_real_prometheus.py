"""A real Prometheus scrapes a real agent while a job of known load runs, and is asked what the user portal asks."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.measure.real import free_port
from tests.measure.real_prometheus import BY_PATH, PORTAL, STEADY, Prometheus, answers, lacking
from tests.monitoring import ROOT, needs_cgroups, real_groups
from tests.nvml_stub import build
from tests.waiting import wait_until

JOB, WINDOW, MEGABYTES = "4242", 10, 200
HOLD = f"x = bytearray({MEGABYTES} << 20)\nprint('on', flush=True)"
SCRAPE = """
  - job_name: agents
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{cluster: alpha}}}}]
"""
SCONTROL = """#!/bin/sh
echo "JobId=$4 JobName=load UserId=ada(1001) GroupId=ada(1001) MCS_label=N/A Priority=1 Nice=0 Account=physics"
"""


class Load:
    """A job of two processes that work steadily, one of which holds memory; both say that they have a GPU."""

    def __init__(self, groups):
        self.places = groups.make(f"slurm/uid_1001/job_{JOB}")
        (self.places["memory"] / "memory.limit_in_bytes").write_text(str(400 << 20))
        environment = {**os.environ, "SLURM_JOB_GPUS": "0"}
        holding, plain = (
            subprocess.Popen([sys.executable, "-S", "-c", f"input()\n{work}\n{STEADY}"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, env=environment)
            for work in (HOLD, "")
        )  # fmt: skip
        self.programs = [holding, plain]
        for program in self.programs:  # in its cgroup and limited before it starts to work
            groups.join(self.places, program.pid)
            program.stdin.write(b"\n")
            program.stdin.close()
        assert holding.stdout.readline() == b"on\n"
        self.seconds = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_down)
        self._thread.start()

    def _write_down(self):
        while not self._over.wait(0.1):
            self.seconds.append((time.time(), int((self.places["cpuacct"] / "cpuacct.usage").read_text()) / 1e9))

    def cores(self, until):
        """Give how many cores it really used in the window that ends then."""
        within = [(at, used) for at, used in self.seconds if until - WINDOW <= at <= until]
        (begin, before), (end, after) = within[0], within[-1]
        return (after - before) / (end - begin)

    def end(self):
        self._over.set()
        self._thread.join()
        for program in self.programs:
            program.kill()
            program.wait()
            program.stdout.close()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A load that was measured for a while: the load, Prometheus, and the instant to ask about."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    (folder / "agent.toml").write_text(f'[agent]\nnvidia_library = "{build(folder, finer=True)}"\n')
    port = free_port()
    command = [sys.executable, "-m", "oarlock", "agent", "--config", folder / "agent.toml", "--layout", "slurm",
               "--period", "0.2", "--listen", f"127.0.0.1:{port}", "--control", "none",
               "--look-up", "slurm"]  # fmt: skip
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    with real_groups() as groups:
        load = Load(groups)
        agent = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        prometheus = Prometheus(folder, SCRAPE.format(port=port))
        try:
            wait_until(prometheus.ready, "Prometheus", 30)
            first = f'slurm_job_core_usage_total{{slurmjobid="{JOB}"}}'
            wait_until(lambda: prometheus.has(first), "the job's first sample", 20)
            at = time.time() + WINDOW + 4
            wait_until(lambda: time.time() > at, "enough samples", WINDOW + 10)
            load.cores_used = load.cores(at)
            load.end()
            yield load, prometheus, at
        finally:
            load.end()
            agent.send_signal(signal.SIGTERM)
            agent.wait(30)
            prometheus.end()


pytestmark = [pytest.mark.component("prometheus"), needs_cgroups, pytest.mark.timeout(150)]


def test_cores_memory_and_gpus_are_those_of_the_load(measured):
    load, prometheus, at = measured
    job = f'slurmjobid="{JOB}"'
    cores = prometheus.value(f"sum(rate(slurm_job_core_usage_total{{{job}}}[{WINDOW}s]) / 1000000000)", at)
    twin = prometheus.value(f'sum(rate(oarlock_job_core_cpu_seconds_total{{job_id="{JOB}"}}[{WINDOW}s]))', at)
    by_program = prometheus.value(f"sum(rate(slurm_job_process_usage_total{{{job}}}[{WINDOW}s]))", at)
    assert (cores, twin, by_program) == pytest.approx([load.cores_used] * 3, rel=0.05)
    for name in ("slurm_job_memory_rss", "slurm_job_memory_max"):
        assert prometheus.value(f"{name}{{{job}}}", at) == pytest.approx(MEGABYTES << 20, rel=0.05)
    assert prometheus.value(f"slurm_job_memory_limit{{{job}}}", at) == 400 << 20
    assert prometheus.value(f"count(slurm_job_core_usage_total{{{job}}})", at) == os.cpu_count()
    assert prometheus.value(f"slurm_job_power_gpu{{{job}}} / 1000", at) == 250.5
    assert prometheus.value(f"slurm_job_utilization_gpu{{{job}}}", at) == 50
    assert prometheus.value(f'sum(oarlock_job_threads{{job_id="{JOB}"}})', at) == 2


def test_a_job_is_listed_with_all_that_is_known_of_it(measured):
    _, prometheus, at = measured
    [(labels, value)] = prometheus.ask(f'oarlock_node_job_info{{job_id="{JOB}"}}', at=at)
    known = {word: labels[word] for word in ("job_id", "user", "account", "name", "manager")}
    assert (known, value) == (
        {"job_id": JOB, "user": "ada", "account": "physics", "name": "load", "manager": "slurm"},
        1,
    )


@pytest.mark.skipif(not PORTAL.exists(), reason="the portal's queries are not here")
def test_every_portal_query_about_jobs_and_gpus_is_answered(measured):
    _, prometheus, at = measured
    found = answers(prometheus, at, "core", "gpu", filter='cluster="alpha"', job=JOB, job_re=JOB, user="ada",
                    users_re="ada", account="physics", node="127.0.0.1", rate_sje=str(WINDOW))  # fmt: skip
    assert {name for name, answer in found.items() if not answer} == BY_PATH
    assert lacking(found, "core", "gpu") == set()
    assert len(found) > 80


def test_the_twins_of_the_portals_rules_have_values_too(measured):
    _, prometheus, at = measured
    ours = {labels["__name__"] for labels, _ in prometheus.ask('{__name__=~"oarlock_job:.*"}', at=at)}
    theirs = {labels["__name__"] for labels, _ in prometheus.ask('{__name__=~"slurm_job:.*"}', at=at)}
    assert {name.replace("slurm_job:", "oarlock_job:") for name in theirs} == ours
    assert len(ours) == 17
