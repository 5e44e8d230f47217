import logging
import os
import re
import resource
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from oarlock.measure.options import select_layouts
from oarlock.node.measure.discovery import CgroupFinder
from oarlock.node.measure.sampler import LEFT_OVER_SECONDS, REST_SECONDS, JobProbes, Sampler
from oarlock.node.sources.files import RESERVED, UNIFIED, CgroupGone, Hierarchy
from oarlock.node.sources.job.cpu import CpuSource
from oarlock.node.sources.job.memory import MemorySource
from oarlock.node.sources.job.processes import ProcessSource
from oarlock.node.sources.job.steps import StepSource
from oarlock.node.sources.job.tasks import PressureSource
from tests.monitoring import ROOT, job_at, needs_cgroups, real_groups, recorded
from tests.waiting import wait_until

SLURM = ROOT.parent / "shared" / "data" / "slurm-golden" / "cgroup_contents.txt"
BUSY = "x = bytearray(64 << 20)\nprint('on', flush=True)\nwhile True: pass"


@pytest.fixture
def groups():
    with real_groups() as made:
        yield made


@pytest.fixture
def sampler_of():
    """Make samplers of hierarchies, closed at the end."""
    samplers = []

    def make(hierarchies, *sources, nodes=()):
        finder = CgroupFinder(select_layouts("auto"), lambda: hierarchies)
        samplers.append(Sampler(finder, sources or (CpuSource(), MemorySource()), nodes))
        return samplers[-1]

    yield make
    for sampler in samplers:
        sampler.close()


def tree(folder, files):
    recorded(folder, files)
    names = sorted({name.split("/")[0] for name in files})
    return [Hierarchy(str(folder / name), (name,)) for name in names]


def open_files():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def values_of(sample, job):
    [values] = [reading.values for key, reading in sample.jobs.items() if key[2] == job]
    return values


def test_every_job_is_read_with_every_source(tmp_path, sampler_of):
    trees = tree(
        tmp_path,
        {
            "cpuacct/oar/ada_7/cpuacct.usage": "2000000000\n",
            "memory/oar/ada_7/memory.usage_in_bytes": "4096\n",
            "cpuacct/oar/bob_10/cpuacct.usage": "1000000000\n",
        },
    )
    sample = sampler_of(trees).sample(100.5)
    assert {key: (reading.identity.user, reading.values) for key, reading in sample.jobs.items()} == {
        ("oar2", "", "7"): ("ada", {"cpu_seconds_total": 2.0, "memory_usage_bytes": 4096}),
        ("oar2", "", "10"): ("bob", {"cpu_seconds_total": 1.0}),
    }
    assert sample.at == 100.5
    assert sample.involved_jobs == ["7", "10"]
    assert sample.node == {
        "jobs": 2,
        "jobs_left_over": 0,
        'source_errors_total{source="cpu"}': 0,
        'source_errors_total{source="memory"}': 0,
    }


def test_a_job_without_files_or_processes_is_seen_all_the_same(tmp_path, sampler_of):
    (tmp_path / "cpuacct" / "oar" / "ada_7").mkdir(parents=True)
    sample = sampler_of([Hierarchy(str(tmp_path / "cpuacct"), ("cpuacct",))]).sample(0)
    assert [reading.values for reading in sample.jobs.values()] == [{}]


def test_one_broken_job_costs_only_its_own_series_and_is_counted(tmp_path, sampler_of, caplog):
    trees = tree(
        tmp_path,
        {
            "cpuacct/oar/ada_7/cpuacct.usage": "no number\n",
            "memory/oar/ada_7/memory.usage_in_bytes": "4096\n",
            "cpuacct/oar/bob_8/cpuacct.usage": "1000000000\n",
        },
    )
    sampler = sampler_of(trees)
    sampler.sample(0)
    sample = sampler.sample(1)
    assert values_of(sample, "7") == {"memory_usage_bytes": 4096}
    assert values_of(sample, "8") == {"cpu_seconds_total": 1.0}
    assert sample.node['source_errors_total{source="cpu"}'] == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "it is said once, not every second"


class Broken:
    name = "broken"

    def read(self, values):
        raise RuntimeError("this sensor is on fire")

    def close(self):
        pass


class Steady(Broken):
    name = "steady"

    def read(self, values):
        values["load"] = 0.5


def test_a_broken_source_of_the_node_costs_the_others_nothing(sampler_of):
    sample = sampler_of([], nodes=(Broken(), Steady())).sample(0)
    assert sample.node["load"] == 0.5
    assert sample.node['source_errors_total{source="broken"}'] == 1


