"""Every metric, in one table: what it is called, its unit and kind, where it is read, and what peers call it.

A reading is keyed by its series: the bare name, or the name with labels in Prometheus' own writing
(`core_cpu_seconds_total{core="3"}`). Outside, a job's metrics are called `oarlock_job_…`, a node's `oarlock_node_…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

COUNTER, GAUGE = "counter", "gauge"
JOB, NODE = "job", "node"


class Metric(NamedTuple):
    """One thing that is measured. `source` is the switch that turns it on; `files` says where the number comes from."""

    scope: str
    source: str
    name: str
    kind: str
    unit: str
    help: str
    files: str
    labels: tuple[str, ...] = ()
    peers: Mapping[str, str] = {}

    @property
    def full_name(self) -> str:
        """Give the name the world sees."""
        return f"oarlock_{self.scope}_{self.name}"


_UNITS = ("seconds", "bytes", "joules", "watts", "celsius", "ratio")


def series(name: str, **labels: str) -> str:
    """Give the key of a reading. Labels stand in the order in which they are given."""
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def split(key: str) -> tuple[str, str]:
    """Cut a series into its name and its labels as they are written (without braces)."""
    name, _, inside = key.partition("{")
    return name, inside[:-1]


def by_name(metrics: Iterable[Metric]) -> dict[tuple[str, str], Metric]:
    """Index metrics by scope and name."""
    return {(metric.scope, metric.name): metric for metric in metrics}


def unit_of(name: str) -> str:
    """Read the unit out of a metric's name; what is merely counted has the unit 1."""
    parts = name.split("_")
    return next((part for part in reversed(parts) if part in _UNITS), "1")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _metric(scope: str, source: str, name: str, help_: str, files: str, labels: str = "", **peers: str) -> Metric:
    """A row of the table: unit and kind are in the name already."""
    kind = COUNTER if name.endswith("_total") else GAUGE
    return Metric(scope, source, name, kind, unit_of(name), help_, files, tuple(labels.split()), peers)
