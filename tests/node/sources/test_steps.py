"""Steps of a job are told apart while they run."""

from oarlock.node.sources.files import UNIFIED
from oarlock.node.sources.job.steps import MOST, StepSource, steps
from tests.monitoring import job_at, needs_cgroups, real_groups, recorded

V1 = {
    "cpuacct/step_0/cpuacct.usage": "1500000000\n",
    "cpuacct/step_batch/cpuacct.usage": "250000000\n",
    "memory/step_0/memory.usage_in_bytes": "4096\n",
    "memory/step_batch/memory.usage_in_bytes": "8192\n",
}
TOLD = {
    'step_cpu_seconds_total{step="0"}': 1.5,
    'step_memory_usage_bytes{step="0"}': 4096,
    'step_cpu_seconds_total{step="batch"}': 0.25,
    'step_memory_usage_bytes{step="batch"}': 8192,
}


def _job(directories, *names):
    job = job_at(directories)
    _inside(job, *names)
    return job


def _inside(job, *names):
    home = job.home.absolute
    job.process_directories = [home, *(f"{home}/{name}" for name in names)]


def _read(probe):
    values = {}
    probe.read(values, thorough=False)
    return values


def test_steps_of_version_1_are_told_apart(tmp_path):
    recorded(tmp_path, V1)
    at = {name: tmp_path / name for name in ("cpuacct", "memory")}
    probe = StepSource().open(_job(at, "step_0", "step_0/task_0", "step_batch"))
    assert _read(probe) == TOLD
    probe.close()


def test_steps_of_version_2_are_told_in_the_same_names(tmp_path):
    files = {
        "step_0/cpu.stat": "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n",
        "step_0/memory.current": "4096\n",
        "step_batch/cpu.stat": "usage_usec 250000\n",
        "step_batch/memory.current": "8192\n",
    }
    recorded(tmp_path, files)
    probe = StepSource().open(_job({UNIFIED: tmp_path}, "step_0", "step_0/user", "step_batch"))
    assert _read(probe) == TOLD
    probe.close()


def test_what_is_inside_a_job_and_no_step_is_none():
    assert steps([]) == []
    assert steps(["/c/job_1"]) == []
    assert steps(["/c/job_1", "/c/job_1/0-3", "/c/job_1/step_0", "/c/job_1/step_0/step_1", "/d/step_9"]) == ["step_0"]
    assert len(steps(["/c/j", *(f"/c/j/step_{n}" for n in range(100))])) == MOST


@needs_cgroups
def test_a_step_that_ends_takes_its_series_along_and_leaves_its_job_alone():
    with real_groups() as groups:
        path = "slurm/uid_1/job_5"
        made = groups.make(path)
        for name in ("step_0", "step_1"):
            groups.make(f"{path}/{name}")
        job = _job(made, "step_0", "step_1")
        probe = StepSource().open(job)
        assert len(_read(probe)) == 4
        groups.remove(f"{path}/step_0")
        assert set(_read(probe)) == {'step_cpu_seconds_total{step="1"}', 'step_memory_usage_bytes{step="1"}'}
        groups.make(f"{path}/step_2")
        _inside(job, "step_1", "step_2")
        assert {name.partition("{")[2] for name in _read(probe)} == {'step="1"}', 'step="2"}'}
        probe.close()
