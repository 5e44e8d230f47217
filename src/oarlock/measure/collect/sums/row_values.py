"""Where in a row of samples the values stand that a summary is made of. Found once for each table of names."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from oarlock.measure.collect.files.rowlog import Names
from oarlock.measure.energy.meter import labels_of

Row = Sequence[float]


class GpuPlaces(NamedTuple):
    """A GPU in a row; -1 for what it does not tell."""

    uuid: str
    model: str
    busy: int
    memory: int
    memory_total: int


class RowValues:
    """The places of a table's values. A place of -1 means that the table does not have the value."""

    __slots__ = ("anonymous", "block_read", "block_written", "cache", "calls", "cores", "cpu", "cpus", "executable_cpu",
                 "executables", "gpus", "limit", "limit_hits", "oom_kills", "open_files", "peak", "processes", "read",
                 "runnable", "scratch", "shared", "unpack", "written")  # fmt: skip

    def __init__(self, names: Names) -> None:
        self.unpack = struct.Struct(f"<{len(names)}d").unpack
        places = {name: place for place, name in enumerate(names)}

        def of(name: str) -> int:
            return places.get(name, -1)

        def all_of(name: str) -> list[int]:
            return [place for series, place in places.items() if series == name or series.startswith(f"{name}{{")]

        self.cpu, self.cpus, self.cores = of("cpu_seconds_total"), of("cpus"), all_of("core_cpu_seconds_total")
        self.anonymous, self.shared = of("memory_anonymous_bytes"), of("memory_shared_bytes")
        self.cache, self.limit = of("memory_cache_bytes"), of("memory_limit_bytes")
        self.peak, self.limit_hits = of("memory_peak_bytes"), of("memory_limit_hits_total")
        self.oom_kills, self.processes = of("memory_oom_kills_total"), of("processes")
        self.runnable = of('threads{state="running"}')
        self.open_files, self.scratch = of("open_files"), of("uses_scratch")
        self.read, self.written = of("read_bytes_total"), of("written_bytes_total")
        self.block_read, self.block_written = all_of("block_read_bytes_total"), all_of("block_written_bytes_total")
        self.calls = [place for place in (of("read_calls_total"), of("write_calls_total")) if place >= 0]
        self.executables = _by_executable(names, all_of("process_threads"))
        self.executable_cpu = _by_executable(names, all_of("process_cpu_seconds_total"))
        self.gpus = _gpus(names, all_of)


def _by_executable(names: Names, places: Sequence[int]) -> list[tuple[str, int]]:
    return [(labels_of(names[place])[1].get("exe", ""), place) for place in places]


_BUSY, _MEMORY, _MEMORY_TOTAL = "gpu_utilization_ratio", "gpu_memory_used_bytes", "gpu_memory_total_bytes"


def _gpus(names: Names, all_of: Callable[[str], list[int]]) -> list[GpuPlaces]:
    places: dict[str, dict[str, int]] = {}
    models: dict[str, str] = {}
    for metric in (_BUSY, _MEMORY, _MEMORY_TOTAL):
        for place in all_of(metric):
            labels = labels_of(names[place])[1]
            uuid = labels.get("uuid") or labels.get("gpu", "")
            models[uuid] = labels.get("gpu_type", "")
            places.setdefault(uuid, {})[metric] = place
    return [
        GpuPlaces(uuid, models[uuid], *(of_gpu.get(metric, -1) for metric in (_BUSY, _MEMORY, _MEMORY_TOTAL)))
        for uuid, of_gpu in places.items()
    ]


class NodeValues:
    """The places of what summaries need of the node itself: its traffic, and how many cores it has."""

    __slots__ = ("cores", "modes", "received", "sent", "unpack")

    def __init__(self, names: Names) -> None:
        self.unpack = struct.Struct(f"<{len(names)}d").unpack
        named = [(*labels_of(name), place) for place, name in enumerate(names)]
        self.received = [place for name, labels, place in named if name in _RECEIVED and not _is_loopback(labels)]
        self.sent = [place for name, labels, place in named if name in _SENT and not _is_loopback(labels)]
        self.modes = [place for name, labels, place in named if name == "cpu_seconds_total" and "mode" in labels]
        self.cores = len({labels.get("core") for name, labels, _ in named if name == "core_cpu_seconds_total"}) or None


_RECEIVED = {"network_received_bytes_total", "infiniband_received_bytes_total"}
_SENT = {"network_transmitted_bytes_total", "infiniband_transmitted_bytes_total"}


def _is_loopback(labels: Mapping[str, str]) -> bool:
    return labels.get("interface") == "lo"


def number_at(row: Row, place: int) -> float | None:
    """Return a value of a row; None if the row does not have it, or it is not a finite number."""
    if place < 0:
        return None
    value = row[place]
    return value if value - value == 0 else None


def sum_at(row: Row, places: Sequence[int]) -> float | None:
    """Return the sum of values of a row; None if there is none."""
    if not places:
        return None
    values = [row[place] for place in places if row[place] - row[place] == 0]
    return sum(values) if values else None
