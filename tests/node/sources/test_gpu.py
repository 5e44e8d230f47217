import logging
import subprocess

import pytest

from oarlock.node.sources import gpu, nvml
from oarlock.node.sources.gpu import Gpus, JobGpuSource, NodeGpuSource
from tests.monitoring import job_at, recorded

STUB = r"""
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
static int cards[2] = {0, 1};
#define CARD(d) (*(int *)(d))
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **d) { *d = &cards[i]; return i > 1; }
int nvmlDeviceGetMinorNumber(void *d, unsigned int *n) { *n = 1 - CARD(d); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned int n) { snprintf(s, n, "GPU-%d", CARD(d)); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned int n) { (void)d; snprintf(s, n, "NVIDIA A100"); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) { m->total = 1000; m->used = 10 + CARD(d); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, rates_t *r) { r->gpu = 50; r->memory = 25; return CARD(d) ? 3 : 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned int *p) { *p = 250500 + CARD(d); return 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned int *t) { (void)d; *t = 60 + sensor; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned int *n, process_t *p) {
    *n = CARD(d) ? 1 : 0; p[0].pid = 4242; return 0; }
"""


@pytest.fixture(scope="session")
def stub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "stub.c").write_text(STUB)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libnvml.so", folder / "stub.c"], check=True, timeout=60)
    return str(folder / "libnvml.so")


@pytest.fixture
def gpus(stub):
    made = Gpus(nvml.load(stub))
    yield made
    made.close()


def labels(number):
    return f'{{gpu="{number}",gpu_type="NVIDIA A100",uuid="GPU-{number}"}}'


FIRST = {
    f"gpu_memory_total_bytes{labels(0)}": 1000, f"gpu_memory_used_bytes{labels(0)}": 10,
    f"gpu_utilization_ratio{labels(0)}": 0.5, f"gpu_memory_utilization_ratio{labels(0)}": 0.25,
    f"gpu_power_watts{labels(0)}": 250.5, f"gpu_temperature_celsius{labels(0)}": 60,
}  # fmt: skip
SECOND = {
    f"gpu_memory_total_bytes{labels(1)}": 1000, f"gpu_memory_used_bytes{labels(1)}": 11,
    f"gpu_power_watts{labels(1)}": 250.501, f"gpu_temperature_celsius{labels(1)}": 60,
}  # fmt: skip
"""It does not tell its utilization, and the library knows nothing of energy."""


def test_every_gpu_of_the_node_is_read_and_what_it_does_not_tell_is_absent(gpus):
    values = {}
    NodeGpuSource(gpus).read(values)
    assert values == FIRST | SECOND


def job_values(gpus, folder, **files):
    """Read the GPUs of a job with these files of its devices cgroup and of its only process."""
    tree = {f"job/{name.replace('_', '.')}": text for name, text in files.items() if name != "environ"}
    recorded(folder, {"job/cgroup.procs": "4242\n", "proc/4242/environ": files.get("environ", "HOME=/\0"), **tree})
    probe = JobGpuSource(gpus, proc=str(folder / "proc")).open(job_at({"devices": folder / "job"}))
    values = {}
    probe.beat()
    probe.read(values, thorough=True)
    assert probe.beat() == repr(values).encode(), "the next sign of life is what was read"
    return values


def test_a_job_has_the_gpus_its_devices_cgroup_allows(gpus, tmp_path):
    allowed = "c 1:3 rwm\nc 195:1 rw\nc 195:255 rw\n"  # the second device file is the first GPU of the list
    assert job_values(gpus, tmp_path, devices_list=allowed) == FIRST
    assert job_values(gpus, tmp_path, devices_list="c 1:3 rwm\n") == {}


@pytest.mark.parametrize("environ", ["SLURM_JOB_GPUS=1\0", "CUDA_VISIBLE_DEVICES=GPU-1\0X=1\0"])
def test_where_all_devices_are_allowed_the_processes_say_which_are_theirs(gpus, tmp_path, environ):
    assert job_values(gpus, tmp_path, devices_list="a *:* rwm\n", environ=environ) == SECOND


def test_where_nobody_says_it_is_the_gpu_that_is_used(gpus, tmp_path):
    assert job_values(gpus, tmp_path) == SECOND


def test_an_empty_list_of_gpus_is_none_at_all():
    assert gpu.named_gpus({"CUDA_VISIBLE_DEVICES": ""}) == set()
    assert gpu.named_gpus({"HOME": "/"}) is None
    assert gpu.allowed_minors(b"") is None


def test_an_absent_library_is_one_line_in_the_log(caplog):
    caplog.set_level(logging.INFO)
    assert nvml.load("libnvidia-ml-of-nowhere.so.1") is None
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "no NVIDIA GPUs are measured" in caplog.text
