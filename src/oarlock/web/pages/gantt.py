"""The Gantt page: past, present and plan of every node, made on the server; keys, drag and wheel change the address."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from oarlock.insight.drawing.columns import WIDTH_IN_MAIN
from oarlock.insight.drawing.gantt import (
    GanttJob,
    GanttNode,
    GanttSpan,
    GanttView,
    Window,
    round_instants,
)
from oarlock.lang import duration
from oarlock.model.errors import BadRequest, OarlockError
from oarlock.model.job import FINAL, HOLDS_RESOURCES, JobState
from oarlock.model.job_type import JobType
from oarlock.model.nodeset import fold, unfold
from oarlock.web.pages.parts.formats import is_twice
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, Data, Live, Rendered, View
from oarlock.web.verbs.cluster.gantt import GanttBar, GanttChart
from oarlock.web.views import JobView

_HOUR, _DAY = 3600, 86_400
SPANS = (("1 h", _HOUR), ("6 h", 6 * _HOUR), ("1 d", _DAY), ("1 w", 7 * _DAY), ("1 m", 30 * _DAY), ("3 m", 91 * _DAY))
_USUAL = 6 * _HOUR
_SHORTEST, _LONGEST = 600, 93 * _DAY
_LATEST = 1 << 40
_MOST_LISTED = 300
_MOST_TITLES = 300  # bars up to which each says at once what it is; of more, one asks for the sentence when it is met
_STRIP_NODES = 12
_DIGITS = re.compile(r"([0-9]+)")
_MARKS = {
    JobType.BESTEFFORT: "B",
    JobType.CONTAINER: "C",
    JobType.PLACEHOLDER: "P",
    JobType.DEPLOY: "D",
    JobType.TIMESHARING: "T",
}
_PHASES = {
    state.value: "past" if state in FINAL else "running" if state in HOLDS_RESOURCES else "planned"
    for state in JobState
}
_AWAY = {"Suspected": "suspected", "Dead": "dead", "Absent": "absent"}


@dataclass(frozen=True, slots=True)
class ChartRequest:
    """What an address asks for."""

    window: Window
    where: str
    zone: str
    open_nodes: frozenset[str]
    cores: int
    hours: int


@page("/gantt", nav="Gantt", place=20)
async def gantt(view: View) -> Answer:
    """Show the chart, what surrounds it and the same as a list."""
    wanted = _read_address(view)
    return view.page("gantt.html", request=wanted, spans=SPANS, may_ask=view.may_change, **await _chart(view, wanted))


@page("/live/gantt")
async def live_gantt(view: View) -> Answer:
    """Send the chart anew when something changed."""
    wanted = _read_address(view)
    await view.ask("queues.list")  # somebody who is not signed in is refused before anything is sent

    async def parts() -> dict[str, Rendered]:
        return {"chart": view.page("gantt_chart.html", request=wanted, **await _chart(view, wanted))}

    return Live(("gantt", view.user, wanted), parts)


@page("/gantt/strip")
async def strip(view: View) -> Answer:
    """Send the first nodes of the chart, for the overview, which asks for it when it is drawn."""
    since = view.now - _USUAL // 2
    wanted = ChartRequest((since, since + 2 * _USUAL), "", "", frozenset(), 0, 1)
    drawn = await _chart(view, wanted, most_nodes=_STRIP_NODES)
    return view.page("gantt_strip.html", chart=drawn["chart"], count=drawn["nodes"])


async def chart_of_node(view: View, name: str) -> tuple[Any, ...]:
    """Return what draws the chart of one node, a row a core."""
    since = view.now - _USUAL // 2
    quoted = name.replace("'", "''")
    wanted = ChartRequest(
        (since, since + 2 * _USUAL), f"network_address = '{quoted}'", "", frozenset({name}), 0, 1
    )  # fmt: skip
    *drawn, seen = (await _chart(view, wanted))["chart"]
    return (*drawn, replace(seen, width=WIDTH_IN_MAIN))


@page("/gantt/about/{job}")
async def about(view: View) -> Answer:
    """Describe a job, how well it works or why it waits: what a browser shows of the bar that one points at."""
    job = view.parts["job"]
    if not (job.isascii() and job.isdigit()):
        raise BadRequest(f"`{job[:20]}` is not the number of a job.", hint="Correct the address.")
    number = int(job[:18])
    shown: JobView | None = await view.ask_if_allowed("jobs.show", id=number)
    if shown is None:
        return Data(b"", "text/plain; charset=utf-8")
    usage = await view.ask_if_allowed("jobs.usage", id=number)
    if usage is not None and usage.cpu_seconds is not None and usage.cpu_seconds_offered:
        more = f"{100 * usage.cpu_seconds / usage.cpu_seconds_offered:.0f} % of its cores are busy"
    else:
        why = await view.ask_if_allowed("jobs.why", id=number)
        more = "" if why is None else str(why.says)
    says = _says_of(shown, _zone(view.query.get("zone", "")))
    text = f"{says}. {more.rstrip('.')}." if more else f"{says}."
    return Data(text.encode(), "text/plain; charset=utf-8")


def _says_of(job: JobView, zone: str) -> str:
    """Return what a bar is, of a job whose place may still be a plan."""
    start = job.start or job.scheduled
    stop = job.stop or (start + (job.walltime or 0) if start else 0)
    times = f", {_written(start, zone)} to {_written(stop, zone)}" if start else ""
    cores = (
        f": {len(job.assigned_resources)} cores, queue {job.queue}" if job.assigned_resources else f" in {job.queue}"
    )
    return f"{_words_of(job.id, job.name, job.owner, job.state)}{cores}{times}"


def _words_of(number: int, name: str | None, owner: str, state: str) -> str:
    return f"job {number}{f' ({name})' if name else ''} of {owner}, {state}"


def _read_address(view: View) -> ChartRequest:
    length = view.number("span", _USUAL, most=_LONGEST)
    since = view.number("since", view.now - length // 3, most=_LATEST)
    until = view.number("until", since + length, most=_LATEST)
    if "at" in view.query:  # from now on
        since, until = view.now, view.now + length
    if not _SHORTEST <= until - since <= _LONGEST:
        raise BadRequest(
            f"A chart shows from {duration.show(_SHORTEST)} to {duration.show(_LONGEST)}, not {until - since} seconds.",
            hint="Choose a window above the chart.",
        )
    return ChartRequest(
        (since, until),
        view.query.get("where", "")[:1000],
        _zone(view.query.get("zone", "")),
        frozenset(name for name in view.query.get("open", "").split(",")[:50] if name),
        view.number("cores", 0, most=1_000_000),
        view.number("hours", 1, most=24 * 365),
    )


def _zone(name: str) -> str:
    """Return the name of a time zone; empty for the server's own."""
    if not name:
        return ""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequest(f"`{name[:40]}` is not a time zone.", hint="Write one as in Europe/Paris.") from None
    return name