def test_a_job_at_rest_is_not_read_again_until_its_turn_comes(tmp_path, sampler_of):
    """Peak memory stands for what is not read while no sign of life changes."""
    trees = tree(
        tmp_path,
        {"cpuacct/oar/ada_7/cpuacct.usage": "5\n", "memory/oar/ada_7/memory.max_usage_in_bytes": "1\n"},
    )
    peak, usage = (tmp_path / name for name in ("memory/oar/ada_7/memory.max_usage_in_bytes",
                                                "cpuacct/oar/ada_7/cpuacct.usage"))  # fmt: skip
    sampler = sampler_of(trees)
    assert values_of(sampler.sample(0), "7")["memory_peak_bytes"] == 1
    peak.write_text("2\n")
    assert values_of(sampler.sample(1), "7")["memory_peak_bytes"] == 1
    usage.write_text("6\n")
    assert values_of(sampler.sample(2), "7")["memory_peak_bytes"] == 2, "it got CPU time"
    peak.write_text("3\n")
    assert values_of(sampler.sample(2 + REST_SECONDS), "7")["memory_peak_bytes"] == 3, "it is looked at now and then"


def test_a_directory_that_appears_later_is_read_from_then_on(tmp_path, sampler_of):
    trees = tree(tmp_path, {"cpuacct/oar/ada_7/cpuacct.usage": "1000000000\n", "memory/oar/x": ""})
    sampler = sampler_of(trees)
    assert values_of(sampler.sample(0), "7") == {"cpu_seconds_total": 1.0}
    recorded(tmp_path, {"memory/oar/ada_7/memory.usage_in_bytes": "4096\n"})
    assert values_of(sampler.sample(1), "7") == {"cpu_seconds_total": 1.0, "memory_usage_bytes": 4096}


def test_sources_are_switched_while_jobs_run(tmp_path, sampler_of):
    trees = tree(
        tmp_path,
        {"cpuacct/oar/ada_7/cpuacct.usage": "1000000000\n", "memory/oar/ada_7/memory.usage_in_bytes": "4096\n"},
    )
    sampler = sampler_of(trees, CpuSource())
    assert values_of(sampler.sample(0), "7") == {"cpu_seconds_total": 1.0}
    sampler.switch(MemorySource())
    assert values_of(sampler.sample(1), "7") == {"cpu_seconds_total": 1.0, "memory_usage_bytes": 4096}
    sampler.switch_off("cpu")
    assert values_of(sampler.sample(2), "7") == {"memory_usage_bytes": 4096}


def test_every_file_is_given_back(tmp_path, sampler_of):
    trees = tree(tmp_path, {f"cpuacct/oar/ada_{n}/cpuacct.usage": "1\n" for n in range(5)})
    before = open_files()
    sampler = sampler_of(trees)
    sampler.sample(0)
    assert len(open_files()) > len(before)
    sampler.close()
    assert open_files() == before


def test_a_recorded_job_of_slurm_is_found_with_its_steps_and_read(tmp_path, sampler_of):
    if not SLURM.exists():
        pytest.skip("the recorded cgroups of Slurm are not here")
    files = dict(re.findall(r"^== /sys/fs/cgroup/(\S+)\n(.*?)(?=^== |\Z)", SLURM.read_text(), re.MULTILINE | re.DOTALL))
    trees = [made for made in tree(tmp_path, files) if made.controllers != ("freezer",)]
    sampler = sampler_of(trees, CpuSource(), MemorySource(), StepSource())
    sample = sampler.sample(0)
    [(key, reading)] = sample.jobs.items()
    job = "slurm_vm/uid_1001/job_17"
    assert key == ("slurm", "vm", "17")
    assert reading.identity.uid == 1001
    assert reading.values["cpu_seconds_total"] == int(files[f"cpuacct/{job}/cpuacct.usage"]) / 1e9
    assert reading.values["memory_usage_bytes"] == int(files[f"memory/{job}/memory.usage_in_bytes"])
    [found] = sampler._finder.jobs.values()
    steps = [Path(path).relative_to(tmp_path / "cpuacct" / job).as_posix() for path in found.process_directories]
    assert steps == [".", "step_1", "step_1/task_0", "step_1/task_1", "step_batch", "step_batch/task_0"]
    told = {name: value for name, value in reading.values.items() if name.startswith("step_cpu")}
    assert told == {
        f'step_cpu_seconds_total{{step="{step}"}}': int(files[f"cpuacct/{job}/step_{step}/cpuacct.usage"]) / 1e9
        for step in ("1", "batch")
    }


