"""NVIDIA's finer counters of a GPU (GPM, from Hopper on): which of its parts worked, and what passed over its links."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from oarlock.node.sources.files import Values

_VERSION = 1
_PERCENT, _MEBI = 100, 1 << 20
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
