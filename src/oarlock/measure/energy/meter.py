"""How much energy a node took between two of its samples, by the best meter that it has.

| method | what is read |
| --- | --- |
| `controller` | watts of the management controller, by Redfish or else IPMI: the whole machine |
| `platform` | the platform's own counter (RAPL `psys`), or an ACPI power meter |
| `rapl` | packages and memory, with the GPUs added; core and uncore are inside their package and never added |
| `configured` | what the administrator wrote for an idle and a busy node |

Counters are believed by their difference, watts by the mean of both ends. A counter that fell, or a hole that is longer
than `longest` seconds, is not measured: unknown is never zero.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from oarlock.node.sources.probe import split

CONTROLLER, PLATFORM, RAPL, CONFIGURED = "controller", "platform", "rapl", "configured"
METHODS = (CONTROLLER, PLATFORM, RAPL, CONFIGURED)

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_IDLE_MODES = {"idle", "iowait"}
_MOST_WATTS = 1e6  # of one node; what says more is no meter

Values = Mapping[str, float]


class ConfiguredWatts(NamedTuple):
    """What a node draws when idle, and when all of its cores are busy."""

    idle: float
    busy: float


class GpuReading(NamedTuple):
    """A GPU: its energy counter where it has one, and its power."""

    joules: float | None
    watts: float | None


class NodeReading(NamedTuple):
    """What a sample says about power. `watts` and `counters` are by method; a method has one of them."""

    at: float
    watts: dict[str, float]
    counters: dict[str, dict[str, float]]
    gpus: dict[str, GpuReading]
    busy_seconds: float | None = None
    all_seconds: float | None = None
    cores: int = 0  # 0: not told


class MeteredEnergy(NamedTuple):
    """The energy of a node between two readings, in joules. That of its GPUs, by uuid, is part of the total."""

    method: str
    seconds: float
    total: float
    gpus: dict[str, float]


@lru_cache(maxsize=20_000)
def labels_of(series: str) -> tuple[str, Mapping[str, str]]:
    """Split a series into its name and its labels. The answer is shared: the names of a node come with each sample."""
    name, inside = split(series)
    return name, {label: value.replace('\\"', '"').replace("\\\\", "\\") for label, value in _LABEL.findall(inside)}


def read_node(at: float, values: Values) -> NodeReading:
    """Read what a node's values say about power."""
    reading = NodeReading(at, {}, {}, {})
    controllers: dict[str, float] = {}
    cores: set[str] = set()
    busy: list[float] = []
    all_modes: list[float] = []
    for series, value in values.items():
        name, labels = labels_of(series)
        if name == "power_watts":
            meter = labels.get("meter", "")
            controllers[meter] = controllers.get(meter, 0.0) + value
        elif name == "rapl_energy_joules_total":
            _put_zone(reading, labels, value)
        elif name == "sensor_power_watts" and labels.get("chip", "").startswith("power_meter"):
            reading.watts[PLATFORM] = reading.watts.get(PLATFORM, 0.0) + value
        elif name == "cpu_seconds_total" and labels.get("mode"):
            all_modes.append(value)
            busy += [] if labels["mode"] in _IDLE_MODES else [value]
        elif name == "core_cpu_seconds_total":
            cores.add(labels.get("core", ""))
    if controllers:
        reading.watts[CONTROLLER] = controllers.get("redfish", next(iter(controllers.values())))
    reading.gpus.update(read_gpus(values))
    reading = reading._replace(cores=len(cores))
    return reading._replace(busy_seconds=sum(busy), all_seconds=sum(all_modes)) if all_modes else reading


def read_gpus(values: Values) -> dict[str, GpuReading]:
    """Read the GPUs among the values of a node or a job, by uuid."""
    gpus: dict[str, GpuReading] = {}
    for series, value in values.items():
        if not series.startswith(("gpu_energy_joules_total", "gpu_power_watts")):
            continue
        name, labels = labels_of(series)
        uuid = labels.get("uuid") or labels.get("gpu", "")
        gpu = gpus.get(uuid, GpuReading(None, None))
        gpus[uuid] = gpu._replace(joules=value) if name.startswith("gpu_energy") else gpu._replace(watts=value)
    return gpus