@needs_cgroups
def test_a_real_job_of_version_2_is_measured_as_far_as_its_files_go(groups, sampler_of):
    made = groups.make("oarlock/n1/ada_7", UNIFIED)
    trees = [hierarchy for hierarchy in groups.hierarchies if UNIFIED in hierarchy.controllers]
    sampler = sampler_of(trees, CpuSource(), MemorySource(), PressureSource(), ProcessSource())
    child = subprocess.Popen(["sh", "-c", "read x; while :; do :; done"], stdin=-1)
    try:
        groups.join(made, child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        wait_until(lambda: values_of(sampler.sample(0), "7")["cpu_seconds_total"] > 0.05, "CPU time")
        values = values_of(sampler.sample(1), "7")
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
    assert values["processes"] == 1
    assert values['threads{state="running"}'] == 1
    assert 0 < values["cpu_user_seconds_total"] <= values["cpu_seconds_total"]
    if (made[UNIFIED] / "cpu.pressure").exists():
        assert values["cpu_pressure_some_seconds_total"] >= 0


@needs_cgroups
def test_a_real_job_is_measured_as_it_is(groups, sampler_of):
    made = groups.make("oar/ada_7")
    (made["memory"] / "memory.limit_in_bytes").write_text(str(512 << 20))
    sampler = sampler_of(groups.hierarchies)
    program = subprocess.Popen([sys.executable, "-c", f"input()\n{BUSY}"], stdin=-1, stdout=-1)
    try:
        groups.join(made, program.pid)
        program.stdin.write(b"go\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"on\n"
        first = values_of(sampler.sample(0), "7")
        wait_until(
            lambda: values_of(sampler.sample(1), "7")["cpu_seconds_total"] > first["cpu_seconds_total"] + 0.1, "CPU"
        )
        values = values_of(sampler.sample(2), "7")
    finally:
        program.kill()
        program.wait()
        program.stdin.close()
        program.stdout.close()
    assert 64 << 20 <= values["memory_anonymous_bytes"] < 128 << 20
    assert values["memory_anonymous_bytes"] <= values["memory_usage_bytes"] <= values["memory_peak_bytes"]
    assert values["memory_limit_bytes"] == 512 << 20
    cores = [value for key, value in values.items() if key.startswith("core_cpu_seconds_total")]
    assert len(cores) == values["cpus"] == os.cpu_count()
    assert sum(cores) == pytest.approx(values["cpu_seconds_total"], abs=0.05)
    assert values["cpu_user_seconds_total"] > 0


@needs_cgroups
def test_kept_files_show_the_end_of_a_job_whose_path_is_back(groups):
    meter, errors = JobProbes(job_at(groups.make("oar/ada_7"))), Counter()
    meter.refresh([CpuSource(), MemorySource()], errors)
    assert meter.read(0, errors)["cpu_seconds_total"] == 0
    groups.remove("oar/ada_7")
    groups.make("oar/ada_7")
    with pytest.raises(CgroupGone):
        meter.read(0, errors)
    meter.close()
    assert errors == Counter()


@needs_cgroups
def test_jobs_that_come_and_go_while_they_are_sampled_are_no_errors(groups, sampler_of):
    groups.make("oar", "cpuacct", "memory")
    sampler = sampler_of(groups.hierarchies)
    over = threading.Event()

    def churn():
        for number in range(200):
            groups.make(f"oar/ada_{number % 7}", "cpuacct", "memory")
            groups.remove(f"oar/ada_{number % 7}", "cpuacct", "memory")
        over.set()

    thread = threading.Thread(target=churn)
    thread.start()
    samples = seen = 0
    while not over.is_set():
        seen += len(sampler.sample(samples).jobs)
        samples += 1
    thread.join()
    assert seen > 0
    assert sampler.sample(samples).involved_jobs == []
    assert sum(sampler.errors.values()) == 0


@needs_cgroups
def test_processes_of_a_real_slurm_job_are_measured_in_its_first_sample(groups, sampler_of):
    groups.make("slurm/uid_1000")
    sampler = sampler_of(groups.hierarchies, CpuSource(), MemorySource(), ProcessSource(), StepSource())
    sampler.sample(0)
    sleeper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        groups.join(groups.make("slurm/uid_1000/job_9/step_batch/task_0"), sleeper.pid)
        values = values_of(sampler.sample(1), "9")
    finally:
        sleeper.kill()
        sleeper.wait()
    assert values["processes"] == 1
    assert 'step_memory_usage_bytes{step="batch"}' in values


def test_a_step_is_measured_in_a_hierarchy_where_it_appears_late(tmp_path, sampler_of):
    trees = tree(tmp_path, {"cpuacct/slurm/uid_7/job_9/step_0/cpuacct.usage": "1000000000\n",
                            "memory/slurm/uid_7/job_9/memory.usage_in_bytes": "1\n"})  # fmt: skip
    sampler = sampler_of(trees, StepSource())
    assert values_of(sampler.sample(0), "9") == {'step_cpu_seconds_total{step="0"}': 1.0}
    recorded(tmp_path, {"memory/slurm/uid_7/job_9/step_0/memory.usage_in_bytes": "4096\n"})
    assert values_of(sampler.sample(1), "9")['step_memory_usage_bytes{step="0"}'] == 4096


def test_open_files_of_an_idle_job_are_at_most_30_seconds_old(tmp_path, sampler_of):
    files = {"cpuacct/oar/ada_7/cpuacct.usage": "0\n", "cpuacct/oar/ada_7/cgroup.procs": "10\n",
             "proc/10/stat": f"10 (app) S 1 {' '.join(['0'] * 50)}\n"}  # fmt: skip
    trees = tree(tmp_path, {name: text for name, text in files.items() if name.startswith("cpuacct")})
    recorded(tmp_path, files)
    (tmp_path / "proc/10/fd").mkdir()
    sampler = sampler_of(trees, CpuSource(), ProcessSource(proc=str(tmp_path / "proc")))
    ages, changed_at = [], 0
    for second in range(0, 1000, 5):
        busy = second % 300 < 180 or second % 60 == 0  # it goes idle at all moments between two looks at its files
        if busy:
            (tmp_path / "cpuacct/oar/ada_7/cpuacct.usage").write_text(f"{second}\n")
            (tmp_path / f"proc/10/fd/{second}").symlink_to(f"/home/ada/{second}")
            changed_at = second
        told = values_of(sampler.sample(second), "7")["open_files"]
        if told != len(list((tmp_path / "proc/10/fd").iterdir())):
            ages.append(second - changed_at)
    assert max(ages) <= 30


def test_a_foreign_cgroup_that_stays_empty_ends_its_series(tmp_path, sampler_of):
    at = "cpuacct/slurm/uid_7/job_9"
    trees = tree(tmp_path, {f"{at}/cpuacct.usage": "5\n", f"{at}/step_0/cgroup.procs": "10\n", f"{at}/cgroup.procs": "",
                            "cpuacct/oarlock/n1/ada_8/cgroup.procs": ""})  # fmt: skip
    recorded(tmp_path, {"proc/10/stat": f"10 (app) S 1 {' '.join(['0'] * 50)}\n"})
    sampler = sampler_of(trees, CpuSource(), ProcessSource(proc=str(tmp_path / "proc")))

    def seen(now):
        sample = sampler.sample(now)
        return sample.involved_jobs, sample.node["jobs"], sample.node["jobs_left_over"]

    assert seen(0) == (["8", "9"], 2, 0)
    (tmp_path / at / "step_0/cgroup.procs").write_text("")
    assert seen(10) == (["8", "9"], 2, 0)
    assert seen(10 + LEFT_OVER_SECONDS - 1) == (["8", "9"], 2, 0)
    assert seen(10 + LEFT_OVER_SECONDS) == (["8"], 1, 1), "our own jobs are removed by ourselves"
    (tmp_path / at / "step_0/cgroup.procs").write_text("10\n")
    assert seen(1000) == (["8", "9"], 2, 0), "it was a pause between two steps"


@needs_cgroups
def test_without_descriptors_only_the_newest_job_loses_its_series(groups, sampler_of):
    for number in (1, 2):
        groups.make(f"slurm/uid_7/job_{number}")
    sampler = sampler_of(groups.hierarchies, CpuSource(), MemorySource(), StepSource())
    before = {job: set(values_of(sampler.sample(0), job)) for job in "12"}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(map(int, open_files()))
    # Numbers below the highest one that are free would be used before the limit is felt.
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < top:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    os.close(fillers.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (top + RESERVED + 2, hard))
    try:
        groups.make("slurm/uid_7/job_3")
        for now in (1, 400):  # when everything is looked for and read anew, too
            sample = sampler.sample(now)
            assert {job: set(values_of(sample, job)) for job in "12"} == before
            assert values_of(sample, "3") == {}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
    sampler.sample(800)
    assert set(values_of(sampler.sample(801), "3")) == before["1"], "it has them when there are descriptors again"


def test_a_job_of_too_many_processes_gives_its_descriptors_back(tmp_path, sampler_of):
    stat = f"10 (app) S 1 {' '.join(['0'] * 50)}\n"
    recorded(tmp_path, {f"proc/{pid}/stat": stat for pid in range(10, 210)})
    pids = "".join(f"{pid}\n" for pid in range(10, 210))
    trees = tree(tmp_path, {"cpuacct/oar/ada_7/cgroup.procs": pids, "cpuacct/oar/ada_7/cpuacct.usage": "5\n"})
    sampler = sampler_of(trees, CpuSource(), ProcessSource(proc=str(tmp_path / "proc")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, open_files())) + RESERVED + 20, hard))
    try:
        assert values_of(sampler.sample(0), "7") == {"cpu_seconds_total": 5e-9}
        recorded(tmp_path, {"cpuacct/oar/bob_8/cgroup.procs": "10\n", "cpuacct/oar/bob_8/cpuacct.usage": "6\n"})
        assert values_of(sampler.sample(1), "8")["processes"] == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
