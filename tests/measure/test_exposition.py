import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.measure.exposition import Exposition
from tests.measure.batches import batch, job, lines, naming, pages

ALL = ["oarlock", "slurm", "jobs", "alumet"]
OWN = 'job_id="7",user="ada",account="physics"'


def test_a_job_has_its_names_its_labels_and_a_line_that_says_it_is_here():
    page = pages(["oarlock", "slurm"], batch(job("7", {"memory_peak_bytes": 12}), node={"load_1min": 0.5}))
    assert lines(page) == [
        'oarlock_node_job_info{job_id="7",user="ada",account="physics",name="",manager="slurm",node=""} 1',
        f"oarlock_job_memory_peak_bytes{{{OWN}}} 12",
        'slurm_job_memory_max{user="ada",account="physics",slurmjobid="7"} 12',
        "oarlock_node_load_1min 0.5",
    ]
    assert page.page.series == 4


def test_a_vanished_job_takes_its_series_along():
    page = pages(
        ["slurm"],
        batch(job("7", {"user_processes": 1, 'user_threads{state="running"}': 1}), job("8", {"user_processes": 2})),
    )
    assert len(lines(page, "slurm_job_")) == 3
    page.take(batch(job("8", {"user_processes": 2})))
    assert lines(page, "slurm_job_") == ['slurm_job_process_count{user="ada",account="physics",slurmjobid="8"} 2']
    page.take(batch())
    assert b"".join(page.page.pieces) == b""


def test_a_series_that_a_job_no_longer_has_vanishes_alone():
    sleeping, running = 'threads{state="sleeping"}', 'threads{state="running"}'
    page = pages(["oarlock"], batch(job("7", {sleeping: 3, running: 1})), batch(job("7", {running: 2})))
    assert lines(page, "oarlock_job_threads") == [f'oarlock_job_threads{{state="running",{OWN}}} 2']


def test_a_job_whose_owner_becomes_known_changes_its_labels():
    values = {"user_processes": 1}
    page = pages(["slurm"], batch(job("7", values, account="")), batch(job("7", values)))
    assert lines(page, "slurm") == ['slurm_job_process_count{user="ada",account="physics",slurmjobid="7"} 1']


def test_two_nodes_of_one_machine_are_told_apart_by_a_label():
    page = pages(
        ["slurm"], batch(job("7", {"user_processes": 1}, node="n1"), job("7", {"user_processes": 2}, node="n2"))
    )
    assert [line.split(",")[-1] for line in lines(page, "slurm")] == ['node="n1"} 1', 'node="n2"} 2']


def test_the_cluster_is_on_every_line():
    page = pages(["oarlock"], batch(job("7", {"cpus": 1}), node={"load_1min": 1, 'cpu_seconds_total{mode="user"}': 2}),
                 cluster="alpha")  # fmt: skip
    assert [line for line in lines(page) if 'cluster="alpha"' not in line] == []
    assert lines(page, "oarlock_node_load") == ['oarlock_node_load_1min{cluster="alpha"} 1']


def test_cgroups_that_are_no_jobs_have_names_of_their_own():
    subject = job("system.slice", {"cpus": 2, "memory_usage_bytes": 5}, scope="cgroup", manager="cgroup")
    assert lines(pages(["oarlock", "slurm", "alumet"], batch(subject))) == [
        'oarlock_cgroup_cpus{cgroup="system.slice"} 2',
        'oarlock_cgroup_memory_usage_bytes{cgroup="system.slice"} 5',
        'memory_usage{cgroup="system.slice"} 5',
    ]


def test_deltas_are_those_of_the_last_two_samples():
    values = {"cpu_seconds_total": 2.0}
    page = pages(["alumet"], batch(job("7", {"cpu_seconds_total": 1.5}), at=10), batch(job("7", values), at=12))
    assert lines(page, "cpu_") == [
        'cpu_time_delta{kind="total",job_id="7",user_id="1001"} 500000000',
        'cpu_percent{kind="total",job_id="7",user_id="1001"} 25.0',
    ]
    page.take(batch(job("7", values), at=14))
    assert [line.split()[-1] for line in lines(page, "cpu_")] == ["0", "0.0"]


def test_what_did_not_change_is_not_written_again():
    page = Exposition(naming("oarlock"))
    page.take(batch(job("7", {"cpus": 1, "user_processes": 1})))
    before = {piece for piece in page.page.pieces if b"oarlock_job_cpus{" in piece}
    page.take(batch(job("7", {"cpus": 1, "user_processes": 2})))
    [after] = [piece for piece in page.page.pieces if b"oarlock_job_cpus{" in piece]
    assert any(after is piece for piece in before)


readings = st.dictionaries(
    st.sampled_from(["cpus", "processes", "cpu_seconds_total", 'threads{state="idle"}', 'threads{state="zombie"}']),
    st.integers(0, 3),
)
samples = st.dictionaries(st.sampled_from("123"), readings)


@settings(deadline=None)
@given(st.lists(samples, max_size=6))
def test_the_page_never_depends_on_the_samples_before(history):
    """Families with deltas are left out: those are about the samples before."""
    kept, families = Exposition(naming("oarlock", "slurm")), ["oarlock", "slurm"]
    for sample in history:
        now = batch(*(job(number, values) for number, values in sample.items()))
        kept.take(now)
        fresh = pages(families, now)
        assert sorted(lines(kept)) == sorted(lines(fresh))
        assert kept.page.series == fresh.page.series == len(lines(fresh))


@pytest.mark.component("promtool")
def test_promtool_accepts_our_names_and_reads_the_others():
    from oarlock.measure.metrics import catalogue

    values = {"job": {}, "node": {}, "agent": {}}
    for (scope, name), metric in catalogue().items():
        labels = ",".join(f'{label}="a\\"b"' for label in metric.labels)
        values[scope][f"{name}{{{labels}}}" if labels else name] = 1.5
    everything = batch(job("7", values["job"]), job("8", values["job"]), node=values["node"])
    assert checked(pages(["oarlock"], everything, cluster="alpha")) == []
    complaints = checked(pages(ALL, everything, everything))
    assert {line.split()[0].split("_")[0] for line in complaints} <= {"slurm", "jobs", "cpu", "memory", "cgroup"}
    assert not [line for line in complaints if "error" in line]


def checked(exposition):
    """Give what promtool says about a page, a line each; a page that cannot be read fails the test."""
    text = b"".join(exposition.page.pieces)
    ran = subprocess.run([shutil.which("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=30)
    assert ran.returncode in {0, 3}, ran.stderr.decode()
    return (ran.stdout + ran.stderr).decode().splitlines()
