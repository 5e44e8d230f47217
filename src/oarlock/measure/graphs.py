"""What the graphs of a recorded job show: curves by node, counters as rates, and the scales of axes. Draws nothing."""

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Points = Sequence[tuple[float, float]]
"""Seconds since the first value, and a value; oldest first."""

_SITE = "site_"
_TITLES = {
    "cpu_seconds_total": ("cpu", "CPUs in use", ""),
    "memory_usage_bytes": ("memory", "Memory, page cache included", "B"),
    "memory_anonymous_bytes": ("memory_own", "Memory of its own (heap, stacks)", "B"),
    "memory_cache_bytes": ("memory_cache", "Page cache", "B"),
    "read_bytes_total": ("read", "Read from storage", "B/s"),
    "written_bytes_total": ("written", "Written to storage", "B/s"),
    "tasks": ("tasks", "Processes and threads", ""),
}
_LIMITS = {"cpu_seconds_total": "cpus", "memory_usage_bytes": "memory_limit_bytes"}
_STEPS = (1, 2, 2.5, 5, 10)
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400)
_MOST_FRAMES = 60
_SMALLEST = 1e-6  # a scale of nothing but zeros still has lines
_FAR = 3.0  # times the largest value


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph: one curve a node; `limit` is what each node may use, where it is the same on all."""

    file: str
    title: str
    unit: str  # `B`, `B/s`, or nothing for what is counted
    curves: Mapping[str, Points]
    limit: float | None = None

    @property
    def top(self) -> float:
        """The largest value that has to fit: the limit as well, unless it is so far that the curves would lie flat."""
        return max(self._highest, self.limit or 0.0) if self.shows_limit else self._highest

    @property
    def shows_limit(self) -> bool:
        """Whether the limit is near enough to be drawn."""
        return self.limit is not None and self.limit <= _FAR * self._highest

    @property
    def _highest(self) -> float:
        return max((value for points in self.curves.values() for _, value in points), default=0.0)

    @property
    def seconds(self) -> float:
        """The time from the first value to the last."""
        return max((points[-1][0] for points in self.curves.values() if points), default=0.0)


@dataclass(frozen=True, slots=True)
class RecordedGraphs:
    """All graphs of a job, and what the animation shows: the curves of CPU and memory."""

    job_id: int
    heading: str
    graphs: tuple[Graph, ...]
    animated: tuple[Graph, ...] = field(default=())

    def frames(self) -> list[float]:
        """Return the instants that the animation shows, in seconds."""
        length = max((graph.seconds for graph in self.animated), default=0.0)
        count = max(
            2, min(_MOST_FRAMES, 1 + max((len(p) for g in self.animated for p in g.curves.values()), default=0))
        )
        return [length * frame / (count - 1) for frame in range(count)]


def read_graphs(recorded: Mapping[str, Any]) -> RecordedGraphs:
    """Make graphs of what the server answers for a job (`jobs.monitoring`)."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for curve in recorded["curves"]:
        curves.setdefault(curve["metric"], {})[curve["node"]] = [(at, value) for at, value in curve["points"]]
    begin = min(points[0][0] for by_node in curves.values() for points in by_node.values())
    graphs = [
        _graph(metric, curves, begin)
        for metric in [*_TITLES, *sorted(name for name in curves if name.startswith(_SITE))]
        if metric in curves
    ]
    drawn = tuple(graph for graph in graphs if any(graph.curves.values()))
    name = f" ({recorded['name']})" if recorded["name"] else ""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin))
    heading = f"Job {recorded['job_id']}{name}, {recorded['state']}, recorded since {since}"
    animated = tuple(graph for graph in drawn if graph.file in {"cpu", "memory"}) or drawn[:1]
    return RecordedGraphs(recorded["job_id"], heading, drawn, animated)


def _graph(metric: str, curves: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], begin: int) -> Graph:
    rate = metric.endswith("_total")
    name = metric.removeprefix(_SITE)
    unit = "B" if "bytes" in name.split("_") else ""
    usual = (metric, name.replace("_", " "), f"{unit}/s" if rate and unit else unit)
    file, title, unit = _TITLES.get(metric, usual)
    by_node = {
        node: (_rates if rate else list)([(float(at - begin), value) for at, value in points])
        for node, points in sorted(curves[metric].items(), key=lambda row: by_number(row[0]))
    }
    return Graph(file, title, unit, by_node, _limit(curves.get(_LIMITS.get(metric, ""), {})))


def by_number(node: str) -> list[tuple[int, str]]:
    """Return a key that sorts node2 before node10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", node)]


def _rates(points: Points) -> Points:
    """Return how fast a counter grew between two values; one that began again says nothing."""
    return [
        (later, (after - before) / (later - earlier))
        for (earlier, before), (later, after) in pairwise(points)
        if later > earlier and after >= before
    ]


def _limit(by_node: Mapping[str, Sequence[tuple[int, float]]]) -> float | None:
    limits = {value for points in by_node.values() for _, value in points}
    return limits.pop() if len(limits) == 1 else None


def value_at(points: Points, instant: float) -> float | None:
    """Return the last value of a curve at an instant; `None` before the first."""
    last = None
    for at, value in points:
        if at > instant:
            break
        last = value
    return last


def mean(curves: Iterable[Points]) -> Points:
    """Return the mean of curves at the instants of all of them."""
    listed = [points for points in curves if points]
    instants = sorted({at for points in listed for at, _ in points})
    means = []
    for instant in instants:
        values = [value for points in listed if (value := value_at(points, instant)) is not None]
        means.append((instant, sum(values) / len(values)))
    return means


def ticks(top: float, unit: str) -> list[float]:
    """Return the values at the lines of a scale from 0 to beyond `top`: four to six round ones."""
    size = 1024.0 ** _exponent(top) if unit.startswith("B") else 1.0
    raw = max(top / size, _SMALLEST) / 4
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(number for number in _STEPS if number * magnitude >= raw * 0.999) * magnitude * size
    return [step * place for place in range(max(1, math.ceil(top / step - 1e-9)) + 1)]


def time_ticks(seconds: float) -> list[int]:
    """Return the instants at the lines of a time axis, in seconds."""
    step = next((step for step in _TIME_STEPS if seconds / step <= 8), _TIME_STEPS[-1] * math.ceil(seconds / 691200))
    return list(range(0, int(seconds) + 1, step))


def _exponent(value: float) -> int:
    return max(0, min(5, int(math.log2(value) // 10))) if value >= 1 else 0


def shown(value: float, unit: str) -> str:
    """Write a value of an axis."""
    if not unit:
        return f"{value:,.4g}"
    exponent = _exponent(value)
    prefix = ("", "Ki", "Mi", "Gi", "Ti", "Pi")[exponent]
    return f"{value / 1024**exponent:.4g} {prefix}{unit}"


def clock(seconds: float) -> str:
    """Write a time since the beginning: `0:05`, `1:02:03`."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