def _put_zone(reading: NodeReading, labels: Mapping[str, str], joules: float) -> None:
    domain = labels.get("domain", "")
    if domain == "psys":
        reading.counters.setdefault(PLATFORM, {})[labels.get("zone", "")] = joules
    elif domain in {"package", "dram"}:
        reading.counters.setdefault(RAPL, {})[labels.get("zone", "")] = joules


def measure(
    before: NodeReading, after: NodeReading, *, longest: float, configured: ConfiguredWatts | None = None
) -> MeteredEnergy | None:
    """Return the energy between two readings by the best method that both have; None if there is none."""
    seconds = after.at - before.at
    if not 0 < seconds <= longest:
        return None
    gpus = gpu_joules(before, after, seconds)
    for method in METHODS:
        total = _joules(method, before, after, seconds, configured)
        if total is None or total > _MOST_WATTS * seconds:
            continue
        if method == RAPL:
            total += sum(gpus.values())
        return MeteredEnergy(method, seconds, total, gpus)
    return None


def _joules(
    method: str, before: NodeReading, after: NodeReading, seconds: float, configured: ConfiguredWatts | None
) -> float | None:
    if method == CONFIGURED:
        return None if configured is None else _configured_joules(before, after, seconds, configured)
    if method in before.watts and method in after.watts:
        return _trapezoid(before.watts[method], after.watts[method], seconds)
    first, last = before.counters.get(method), after.counters.get(method)
    if not first or not last or first.keys() != last.keys():
        return None
    used = [last[zone] - first[zone] for zone in last]
    return sum(used) if all(joules >= 0 for joules in used) else None


def _trapezoid(first: float, last: float, seconds: float) -> float | None:
    return (first + last) / 2 * seconds if first >= 0 and last >= 0 else None


def _configured_joules(
    before: NodeReading, after: NodeReading, seconds: float, configured: ConfiguredWatts
) -> float | None:
    """Return what was written for this load; None where the load is not known."""
    if None in {before.busy_seconds, before.all_seconds, after.busy_seconds, after.all_seconds}:
        return None
    elapsed = (after.all_seconds or 0.0) - (before.all_seconds or 0.0)
    busy = (after.busy_seconds or 0.0) - (before.busy_seconds or 0.0)
    if elapsed <= 0 or busy < 0:
        return None
    load = min(busy / elapsed, 1.0)
    return (configured.idle + (configured.busy - configured.idle) * load) * seconds


def gpu_joules(before: NodeReading, after: NodeReading, seconds: float) -> dict[str, float]:
    """Return the energy of each GPU between two readings, by uuid; of those that both have."""
    used = {}
    for uuid, last in after.gpus.items():
        first = before.gpus.get(uuid)
        joules = None if first is None else _one_gpu(first, last, seconds)
        if joules is not None and joules <= _MOST_WATTS * seconds:
            used[uuid] = joules
    return used


def _one_gpu(first: GpuReading, last: GpuReading, seconds: float) -> float | None:
    if first.joules is not None and last.joules is not None and last.joules >= first.joules:
        return last.joules - first.joules
    if first.watts is not None and last.watts is not None:
        return _trapezoid(first.watts, last.watts, seconds)
    return None


def count_cores(before: NodeReading, after: NodeReading) -> int | None:
    """Return how many cores a node has: those it names, or by how fast its CPU time of all modes grows."""
    if after.cores or before.cores:
        return after.cores or before.cores
    if before.all_seconds is None or after.all_seconds is None or after.at <= before.at:
        return None
    return max(round((after.all_seconds - before.all_seconds) / (after.at - before.at)), 1)