async def _chart(view: View, wanted: ChartRequest, *, most_nodes: int | None = None) -> dict[str, Any]:
    since, until = wanted.window
    chart: GanttChart = await view.ask(
        "gantt", since=since, until=until, resources=False, texts=False, where=wanted.where
    )
    ghost, answer = await _ghost(view, wanted, chart) if wanted.cores else (None, "")
    nodes = [
        GanttNode(name, chart.nodes[name], name in wanted.open_nodes, _toggle(wanted, name))
        for name in sorted(chart.nodes, key=_natural)[:most_nodes]
    ]
    pauses: dict[int, list[Window]] = {}
    for pause in chart.pauses:
        pauses.setdefault(pause.id, []).append((pause.start, pause.stop))
    drawn = {number for node in nodes for number in node.resources}
    bars = chart.jobs if most_nodes is None else [bar for bar in chart.jobs if not drawn.isdisjoint(bar.resources)]
    titled = len(bars) <= _MOST_TITLES
    jobs = [_job(bar, pauses.get(bar.id, ()), _title(bar, wanted.zone) if titled else "") for bar in bars]
    spans = [*_away(chart, wanted.zone), *_maintenance(chart, wanted.zone)]
    shown = sorted(chart.jobs, key=lambda bar: (bar.start, bar.id))[:_MOST_LISTED]
    names = {number: name for name, numbers in chart.nodes.items() for number in numbers}
    places = [fold({names[number] for number in bar.resources if number in names}) for bar in shown]
    return {
        "chart": (nodes, jobs, spans, _view(view, wanted, ghost)),
        "jobs": list(zip(shown, places, strict=True)),
        "count": len(chart.jobs),
        "nodes": len(chart.nodes),
        "answer": answer,
        "written": lambda instant: _written(instant, wanted.zone),
    }


def _toggle(wanted: ChartRequest, name: str) -> str:
    """Return the address of the same chart with a node opened, or closed if it is open."""
    since, until = wanted.window
    shown = ",".join(sorted(wanted.open_nodes ^ {name}))
    query = {"since": since, "until": until, "where": wanted.where, "zone": wanted.zone, "open": shown}
    return f"/gantt?{urlencode({key: value for key, value in query.items() if value})}"


def _view(view: View, wanted: ChartRequest, ghost: GanttJob | None) -> GanttView:
    since, until = wanted.window
    form = "%H:%M" if until - since <= 2 * _DAY else "%d %b" if until - since > 7 * _DAY else "%a %d, %H:%M"
    instants = [
        (at, _written(at, wanted.zone, form))
        for at in round_instants(wanted.window, partial(_offset, zone=wanted.zone))
    ]
    return GanttView(
        wanted.window, view.now, instants, _written(view.now, wanted.zone, "%H:%M"),
        f"Jobs from {_written(since, wanted.zone)} to {_written(until, wanted.zone)}",
        link=lambda number: f"/jobs/{number}", ghost=ghost,
    )  # fmt: skip


