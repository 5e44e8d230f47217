"""GPUs of the node and of each job that has some: what NVIDIA's management library (NVML, GPM) says, by ctypes."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oarlock.node.sources.files import Values, open_kept, read_list, read_seldom
from oarlock.node.sources.probe import Probe, ProbedJob, series

_VERSION = 1
_MILLI, _PERCENT, _MEBI = 1e3, 100, 1 << 20
METRICS: Mapping[int, tuple[str, float]] = {
    3: ("gpu_sm_occupancy_ratio", 1 / _PERCENT),
    5: ("gpu_tensor_ratio", 1 / _PERCENT),
    11: ("gpu_fp64_ratio", 1 / _PERCENT),
    12: ("gpu_fp32_ratio", 1 / _PERCENT),
    13: ("gpu_fp16_ratio", 1 / _PERCENT),
    20: ("gpu_pcie_transmitted_bytes_per_second", _MEBI),
    21: ("gpu_pcie_received_bytes_per_second", _MEBI),
    60: ("gpu_nvlink_received_bytes_per_second", _MEBI),
    61: ("gpu_nvlink_transmitted_bytes_per_second", _MEBI),
}
"""The library's number of a metric → our name, and its unit in ours."""


class _Metric(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint), ("result", ctypes.c_int), ("value", ctypes.c_double),
        ("short_name", ctypes.c_char_p), ("long_name", ctypes.c_char_p), ("unit", ctypes.c_char_p),
    ]  # fmt: skip


class _Question(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint), ("count", ctypes.c_uint), ("before", ctypes.c_void_p), ("now", ctypes.c_void_p),
        ("metrics", _Metric * 512),
    ]  # fmt: skip


class _Support(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("supported", ctypes.c_uint)]


class Gpm:
    """The counters of one GPU. They are of the time between two samples, so the first reading is empty.

    `call` calls a function of the library by its name, and returns whether it succeeded.
    """

    def __init__(self, call: Callable[..., bool], handle: Any) -> None:
        self._call, self._handle = call, handle
        self._samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        self._has_sample = False
        support = _Support(_VERSION, 0)
        answered = call("nvmlGpmQueryDeviceSupport", handle, ctypes.byref(support))
        self._usable = answered and bool(support.supported) and all(
            call("nvmlGpmSampleAlloc", ctypes.byref(sample)) for sample in self._samples
        )  # fmt: skip

    def read(self) -> Values:
        """Return what was counted since the last reading, in base units; empty where the GPU has no such counters."""
        if not self._usable or not self._call("nvmlGpmSampleGet", self._handle, self._samples[1]):
            return {}
        had_sample, self._has_sample = self._has_sample, True
        values = self._between() if had_sample else {}
        self._samples.reverse()
        return values

    def _between(self) -> Values:
        question = _Question(_VERSION, len(METRICS), self._samples[0], self._samples[1])
        for at, number in enumerate(METRICS):
            question.metrics[at].id = number
        if not self._call("nvmlGpmMetricsGet", ctypes.byref(question)):
            return {}
        metrics = [question.metrics[at] for at in range(len(METRICS))]
        return {METRICS[metric.id][0]: metric.value * METRICS[metric.id][1] for metric in metrics if metric.result == 0}

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples if self._usable else ():
            self._call("nvmlGpmSampleFree", sample)


log = logging.getLogger(__name__)

NVML_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_TEXT_BYTES = 96
_TEMPERATURE_OF_THE_GPU = 0
_MANY_PROCESSES = 128


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]  # fmt: skip


class Gpu(NamedTuple):
    """One GPU: `number` is its place in NVML's list, `minor` the number of its device file."""

    number: int
    minor: int
    uuid: str
    type: str
    handle: Any


class Nvml:
    """The library, loaded and started."""

    def __init__(self, library: str = NVML_LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        self._must("nvmlInit_v2")
        count = self._number("nvmlDeviceGetCount_v2", ctypes.c_uint)
        self.gpus = [self._gpu(index) for index in range(count or 0)]
        self._finer = {gpu.number: Gpm(self._call, gpu.handle) for gpu in self.gpus}

    def read(self, gpu: Gpu) -> Values:
        """Read one GPU, in base units. What a GPU or its driver does not tell is absent."""
        values: Values = {}
        memory, used = _Memory(), _Utilization()
        if self._call("nvmlDeviceGetMemoryInfo", gpu.handle, ctypes.byref(memory)):
            values["gpu_memory_total_bytes"], values["gpu_memory_used_bytes"] = memory.total, memory.used
        if self._call("nvmlDeviceGetUtilizationRates", gpu.handle, ctypes.byref(used)):
            values["gpu_utilization_ratio"] = used.gpu / _PERCENT
            values["gpu_memory_utilization_ratio"] = used.memory / _PERCENT
        power = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint, gpu.handle)
        energy = self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong, gpu.handle)
        celsius = self._number("nvmlDeviceGetTemperature", ctypes.c_uint, gpu.handle, _TEMPERATURE_OF_THE_GPU)
        if power is not None:
            values["gpu_power_watts"] = power / _MILLI
        if energy is not None:
            values["gpu_energy_joules_total"] = energy / _MILLI
        if celsius is not None:
            values["gpu_temperature_celsius"] = celsius
        values.update(self._finer[gpu.number].read())
        return values

    def pids(self, gpu: Gpu) -> list[int]:
        """Return the processes that compute on a GPU."""
        count, processes = ctypes.c_uint(_MANY_PROCESSES), (_ProcessInfo * _MANY_PROCESSES)()
        done = self._call("nvmlDeviceGetComputeRunningProcesses_v3", gpu.handle, ctypes.byref(count), processes)
        return [processes[at].pid for at in range(count.value)] if done else []

    def close(self) -> None:
        """Shut the library down."""
        for finer in self._finer.values():
            finer.close()
        self._call("nvmlShutdown")

    def _gpu(self, index: int) -> Gpu:
        handle = ctypes.c_void_p()
        self._must("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        minor = self._number("nvmlDeviceGetMinorNumber", ctypes.c_uint, handle)
        uuid, name = self._text("nvmlDeviceGetUUID", handle), self._text("nvmlDeviceGetName", handle)
        return Gpu(index, index if minor is None else minor, uuid, name, handle)

    def _must(self, name: str, *arguments: Any) -> None:
        if not self._call(name, *arguments):
            raise OSError(f"{name} of the NVIDIA library failed")

    def _call(self, name: str, *arguments: Any) -> bool:
        """Call a function; false when it fails or this version of the library does not have it."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return function is not None and function(*arguments) == _SUCCESS

    def _number(self, name: str, kind: Any, *arguments: Any) -> int | None:
        value = kind()
        return value.value if self._call(name, *arguments, ctypes.byref(value)) else None

    def _text(self, name: str, handle: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(name, handle, buffer, ctypes.c_uint(_TEXT_BYTES))
        return buffer.value.decode("utf-8", "replace")


def load_nvml(library: str = NVML_LIBRARY) -> Nvml | None:
    """Load the library; None, with one log line, where there is no NVIDIA driver."""
    try:
        return Nvml(library)
    except OSError as error:
        log.info("no NVIDIA GPUs are measured: %s", error)
        return None


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
