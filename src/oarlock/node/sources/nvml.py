"""NVIDIA's management library (NVML), by ctypes: what it says about each GPU."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from oarlock.node.sources.files import Values
from oarlock.node.sources.gpm import Gpm

log = logging.getLogger(__name__)

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_TEXT_BYTES = 96
_MILLI, _PERCENT = 1e3, 100
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

    def __init__(self, library: str = LIBRARY) -> None:
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


def load(library: str = LIBRARY) -> Nvml | None:
    """Load the library; None, with one log line, where there is no NVIDIA driver."""
    try:
        return Nvml(library)
    except OSError as error:
        log.info("no NVIDIA GPUs are measured: %s", error)
        return None
