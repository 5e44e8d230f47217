import logging

import pytest

from oarlock.node.sources import gpu
from oarlock.node.sources.gpu import JobGpuSource, NodeGpuSource, NvidiaGpus
from tests.monitoring import job_at, recorded
from tests.nvml_stub import build


@pytest.fixture(scope="session")
def stub(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(stub):
    made = NvidiaGpus(gpu.load_nvml(stub))
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


@pytest.mark.parametrize(
    "environ", ["SLURM_JOB_GPUS=1\0", "OAR_JOB_GPUS=1\0CUDA_VISIBLE_DEVICES=0\0", "CUDA_VISIBLE_DEVICES=GPU-1\0X=1\0"]
)
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
    assert gpu.load_nvml("libnvidia-ml-of-nowhere.so.1") is None
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "no NVIDIA GPUs are measured" in caplog.text


def test_newer_cards_report_which_of_their_parts_worked(tmp_path):
    library = gpu.load_nvml(build(tmp_path, finer=True))
    first, second = library.gpus
    try:
        assert not any("sm_occupancy" in name for name in library.read(first)), "there is nothing before it"
        finer = {name: value for name, value in library.read(first).items() if name in FINER}
        assert finer == FINER
        assert library.read(second).keys().isdisjoint(FINER)
    finally:
        library.close()


FINER = {
    "gpu_sm_occupancy_ratio": 0.03, "gpu_tensor_ratio": 0.05, "gpu_fp64_ratio": 0.11,
    "gpu_fp32_ratio": 0.12, "gpu_fp16_ratio": 0.13,
    "gpu_pcie_transmitted_bytes_per_second": 20 << 20, "gpu_pcie_received_bytes_per_second": 21 << 20,
    "gpu_nvlink_received_bytes_per_second": 60 << 20,
}  # fmt: skip
