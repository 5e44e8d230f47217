"""GPUs: of the node, and of each job that has some."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from oarlock.node.sources.files import Values, open_kept, read_list, read_seldom
from oarlock.node.sources.metrics import series
from oarlock.node.sources.nvml import Gpu, Nvml
from oarlock.node.sources.probe import Probe, ProbedJob

_SHARED_SECONDS = 0.1
_NVIDIA_MAJOR = "195"
_FIRST_CONTROL_MINOR = 254  # nvidia-modeset and nvidiactl: no GPUs
_ENVIRONMENT = ("OAR_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
"""Where a process says which GPUs are its own; the first that is set counts."""


class NvidiaGpus:
    """All GPUs of the node. Jobs and the node read the same GPUs within a sample, so values are cached for 0.1 s."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._read: dict[int, tuple[float, Values]] = {}

    @property
    def all(self) -> Sequence[Gpu]:
        """Return them in NVML's order."""
        return self._nvml.gpus

    def read(self, gpu: Gpu) -> Values:
        """Return a GPU's series, labelled."""
        now = time.monotonic()
        cached = self._read.get(gpu.number)
        if cached and now - cached[0] < _SHARED_SECONDS:
            return cached[1]
        labels = {"gpu": str(gpu.number), "gpu_type": gpu.type, "uuid": gpu.uuid}
        values = {series(name, **labels): value for name, value in self._nvml.read(gpu).items()}
        self._read[gpu.number] = (now, values)
        return values

    def pids(self, gpu: Gpu) -> list[int]:
        """Return the processes that compute on it."""
        return self._nvml.pids(gpu)

    def close(self) -> None:
        """Shut the library down."""
        self._nvml.close()


class NodeGpuSource:
    """Every GPU of the node."""

    name = "gpu"

    def __init__(self, gpus: NvidiaGpus) -> None:
        self._gpus = gpus

    def read(self, values: Values) -> None:
        """Read all of them."""
        for gpu in self._gpus.all:
            values.update(self._gpus.read(gpu))

    def close(self) -> None:
        """Shut the library down."""
        self._gpus.close()


class JobGpuSource:
    """The GPUs of a job: those its devices cgroup allows, else those its processes name, else those they use."""

    name = "gpu"
    controllers = frozenset({"devices"})

    def __init__(self, gpus: NvidiaGpus, proc: str = "/proc") -> None:
        self.gpus, self.proc = gpus, proc

    def open(self, job: ProbedJob) -> Probe | None:
        """A job may start to use a GPU at any time, if there is one."""
        return JobGpus(self, job) if self.gpus.all else None


class JobGpus(Probe):
    """One job's GPUs. A GPU works on while its job's processes sleep, so each sample asks."""

    __slots__ = ("_job", "_own", "_source", "_values")
    beats = True

    def __init__(self, source: JobGpuSource, job: ProbedJob) -> None:
        self._source, self._job = source, job
        self._own: list[Gpu] = []
        self._values: Values = {}

    def beat(self) -> bytes:
        """Read the GPUs that are known to be its own."""
        self._values = {}
        for gpu in self._own:
            self._values.update(self._source.gpus.read(gpu))
        return repr(self._values).encode()

    def read(self, values: Values, *, thorough: bool) -> None:
        """Find out again which GPUs are its own, now and then."""
        if thorough or not self._own:
            self._own = self._find()
            self.beat()
        values.update(self._values)

    def _find(self) -> list[Gpu]:
        everyone = self._source.gpus.all
        minors = allowed_minors(read_seldom(self._job.directories, "devices", "devices.list") or b"")
        if minors is not None:
            return [gpu for gpu in everyone if gpu.minor in minors]
        pids = _pids(self._job.process_directories)
        for pid in pids:
            named = named_gpus(_environment(self._source.proc, pid))
            if named is not None:
                return [gpu for gpu in everyone if str(gpu.number) in named or gpu.uuid in named]
        return [gpu for gpu in everyone if not pids.isdisjoint(self._source.gpus.pids(gpu))]


def allowed_minors(text: bytes) -> set[int] | None:
    """Read `devices.list`: the NVIDIA device files a job may open; None where it says nothing or allows all."""
    lines = text.decode("ascii", "replace").splitlines()
    if not lines or any(line.startswith("a ") or f"c {_NVIDIA_MAJOR}:*" in line for line in lines):
        return None
    minors = (device[1] for line in lines if (device := re.match(rf"c {_NVIDIA_MAJOR}:(\d+) ", line)))
    return {int(minor) for minor in minors if int(minor) < _FIRST_CONTROL_MINOR}


def named_gpus(environment: Mapping[str, str]) -> set[str] | None:
    """Read which GPUs a process was given, by index or by UUID; None when no variable is set."""
    for name in _ENVIRONMENT:
        if name in environment:
            return {part.strip() for part in environment[name].split(",") if part.strip()}
    return None


def _environment(proc: str, pid: int) -> dict[str, str]:
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
            return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}
    except OSError:
        return {}


def _pids(directories: Iterable[str]) -> set[int]:
    pids: set[int] = set()
    for directory in directories:
        fd = open_kept(directory, "cgroup.procs")
        if fd is not None:
            try:
                pids.update(int(pid) for pid in read_list(fd).split())
            except OSError:
                continue
            finally:
                os.close(fd)
    return pids
