"""Every metric that is measured: its name, unit and kind, where it is read and what other programs call it."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from oarlock.node.sources.host import machine
from oarlock.node.sources.job import perf


class MetricKind(StrEnum):
    """A counter only grows (a rate is its derivative); a gauge is what it is now."""

    COUNTER = "counter"
    GAUGE = "gauge"


_UNITS = ("seconds", "bytes", "joules", "watts", "celsius", "ratio")
_COUNT = "1"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric. `source` is the switch that turns it on; `peers` maps a program to its name for the same thing."""

    scope: str  # `job` or `node`
    source: str
    name: str  # as it stands in readings
    help: str
    files: str
    labels: tuple[str, ...] = ()
    peers: Mapping[str, str] = field(default_factory=dict)
    own: bool = True  # false: read for names of other programs only, ours are without it

    @property
    def full_name(self) -> str:
        """Return the name as exported."""
        return f"oarlock_{self.scope}_{self.name}"

    @property
    def kind(self) -> MetricKind:
        """Return the kind: names of counters end in `_total`."""
        return MetricKind.COUNTER if self.name.endswith("_total") else MetricKind.GAUGE

    @property
    def unit(self) -> str:
        """Read the unit out of the name; `1` for what is merely counted."""
        return next((word for word in reversed(self.name.split("_")) if word in _UNITS), _COUNT)


@cache
def catalogue() -> Mapping[tuple[str, str], MetricDefinition]:
    """Return all metrics by scope and name, in the order of the reference page."""
    tables = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text())
    everything = [*_written(tables), *_events(), *_memory_of_the_node()]
    return {(metric.scope, metric.name): metric for metric in everything}


def _written(tables: Mapping[str, Any]) -> Iterator[MetricDefinition]:
    for scope, sources in tables.items():
        for source, metrics in sources.items():
            for name, row in metrics.items():
                labels, peers = tuple(row.get("labels", ())), row.get("peers", {})
                yield MetricDefinition(
                    scope, source, name, row["help"], row["files"], labels, peers, row.get("own", True)
                )


def _events() -> Iterator[MetricDefinition]:
    for event, (kind, code) in perf.EVENTS.items():
        what = f"Event {event.replace('_', ' ')} counted for the job" + (", as time." if event in perf.CLOCKS else ".")
        peers = {} if event in perf.BEYOND_COLMET else {"colmet": event}
        yield MetricDefinition(
            "job", "perf", perf.metric(event), what, f"perf_event_open type {kind}, config {code:#x}", peers=peers
        )


def _memory_of_the_node() -> Iterator[MetricDefinition]:
    for key in machine.MEMINFO:
        peers = {"colmet": f"meminfo_{key.lower()} (kB)"}
        yield MetricDefinition(
            "node", "machine", machine.meminfo_metric(key), f"{key} of the node.", "/proc/meminfo", peers=peers
        )
