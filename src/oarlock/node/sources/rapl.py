"""Energy of the processors (RAPL): through perf where the kernel offers it, else through powercap."""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oarlock.node.sources import perf_event
from oarlock.node.sources.files import Values, close_all, list_directory, open_kept, read_once
from oarlock.node.sources.metrics import series
from oarlock.node.sources.parse import cpu_list

log = logging.getLogger(__name__)

_MICRO = 1e6
_NUMBER_BYTES = 32
_ZONE = re.compile(r"intel-rapl(?::\d+)+")  # not intel-rapl-mmio, which counts the packages a second time
_PMU_EVENTS = {
    "energy-pkg": "package",
    "energy-cores": "core",
    "energy-gpu": "uncore",
    "energy-ram": "dram",
    "energy-psys": "psys",
}


class RaplZone(NamedTuple):
    """A part of the machine whose energy is counted. core and uncore lie inside their package: never add them."""

    path: str
    domain: str
    socket: int | None


class WrappingCounter:
    """A counter that starts again at zero after `last_value`, made to grow for ever."""

    def __init__(self, last_value: int) -> None:
        self._span = last_value + 1
        self._before = 0
        self._turns = 0

    def total(self, now: int) -> int:
        """Return the total. It must be called more often than the counter wraps."""
        if now < self._before:
            self._turns += 1
        self._before = now
        return now + self._turns * self._span


def zones(names: Mapping[str, str]) -> list[RaplZone]:
    """Read zones out of their names: `intel-rapl:0:1` → `dram`. A zone inside a package is of its socket."""
    zones_found = []
    for path in sorted(names, key=lambda path: [int(number) for number in path.split(":")[1:]]):
        outer = path.rpartition(":")[0] if path.count(":") > 1 else path
        _, _, socket = names.get(outer, "").strip().partition("package-")
        domain = "package" if names[path].startswith("package") else names[path].strip()
        zones_found.append(RaplZone(path, domain, int(socket) if socket.isdigit() else None))
    return zones_found


class RaplSource:
    """Energy of every zone that may be read; nothing, with one log line, where none may."""

    name = "rapl"

    def __init__(self, sys: str = "/sys") -> None:
        self._counters: list[_PmuCounter] | list[_PowercapCounter]
        self._counters = list(_pmu_counters(sys)) or list(_powercap_counters(sys))
        if not self._counters:
            log.info("no energy counters (RAPL) can be read here")

    def read(self, values: Values) -> None:
        """Read all zones; joules since the machine, or this program, started."""
        for counter in self._counters:
            values[counter.key] = counter.joules()

    def close(self) -> None:
        """Close all files."""
        close_all(*(counter.fd for counter in self._counters))


class _PmuCounter(NamedTuple):
    key: str
    fd: int
    scale: float

    def joules(self) -> float:
        (count,) = struct.unpack("=Q", os.read(self.fd, 8))
        return float(count * self.scale)


class _PowercapCounter(NamedTuple):
    key: str
    fd: int
    counter: WrappingCounter

    def joules(self) -> float:
        return self.counter.total(int(os.pread(self.fd, _NUMBER_BYTES, 0))) / _MICRO


def _key(zone: RaplZone) -> str:
    labels = {"zone": zone.path, "domain": zone.domain}
    if zone.socket is not None:
        labels["socket"] = str(zone.socket)
    return series("rapl_energy_joules_total", **labels)


def _powercap_counters(sys: str) -> Iterator[_PowercapCounter]:
    root = f"{sys}/class/powercap"
    names = {path: read_once(f"{root}/{path}/name") or "" for path in list_directory(root) if _ZONE.fullmatch(path)}
    for zone in zones(names):
        last = read_once(f"{root}/{zone.path}/max_energy_range_uj")
        fd = open_kept(f"{root}/{zone.path}", "energy_uj")
        if fd is not None:
            yield _PowercapCounter(_key(zone), fd, WrappingCounter(int(last) if last else 2**64 - 1))


def _pmu_counters(sys: str) -> Iterator[_PmuCounter]:
    root = f"{sys}/bus/event_source/devices/power"
    kind, mask = read_once(f"{root}/type"), read_once(f"{root}/cpumask")
    if kind is None or mask is None:
        return
    for event, domain in _PMU_EVENTS.items():
        description, scale = read_once(f"{root}/events/{event}"), read_once(f"{root}/events/{event}.scale")
        if description is None or scale is None:
            continue
        for cpu in cpu_list(mask.encode()):
            socket = int(read_once(f"{sys}/devices/system/cpu/cpu{cpu}/topology/physical_package_id") or 0)
            zone = RaplZone(event, domain, None if domain == "psys" else socket)
            fd = _open_pmu(int(kind), pmu_config(description), cpu)
            if fd is not None:
                yield _PmuCounter(_key(zone), fd, float(scale))


def pmu_config(description: str) -> int:
    """Read `event=0x02` into the number of the event."""
    return int(description.strip().partition("event=")[2].partition(",")[0], 16)


def _open_pmu(kind: int, config: int, cpu: int) -> int | None:
    try:
        return perf_event.open_event(kind, config, pid=-1, cpu=cpu, read_format=0)
    except OSError as error:
        log.info("energy cannot be read through perf: %s", error.strerror)
        return None
