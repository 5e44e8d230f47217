"""Plots of jobs and nodes: which curves stand together, in which unit, and what is good."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from oarlock.insight.drawing.time_plot import PlotLine, TimePlot
from oarlock.measure.collect.series import CurveView, SeriesView
from oarlock.model.errors import NotSignedIn, OarlockError
from oarlock.web.pages.parts.view import View

GIB, MIB = 1 << 30, 1 << 20
_MOST_LINES = 8
_GAP = 3.0
_CURVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PlotKind:
    """A group of curves: its metrics with the words of their lines, the unit, and half a sentence on how good looks."""

    id: str
    title: str
    unit: str
    metrics: Mapping[str, str]
    divisor: float = 1.0
    good: str = ""
    colour: int = 0
    labels: str = ""  # a line for each value of this label


OF_JOBS = (
    PlotKind("cpu", "Cores at work", "cores", {"cpu_seconds_total": "cores"}, good="good: near the dashed line"),
    PlotKind(
        "memory", "Memory, GiB", "GiB", {"memory_anonymous_bytes": "own", "memory_cache_bytes": "page cache"}, GIB,
        "good: under the line, not far", 2,
    ),
    PlotKind(
        "gpu", "GPUs, %", "%", {"gpu_utilization_ratio": "GPU"}, 0.01, "good: near 100", labels="gpu",
    ),
    PlotKind(
        "io", "Read and written, MiB/s", "MiB/s", {"read_bytes_total": "read", "written_bytes_total": "written"}, MIB,
    ),
)  # fmt: skip
OF_NODES = (
    PlotKind("cpu", "Load", "threads", {"load_1min": "load"}, good="good: near the number of cores"),
    PlotKind("memory", "Memory available, GiB", "GiB", {"meminfo_mem_available_bytes": "available"}, GIB, colour=2),
    PlotKind("power", "Power, W", "W", {"power_watts": "power"}, colour=6),
    PlotKind(
        "disk",
        "Disks, MiB/s",
        "MiB/s",
        {"disk_read_bytes_total": "read ", "disk_written_bytes_total": "written "},
        MIB,
        labels="device",
    ),
    PlotKind(
        "network",
        "Network, MiB/s",
        "MiB/s",
        {"network_received_bytes_total": "received ", "network_transmitted_bytes_total": "sent "},
        MIB,
        labels="interface",
    ),
)


_DISK, _NETWORK = (kind for kind in OF_NODES if kind.id in {"disk", "network"})
OF_NODES_OF_JOBS = (
    replace(_DISK, id="node-disk", title="Disks of its nodes, MiB/s"),
    replace(_NETWORK, id="node-network", title="Network of its nodes, MiB/s"),
    PlotKind(
        "node-room", "Room on disks of its nodes, GiB", "GiB", {"filesystem_available_bytes": "free on "}, GIB,
        labels="mountpoint",
    ),
)  # fmt: skip
"""What the nodes of a job did meanwhile, whoever did it: it may not have been alone there."""
_LOOPBACK = "lo"


async def ask_series(view: View, verb: str, **query: Any) -> SeriesView | str:
    """Ask for curves; where there are some and they cannot be shown, return the sentence that says why.

    It is empty where nothing was measured, and where the caller may not see it. `NotSignedIn` without a caller.
    """
    try:
        async with asyncio.timeout(_CURVE_SECONDS):
            series: SeriesView | None = await view.ask_if_allowed(verb, **query)
    except TimeoutError:
        return "The collector has not answered within 2 s; the page shows the curves when it is loaded again."
    except NotSignedIn:
        raise
    except OarlockError as refused:
        return str(refused)
    return series or ""


def plots_of(
    kinds: Iterable[PlotKind], series: SeriesView, limits: Mapping[str, tuple[float, str]] | None = None
) -> list[TimePlot]:
    """Return the plots of which something was measured. `limits`: what was asked for, in base units, with its words."""
    made = (_plot(kind, series, (limits or {}).get(kind.id)) for kind in map(partial(_in_small_unit, series), kinds))
    return [plot for plot in made if plot is not None]


def together(name: str, title: str, plots: Mapping[str, TimePlot]) -> TimePlot | None:
    """Return the first lines of several plots in one, each under the name of its plot; None without any."""
    if not plots:
        return None
    first = max(plots.values(), key=lambda plot: len(plot.times))
    lines = [PlotLine(word, _near(first.times, plot.times, plot.lines[0].values)) for word, plot in plots.items()]
    return TimePlot(id=name, title=title, unit=first.unit, times=first.times, lines=lines[:_MOST_LINES])


def _near(times: Sequence[float], own: Sequence[float], values: Sequence[float | None]) -> list[float | None]:
    """Return values at other instants: the one before each, if it is near enough."""
    far = _GAP * max((times[-1] - times[0]) / max(len(times) - 1, 1), 1.0)
    placed: list[float | None] = []
    at = 0
    for instant in times:
        while at + 1 < len(own) and own[at + 1] <= instant:
            at += 1
        placed.append(values[at] if own and abs(own[at] - instant) <= far else None)
    return placed


def _in_small_unit(series: SeriesView, kind: PlotKind) -> PlotKind:
    """Return a plot of memory in MiB where all of it is less than a GiB: its curves would lie flat."""
    if kind.divisor != GIB:
        return kind
    curves = [curve for curve in series.series if curve.metric in kind.metrics]
    highest = max((point[3] or 0.0 for curve in curves for point in curve.points), default=0.0)
    if highest >= GIB:
        return kind
    return replace(kind, divisor=MIB, unit="MiB", title=kind.title.replace("GiB", "MiB"))


def _plot(kind: PlotKind, series: SeriesView, limit: tuple[float, str] | None) -> TimePlot | None:
    curves = [curve for curve in series.series if curve.metric in kind.metrics]
    grouped = _grouped(kind, curves)
    times = _times(curves)
    if not grouped or len(times) < 2:
        return None
    # A curve of many nodes together has their mean: the line is what all of them have, as where each has its own.
    divisor = kind.divisor if kind.labels else kind.divisor / max(series.joined_nodes, 1)
    lines = [PlotLine(name, _summed(times, group, divisor)) for name, group in grouped.items()]
    if not any(value for line in lines for value in line.values):
        return None
    return TimePlot(
        id=kind.id,
        title=kind.title,
        unit=kind.unit,
        good=kind.good,
        times=times,
        lines=lines[:_MOST_LINES],
        limit=limit[0] / kind.divisor if limit else None,
        limit_words=limit[1] if limit else "",
        colour=kind.colour,
    )


def _grouped(kind: PlotKind, curves: Sequence[CurveView]) -> dict[str, list[CurveView]]:
    """Return the curves of each line: those of all nodes together, or one a device."""
    groups: defaultdict[str, list[CurveView]] = defaultdict(list)
    for curve in curves:
        name = _label(curve.series, kind.labels) if kind.labels else ""
        if name == _LOOPBACK:
            continue
        groups[f"{kind.metrics[curve.metric]}{name}"].append(curve)
    return dict(sorted(groups.items(), key=lambda item: _rank(kind, item[0])))


def _rank(kind: PlotKind, name: str) -> tuple[int, str]:
    words = list(kind.metrics.values())
    return next((at for at, word in enumerate(words) if name.startswith(word)), len(words)), name


def _label(series: str, label: str) -> str:
    _, _, rest = series.partition(f'{label}="')
    return rest.partition('"')[0]


def _times(curves: Sequence[CurveView]) -> list[float]:
    """Return the instants of the curve with the most points: those of the other nodes are near."""
    return [point[0] for point in max(curves, key=lambda curve: len(curve.points)).points] if curves else []


def _summed(times: Sequence[float], curves: Sequence[CurveView], divisor: float) -> list[float | None]:
    """Add up the curves of all nodes; where one has no value near an instant it does not count there."""
    steps = sorted(later - earlier for earlier, later in pairwise(times))
    near = _GAP * steps[len(steps) // 2] if steps else 0.0
    sums: list[float | None] = [None] * len(times)
    for curve in curves:
        place = 0
        points = curve.points
        for at, instant in enumerate(times):
            while place + 1 < len(points) and points[place + 1][0] <= instant:
                place += 1
            value = points[place][2] if points and abs(points[place][0] - instant) <= near else None
            if value is not None:
                sums[at] = (sums[at] or 0.0) + value / divisor
    return sums