async def _ghost(view: View, wanted: ChartRequest, chart: GanttChart) -> tuple[GanttJob | None, str]:
    """Ask when somebody could have so many cores for so many hours; return it as a bar and as a sentence."""
    try:
        when = await view.ask(
            "jobs.dry-run", resources=[f"/core={wanted.cores},walltime={wanted.hours}"], command="true"
        )
    except OarlockError as refusal:
        return None, str(refusal)
    if when.start is None:
        return None, when.says
    start = max(when.start, wanted.window[0])
    says = f"{wanted.cores} cores for {wanted.hours} h: from {_written(when.start, wanted.zone)} on {when.nodes}"
    stop = when.start + wanted.hours * _HOUR
    places = _free(chart, unfold(when.nodes) if when.nodes else [], start, stop)
    ghost = GanttJob(0, start, stop, places[: wanted.cores], "planned", f"could run here: {says}", "?")
    return ghost, says


def _free(chart: GanttChart, nodes: list[str], start: int, stop: int) -> list[int]:
    """Return the resources of nodes that no job of the chart has in [start, stop)."""
    taken = {number for bar in chart.jobs if bar.start < stop and bar.stop > start for number in bar.resources}
    return [number for name in nodes for number in chart.nodes.get(name, ()) if number not in taken]


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts node2 before node10."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name) if part]


def _job(bar: GanttBar, pauses: Sequence[Window], title: str) -> GanttJob:
    types = {text.partition("=")[0] for text in bar.types}
    return GanttJob(
        bar.id, bar.start, bar.stop, bar.resources, _PHASES[bar.state], title,
        "".join(letter for kind, letter in _MARKS.items() if kind in types) if types else "",
        best_effort=JobType.BESTEFFORT in types, container=JobType.CONTAINER in types, pauses=pauses,
    )  # fmt: skip


def _title(bar: GanttBar, zone: str) -> str:
    times = f"{_written(bar.start, zone)} to {_written(bar.stop, zone)}"
    if not bar.id:
        return f"a job of somebody, {bar.state}: {len(bar.resources)} cores, {times}"
    what = _words_of(bar.id, bar.name, bar.owner, bar.state)
    return f"{what}: {len(bar.resources)} cores, queue {bar.queue}, {times}"


def _away(chart: GanttChart, zone: str) -> list[GanttSpan]:
    """Return the times in which resources were away, those of equal times and states together."""
    together: dict[tuple[int, int, str], list[int]] = {}
    for bar in chart.states:
        together.setdefault((bar.start, bar.stop, bar.state), []).append(bar.resource)
    return [
        GanttSpan(start, stop, numbers, _AWAY.get(state, "absent"),
                  f"{state} from {_written(start, zone)} to {_written(stop, zone)}")
        for (start, stop, state), numbers in together.items()
    ]  # fmt: skip


def _maintenance(chart: GanttChart, zone: str) -> list[GanttSpan]:
    return [
        GanttSpan(window.start, window.stop, window.resources, "maintenance",
                  f"maintenance {window.name}: {_written(window.start, zone)} to {_written(window.stop, zone)}")
        for window in chart.windows
    ]  # fmt: skip


def _offset(instant: int, zone: str) -> int:
    if not zone:
        return time.localtime(instant).tm_gmtoff
    offset = datetime.fromtimestamp(instant, ZoneInfo(zone)).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


_DATE_AND_TIME = "%Y-%m-%d %H:%M"


def _written(instant: int, zone: str, form: str = _DATE_AND_TIME) -> str:
    """Write an instant in a zone, in the server's own without one; with its name in the hour that there is twice."""
    day = instant // _DAY
    if not _has_change(day, zone) and form == _DATE_AND_TIME:  # a chart has 40,000 of these
        day_here, second = divmod(instant + _offset_of_day(day, zone), _DAY)
        return f"{_date(day_here)} {second // _HOUR:02}:{second % _HOUR // 60:02}"
    if _has_change(day, zone) and is_twice(instant, partial(_offset, zone=zone)):
        form = f"{form} %Z"
    if not zone:
        return time.strftime(form, time.localtime(instant))
    return datetime.fromtimestamp(instant, ZoneInfo(zone)).strftime(form)


@lru_cache(maxsize=1024)
def _date(day: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(day * _DAY))


@lru_cache(maxsize=1024)
def _offset_of_day(day: int, zone: str) -> int:
    return _offset(day * _DAY, zone)


@lru_cache(maxsize=1024)
def _has_change(day: int, zone: str) -> bool:
    """Return whether clocks are set in a zone on a day of UTC, or beside it."""
    return _offset((day - 1) * _DAY, zone) != _offset((day + 2) * _DAY, zone)
