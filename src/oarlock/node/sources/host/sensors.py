"""Energy, power and temperature of the machine: RAPL, thermal zones and hwmon chips, and the program for IPMI."""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.node.sources.files import Values, close_all, cpu_list, list_directory, open_kept, read_once
from oarlock.node.sources.job import perf
from oarlock.node.sources.probe import BackgroundSource, series

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
        return perf.open_event(kind, config, pid=-1, cpu=cpu, read_format=0)
    except OSError as error:
        log.info("energy cannot be read through perf: %s", error.strerror)
        return None


_HWMON = re.compile(r"(temp|power|energy)(\d+)_(input|average)")
_HWMON_METRICS = {
    ("temp", "input"): ("temperature_celsius", 1e3),
    ("power", "input"): ("sensor_power_watts", 1e6),
    ("power", "average"): ("sensor_power_average_watts", 1e6),
    ("energy", "input"): ("sensor_energy_joules_total", 1e6),
}
"""hwmon's kinds of files → our metric, and how many of their units make one of ours."""


class Sensor(NamedTuple):
    """An open file of a sensor."""

    key: str
    fd: int
    divisor: float


class TemperatureSource:
    """All sensors that are there when the program starts. A sensor that sleeps or fails is absent meanwhile."""

    name = "temperature"

    def __init__(self, sys: str = "/sys") -> None:
        self._sensors = [*_thermal_zones(sys), *_hwmon(sys)]

    def read(self, values: Values) -> None:
        """Read all sensors."""
        for sensor in self._sensors:
            try:
                values[sensor.key] = int(os.pread(sensor.fd, _NUMBER_BYTES, 0)) / sensor.divisor
            except (OSError, ValueError):
                continue

    def close(self) -> None:
        """Close all files."""
        close_all(*(sensor.fd for sensor in self._sensors))


def hwmon_metric(file: str) -> tuple[str, str, float] | None:
    """Parse the name of a chip's file: its sensor (`temp1`), its metric, and the divisor to our unit."""
    matched = _HWMON.fullmatch(file)
    if matched is None or (matched[1], matched[3]) not in _HWMON_METRICS:
        return None
    name, divisor = _HWMON_METRICS[matched[1], matched[3]]
    return matched[1] + matched[2], name, divisor


def _thermal_zones(sys: str) -> Iterator[Sensor]:
    root = f"{sys}/class/thermal"
    for zone in list_directory(root):
        fd = open_kept(f"{root}/{zone}", "temp") if zone.startswith("thermal_zone") else None
        if fd is not None:
            chip = (read_once(f"{root}/{zone}/type") or zone).strip()
            yield Sensor(series("temperature_celsius", chip=chip, sensor=zone), fd, 1e3)


def _hwmon(sys: str) -> Iterator[Sensor]:
    root = f"{sys}/class/hwmon"
    for chip in list_directory(root):
        name = (read_once(f"{root}/{chip}/name") or chip).strip()
        for file in list_directory(f"{root}/{chip}"):
            metric = hwmon_metric(file)
            fd = open_kept(f"{root}/{chip}", file) if metric else None
            if metric and fd is not None:
                label = (read_once(f"{root}/{chip}/{metric[0]}_label") or metric[0]).strip()
                yield Sensor(series(metric[1], chip=f"{name}/{chip}", sensor=label), fd, metric[2])


IPMI_COMMANDS: Sequence[Sequence[str]] = (
    ("ipmi-dcmi", "--get-system-power-statistics"),
    ("ipmitool", "dcmi", "power", "reading"),
    ("ipmiutil", "dcmi", "power"),
)
IPMI_SECONDS = 30.0
_IPMI_TIMEOUT_SECONDS = 20
_WATTS = re.compile(r"^\s*(current|instantaneous|min|max|average)[^:]*:\s*(\d+(?:\.\d+)?)\s*watts?", re.I | re.M)
_STATE = re.compile(r"(?:power measurement|power reading state is)\s*:\s*(\w[\w ]*)", re.I)
_IPMI_METRICS = {
    "current": "power_watts",
    "instantaneous": "power_watts",
    "min": "power_minimum_watts",
    "max": "power_maximum_watts",
    "average": "power_average_watts",
}


def ipmi_readings(text: str) -> Values:
    """Read what ipmi-dcmi, ipmitool or ipmiutil print; nothing when the controller does not measure now."""
    state = _STATE.search(text)
    if state and not state[1].lower().startswith("activ"):
        return {}
    return {_IPMI_METRICS[word.lower()]: float(watts) for word, watts in _WATTS.findall(text)}


def installed_ipmi() -> Sequence[str] | None:
    """Return the first of the known commands that is installed."""
    import shutil  # it is large, and few nodes are measured this way

    return next((command for command in IPMI_COMMANDS if shutil.which(command[0])), None)


class _Meter:
    """Ask a command. A controller that says zero is busy: its last good answer is repeated."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._last: Values = {}

    def __call__(self) -> Values:
        import subprocess

        ran = subprocess.run(  # noqa: S603  (a fixed list of arguments, or the administrator's own)
            self._command, capture_output=True, text=True, timeout=_IPMI_TIMEOUT_SECONDS, check=True
        )
        watts = ipmi_readings(ran.stdout)
        if watts.get("power_watts") != 0:
            self._last = {series(name, meter="ipmi"): value for name, value in watts.items()}
        return self._last


def ipmi_source(command: Sequence[str], period: float = IPMI_SECONDS) -> BackgroundSource:
    """Measure with this command, every `period` seconds."""
    return BackgroundSource("ipmi", _Meter(command), period)
