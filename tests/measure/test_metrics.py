import re
import subprocess
from pathlib import Path

import pytest

from oarlock.measure.metrics import MetricDefinition, MetricKind, catalogue
from oarlock.node.measure.discovery import CgroupFinder
from oarlock.node.measure.layout import OARLOCK
from oarlock.node.measure.sampler import Sampler
from oarlock.node.sources import assemble
from oarlock.node.sources.probe import series, split
from scripts.node_pythons import installed
from tests.monitoring import needs_cgroups, real_groups
from tests.node.sources.test_perf import COLMET

ALL = list(catalogue().values())


def test_kind_and_unit_are_in_the_name():
    metric = MetricDefinition("job", "cpu", "cpu_seconds_total", "", "")
    assert (metric.full_name, metric.kind, metric.unit) == (
        "oarlock_job_cpu_seconds_total",
        MetricKind.COUNTER,
        "seconds",
    )
    assert (
        MetricDefinition("node", "machine", "load_1min", "", "").kind,
        MetricDefinition("node", "x", "jobs", "", "").unit,
    ) == (
        MetricKind.GAUGE,
        "1",
    )


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.full_name)
def test_every_metric_is_well_formed_for_prometheus(metric):
    assert re.fullmatch(r"oarlock_(job|node|agent)_[a-z][a-z0-9_]*", metric.full_name)
    assert metric.help.endswith(".")
    assert "|" not in metric.help + metric.files
    assert not {"job", "instance"} & set(metric.labels), "Prometheus sets these itself"


def test_every_source_has_metrics_and_every_metric_a_source():
    sources = {metric.source for metric in ALL}
    assert sources - {"sampler", "power", "agent"} == set(assemble.ALL) - {"ipmi", "redfish"}


def test_colmet_is_credited_with_its_own_events_only():
    credited = [metric.peers["colmet"] for metric in ALL if metric.source == "perf" and "colmet" in metric.peers]
    assert sorted(credited) == sorted(COLMET)


def test_the_names_of_the_seeds_are_all_there():
    peers = {name.split(" ")[0] for metric in ALL for name in metric.peers.values()}
    wanted = """jobs_rss jobs_spawned_processes jobs_opened_files jobs_thread_count jobs_user_time jobs_system_time
        jobs_cpu_time_total jobs_cpu_time_core jobs_uses_scratch jobs_read_mb jobs_write_mb jobs_write_count
        jobs_read_count slurm_job_core_usage_total slurm_job_memory_limit slurm_job_memory_rss slurm_job_memory_max
        slurm_job_utilization_gpu slurm_job_power_gpu memory_usage cgroup_memory_anonymous cgroup_memory_file
        cgroup_memory_kernel_stack cgroup_memory_pagetables"""
    assert set(wanted.split()) - peers == set()


@needs_cgroups
def test_whatever_is_read_on_this_machine_is_in_the_catalogue():
    with real_groups() as groups:
        made = groups.make("oarlock/n1/ada_7")
        child = subprocess.Popen(["sleep", "60"])
        names = [name for name in assemble.ALL if name not in {"ipmi", "redfish"}]
        sources = assemble.assemble(names)
        sampler = Sampler(CgroupFinder([OARLOCK], lambda: groups.hierarchies), sources.job, sources.node)
        try:
            groups.join(made, child.pid)
            sample = sampler.sample(0)
        finally:
            sampler.close()
            child.kill()
            child.wait()
    [reading] = sample.jobs.values()
    read = [("job", key) for key in reading.values] + [("node", key) for key in sample.node]
    assert len(read) > 100
    for scope, key in read:
        name, labels = split(key)
        metric = catalogue()[scope, name]
        assert set(re.findall(r'(\w+)="', labels)) <= set(metric.labels)


def test_a_label_may_hold_anything():
    key = series("process_threads", exe='a"b\\c\nd}')
    assert key == 'process_threads{exe="a\\"b\\\\c\\nd}"}'
    assert split(key) == ("process_threads", 'exe="a\\"b\\\\c\\nd}"')
    assert split("tasks") == ("tasks", "")


def test_an_unknown_source_is_refused_with_the_list():
    with pytest.raises(ValueError, match="no source `gpus`; there are cpu, memory"):
        assemble.assemble(["cpu", "gpus"])


def test_sources_that_this_machine_has_nothing_for_are_left_out(caplog):
    caplog.set_level("INFO")
    options = assemble.SourceOptions(nvidia_library="libnvidia-ml-of-nowhere.so")
    sources = assemble.assemble(["gpu", "redfish", "pids"], options)
    assert ([source.name for source in sources.job], sources.node) == (["pids"], [])
    assert len(caplog.records) == 2


def test_what_travels_to_nodes_runs_on_python_3_9():
    """Names are checked elsewhere; this takes a sample, where such a Python is installed."""
    python = installed(9)
    if python is None:
        pytest.skip("python3.9 is not installed, so nodes with an old Python are not tested")
    program = (
        "from oarlock.node.sources.assemble import assemble, ALL\nfrom oarlock.node.measure.sampler import Sampler\n"
        "from oarlock.node.measure.discovery import CgroupFinder\nfrom oarlock.node.measure.layout import OARLOCK\n"
        "from oarlock.node.sources.files import mounted_hierarchies\ns = assemble(ALL)\n"
        "sampler = Sampler(CgroupFinder([OARLOCK], mounted_hierarchies), s.job, s.node)\n"
        "print(len(sampler.sample(0).node) > 50, sum(sampler.errors.values()))"
    )
    source = Path(__file__).resolve().parent.parent.parent / "src"
    ran = subprocess.run([python, "-c", program], env={"PYTHONPATH": str(source)}, capture_output=True, check=False)
    assert (ran.stdout, ran.stderr) == (b"True 0\n", b"")
