"""GPUs of a job: harmless devices in their place, in a real devices cgroup."""

import os
import stat
from pathlib import Path

import pytest

from oarlock.store.queries.cluster import properties, resources
from tests.bed import needs_root, needs_v1
from tests.e2e.instance import instance

pytestmark = [needs_root, needs_v1]

_LIKE = ("/dev/full", "/dev/zero", "/dev/random")


@pytest.fixture
def gpus(workspace, two_users):
    """An instance with one node of three GPUs, each with a core of its own."""
    for number, path in enumerate(_LIKE):
        device = Path(path).stat().st_rdev
        try:
            os.mknod(workspace / f"gpu{number}", stat.S_IFCHR | 0o666, device)
        except PermissionError:
            pytest.skip("devices cannot be made here")
        (workspace / f"gpu{number}").chmod(0o666)
    device = {"JOB_GPU_DEVICE": f"{workspace}/gpu%gpu%"}
    with instance(workspace, two_users[0], f"g{os.getpid()}n", nodes=1, cores=3, more=device) as made:
        made.database.write(_number)
        yield made


def _number(tx):
    properties.add(tx, "gpudevice", int)
    for number in range(3):
        resources.set_properties(tx, [number + 1], {"gpudevice": number}, at=1)


def test_a_job_opens_its_own_gpus_and_no_others(gpus, workspace):
    tries = "; ".join(f"(: < {workspace}/gpu{n}) 2> refused && echo {n}" for n in range(3))
    command = f"{tries}; echo cuda $CUDA_VISIBLE_DEVICES; echo gpus $OAR_JOB_GPUS"
    jobs = gpus.submit_many([f"{command}; sleep 1"] * 3)
    pair = gpus.submit(command, "/core=2,walltime=1", after=tuple(jobs))  # all three are free then
    gpus.start()
    gpus.until(gpus.all_over)
    told = [(gpus.home / f"OAR.{job}.stdout").read_text().splitlines() for job in (*jobs, pair)]
    assert told[:3] == [[str(n), "cuda 0", f"gpus {n}"] for n in range(3)]
    assert told[3] == ["0", "1", "cuda 0,1", "gpus 0,1"]
