"""Pages about what a site has besides nodes: Storage and Cloud. Each is there only where its source is."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from oarlock.config import Config
from oarlock.insight.drawing.time_plot import PlotLine, TimePlot
from oarlock.measure.remote.facilities import SPANS, NamedCurve, VirtualMachine
from oarlock.model.errors import NotFound, Unavailable
from oarlock.settings.kinds import SiteExporter
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, View

_GIB, _MIB = 1 << 30, 1 << 20
_MOST_LINES = 8
_MOST_SPACE = 5000

_Plot = tuple[str, str, str, str, float]  # id, title, metric, unit, divisor
_OF_STORAGE: tuple[_Plot, ...] = (
    ("read", "Read, GiB/s", "read", "GiB/s", _GIB),
    ("written", "Written, GiB/s", "written", "GiB/s", _GIB),
    ("operations", "Metadata operations a second", "operations", "/s", 1),
)
_OF_MACHINES: tuple[_Plot, ...] = (
    ("cpu", "Cores at work", "cpus_working", "cores", 1),
    ("memory", "Memory used, GiB", "memory_used_bytes", "GiB", _GIB),
    ("disk", "Read from disks, MiB/s", "disk_read", "MiB/s", _MIB),
    ("disk-written", "Written to disks, MiB/s", "disk_written", "MiB/s", _MIB),
    ("received", "Received, MiB/s", "received", "MiB/s", _MIB),
    ("sent", "Sent, MiB/s", "sent", "MiB/s", _MIB),
)


def _has(exporter: SiteExporter) -> Callable[[Config], bool]:
    return lambda config: bool(config.prometheus_url) and exporter in config.prometheus_has


@page(
    "/storage", nav="Storage", place=76,
    source=lambda config: _has(SiteExporter.LUSTRE)(config) or bool(config.robinhood_databases),
)  # fmt: skip
async def storage(view: View) -> Answer:
    """Show what file systems do, who reads and writes on them, and who has how much there."""
    seconds = view.number("seconds", SPANS[0], most=SPANS[-1])
    seconds = seconds if seconds in SPANS else SPANS[0]
    activity, missing = await _ask(view, "storage.show", seconds=seconds)
    curves, _ = await _ask(view, "storage.series")
    space, space_missing = await _ask(view, "storage.space", group=view.query.get("group"), limit=_MOST_SPACE)
    return view.page(
        "storage.html", seconds=seconds, spans=SPANS, activity=activity, missing=missing,
        plots=_plots(_OF_STORAGE, curves.curves if curves else ()), space=space, groups=_grouped(space),
        group=view.query.get("group", "")[:200], away=[*(space.away if space else ()), *filter(None, [space_missing])],
    )  # fmt: skip


@page("/cloud", nav="Cloud", place=77, source=_has(SiteExporter.LIBVIRTD))
async def cloud(view: View) -> Answer:
    """Show the virtual machines of projects."""
    project, uuid = view.query.get("project", ""), view.query.get("vm", "")
    shown, missing = await _ask(view, "cloud.show", project=project)
    curves, _ = await _ask(view, "cloud.series", project=project, uuid=uuid)
    machines: list[VirtualMachine] = shown.machines if shown else []
    return view.page(
        "cloud.html", missing=missing, machines=machines, project=project[:200],
        machine=next((machine for machine in machines if uuid and machine.uuid == uuid), None),
        projects=_by_project(machines), plots=_plots(_OF_MACHINES, curves.curves if curves else ()),
    )  # fmt: skip


async def _ask(view: View, verb: str, **fields: Any) -> tuple[Any, str]:
    """Return an answer, or the sentence about a source that is away; neither where there is none."""
    try:
        return await view.ask(verb, **fields), ""
    except NotFound:
        return None, ""
    except Unavailable as away:
        return None, str(away)


def _plots(kinds: Sequence[_Plot], curves: Sequence[NamedCurve]) -> list[TimePlot]:
    """Return a plot for each metric that something did, a line for each name, those with most first."""
    made = []
    for name, title, metric, unit, divisor in kinds:
        chosen = sorted((curve for curve in curves if curve.metric == metric), key=_most, reverse=True)[:_MOST_LINES]
        times = sorted({at for curve in chosen for at, _ in curve.points})
        if len(times) < 2 or not any(map(_most, chosen)):
            continue
        points = [(curve.name, dict(curve.points)) for curve in chosen]
        lines = [
            PlotLine(word, [None if (value := by_time.get(at)) is None else value / divisor for at in times])
            for word, by_time in points
        ]
        made.append(TimePlot(id=name, title=title, unit=unit, times=times, lines=lines))
    return made


def _most(curve: NamedCurve) -> float:
    return max(value for _, value in curve.points)


def _grouped(space: Any) -> list[tuple[str, str, float, int, list[Any]]]:
    """Return each group on each file system: its space, its files and its users, the largest first."""
    groups: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in space.rows if space else ():
        groups[row.file_system, row.group].append(row)
    made = [
        (name, group, sum(row.used_bytes for row in rows), sum(row.files for row in rows), rows)
        for (name, group), rows in groups.items()
    ]
    return sorted(made, key=lambda item: -item[2])


def _by_project(machines: Sequence[VirtualMachine]) -> list[tuple[str, dict[str, float]]]:
    """Return what the machines of each project have and use together."""
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for machine in machines:
        total = sums[machine.project]
        total["machines"] += 1
        total["cpus"] += machine.cpus
        for name in ("cpus_working", "memory_bytes", "memory_used_bytes"):
            total[name] += getattr(machine, name) or 0.0
    return sorted(sums.items())
