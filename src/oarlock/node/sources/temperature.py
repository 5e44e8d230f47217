"""Temperatures, power and energy of the machine's own sensors: thermal zones and hwmon chips."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from oarlock.node.sources.files import Values, close_all, list_directory, open_kept, read_once
from oarlock.node.sources.metrics import series

_NUMBER_BYTES = 32
_HWMON = re.compile(r"(temp|power|energy)(\d+)_(input|average)")
_METRICS = {
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
    if matched is None or (matched[1], matched[3]) not in _METRICS:
        return None
    name, divisor = _METRICS[matched[1], matched[3]]
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
