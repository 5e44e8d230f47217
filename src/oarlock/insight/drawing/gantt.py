"""The Gantt chart: nodes from top to bottom, time from left to right, what was, what is and what is planned.

A node is one row in which its cores lie one above the other; an open one has a row a core. Bars that are too narrow to
be seen are drawn together: a thousand jobs of a minute on a chart of a week would be nothing but edges.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from oarlock.insight.drawing.marks import COLOURS

LABEL, ROW, CORE_ROW, GAP, HEAD = 96, 17, 13, 2, 20
WIDTH = 1232
_EDGE, _EDGE_FROM, _MERGED_BELOW, _NUMBER_FROM = 3, 6.0, 2.0, 48.0
_NOW_ROOM = 40.0  # beside the time of the now line
_PIECE = 2.0  # the least height of what one can point at

Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GanttNode:
    """A node and the numbers of its resources, in the order in which they are drawn. `link`: where its name leads."""

    name: str
    resources: Sequence[int]
    is_open: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class GanttJob:
    """A job on its resources during [start, stop). `phase` is past, running or planned.

    `marks` are letters after its number (B best effort, C container, R reservation), `pauses` when it was suspended.
    """

    number: int
    start: int
    stop: int
    resources: Sequence[int]
    phase: str
    title: str
    marks: str = ""
    best_effort: bool = False
    container: bool = False
    pauses: Sequence[Window] = ()


@dataclass(frozen=True, slots=True)
class GanttSpan:
    """A time [start, stop) in which resources were away (`kind` suspected, dead, absent, standby) or maintained."""

    start: int
    stop: int
    resources: Sequence[int]
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class GanttView:
    """What a chart shows: a window of time with `now` in it or not, and how instants are written below it."""

    window: Window
    now: int
    instants: Sequence[tuple[int, str]]
    now_text: str
    label: str
    link: Callable[[int], str] | None = None
    width: int = WIDTH
    ghost: GanttJob | None = None


@dataclass(slots=True)
class _Layout:
    """Where each resource is drawn."""

    view: GanttView
    scale: float  # pixels a second
    tops: dict[int, tuple[float, float]] = field(default_factory=dict)
    rows: list[tuple[GanttNode, float, float]] = field(default_factory=list)
    height: float = 0.0

    def x(self, instant: float) -> float:
        since, until = self.view.window
        return LABEL + self.scale * (min(max(instant, since), until) - since)

    def spans(self, resources: Sequence[int]) -> list[tuple[float, float]]:
        """Return the heights that resources take, as (top, height), neighbours together."""
        drawn = sorted(self.tops[number] for number in resources if number in self.tops)
        joined: list[tuple[float, float]] = []
        for top, height in drawn:
            if joined and top - sum(joined[-1]) < 0.01:
                joined[-1] = joined[-1][0], top + height - joined[-1][0]
            else:
                joined.append((top, height))
        return joined


def draw_gantt(
    nodes: Sequence[GanttNode], jobs: Sequence[GanttJob], spans: Sequence[GanttSpan], view: GanttView
) -> str:
    """Draw a chart. All texts are escaped here."""
    layout = _lay_out(nodes, view)
    drawn = [
        *_rows(layout),
        *_instants(layout),
        *(_span(layout, span) for span in spans),
        *_jobs(layout, jobs),
        *([_bar(layout, view.ghost, _pieces(layout, view.ghost), ghost=True)] if view.ghost is not None else []),
        _now(layout),
    ]
    height = layout.height + HEAD
    return (
        f'<svg class="gantt" width="{view.width}" height="{height:.0f}" viewBox="0 0 {view.width} {height:.0f}" '
        f'role="group" aria-label="{escape(view.label)}" data-since="{view.window[0]}" data-until="{view.window[1]}" '
        f'data-left="{LABEL}">{"".join(drawn)}</svg>'
    )


def _lay_out(nodes: Sequence[GanttNode], view: GanttView) -> _Layout:
    since, until = view.window
    layout = _Layout(view, (view.width - LABEL - 1) / max(until - since, 1))
    top = 0.0
    for node in nodes:
        count = max(len(node.resources), 1)
        height = float(CORE_ROW * count if node.is_open else ROW)
        each = height / count
        for place, number in enumerate(node.resources):
            layout.tops[number] = top + each * place, each
        layout.rows.append((node, top, height))
        top += height + GAP
    layout.height = top
    return layout


def _rows(layout: _Layout) -> Iterator[str]:
    for node, top, height in layout.rows:
        name = node.name if len(node.name) <= 14 else f"{node.name[:13]}…"
        label = (
            f'<text class="g-name" x="{LABEL - 6}" y="{top + min(height, ROW) / 2 + 4:.1f}" text-anchor="end">'
            f"<title>{escape(node.name)}</title>{escape(name)}</text>"
        )
        yield (
            f'<rect class="g-row" x="{LABEL}" y="{top:.1f}" width="{layout.view.width - LABEL - 1}" '
            f'height="{height:.1f}"/>'
        )
        yield f'<a href="{escape(node.link)}" class="g-open">{label}</a>' if node.link else label


def _instants(layout: _Layout) -> Iterator[str]:
    since, until = layout.view.window
    now = layout.x(layout.view.now) if since <= layout.view.now < until else -_NOW_ROOM
    for instant, text in layout.view.instants:
        x = layout.x(instant)
        if abs(x - now) < _NOW_ROOM:
            yield f'<path class="g-line" d="M{x:.1f} 0V{layout.height:.1f}"/>'
            continue
        anchor = "end" if x > layout.view.width - 30 else "start" if x < LABEL + 20 else "middle"
        yield (
            f'<path class="g-line" d="M{x:.1f} 0V{layout.height:.1f}"/><text class="g-time" x="{x:.1f}" '
            f'y="{layout.height + 14:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )


def _span(layout: _Layout, span: GanttSpan) -> str:
    x, end = layout.x(span.start), layout.x(span.stop)
    pieces = "".join(
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(end - x, 1):.1f}" height="{height:.1f}"/>'
        for top, height in layout.spans(span.resources)
    )
    return f'<g class="g-span g-{escape(span.kind)}"><title>{escape(span.title)}</title>{pieces}</g>' if pieces else ""


def _jobs(layout: _Layout, jobs: Sequence[GanttJob]) -> Iterator[str]:
    """Draw the jobs; those that are too narrow are put together where they lie side by side."""
    narrow: dict[tuple[float, float], list[GanttJob]] = {}
    for job in jobs:
        if layout.x(job.stop) - layout.x(job.start) >= _MERGED_BELOW:
            yield _bar(layout, job, _pieces(layout, job))
            continue
        for piece in _pieces(layout, job):
            narrow.setdefault(piece, []).append(job)
    for piece, many in narrow.items():
        yield from _many(layout, piece, many)


def _many(layout: _Layout, piece: tuple[float, float], jobs: Sequence[GanttJob]) -> Iterator[str]:
    """Draw runs of narrow jobs, each as one bar that says how many they are."""
    ordered = sorted(jobs, key=lambda job: job.start)
    first = 0
    for place in range(1, len(ordered) + 1):
        at_end = place == len(ordered)
        if not at_end and layout.x(ordered[place].start) - layout.x(ordered[place - 1].stop) < _MERGED_BELOW:
            continue
        run, first = ordered[first:place], place
        if len(run) == 1:
            yield _bar(layout, run[0], [piece])
            continue
        x, end = layout.x(run[0].start), layout.x(max(job.stop for job in run))
        yield (
            f'<g class="g-many"><title>{len(run)} short jobs, {run[0].number} to {run[-1].number}</title>'
            f'<rect x="{x:.1f}" y="{piece[0]:.1f}" width="{max(end - x, _MERGED_BELOW):.1f}" '
            f'height="{max(piece[1], _PIECE):.1f}"/></g>'
        )


def _pieces(layout: _Layout, job: GanttJob) -> list[tuple[float, float]]:
    return layout.spans(job.resources)


def _bar(layout: _Layout, job: GanttJob, pieces: Sequence[tuple[float, float]], *, ghost: bool = False) -> str:
    if not pieces:
        return ""
    x, end = layout.x(job.start), layout.x(job.stop)
    wide = max(end - x, _MERGED_BELOW)
    tints = "".join(_rectangle(x, wide, piece) for piece in pieces)
    hatch = ' fill="url(#p-best)"'
    over = "".join(_rectangle(x, wide, piece, hatch) for piece in pieces) if job.best_effort else ""
    edge = ""
    if wide >= _EDGE_FROM:
        path = "".join(f"M{x + _EDGE / 2:.1f} {top:.1f}v{max(height, _PIECE):.1f}" for top, height in pieces)
        edge = f'<path class="g-edge" d="{path}"/>'
    colour = f"c{job.number % COLOURS}"
    kinds = [colour, job.phase, *(["g-container"] if job.container else []), *(["g-ghost"] if ghost else [])]
    inside = (
        f'<title>{escape(job.title)}</title><g class="g-tint">{tints}</g>{over}{edge}'
        f"{_pauses(layout, job, pieces)}{_number(job, x, wide, pieces)}"
    )
    group = f'<g class="g-bar {" ".join(kinds)}" data-job="{job.number}">{inside}</g>'
    if layout.view.link is None or ghost:
        return group
    return f'<a href="{escape(layout.view.link(job.number))}" tabindex="-1" data-job="{job.number}">{group}</a>'


def _rectangle(x: float, wide: float, piece: tuple[float, float], more: str = "") -> str:
    return f'<rect x="{x:.1f}" y="{piece[0]:.1f}" width="{wide:.1f}" height="{max(piece[1], _PIECE):.1f}"{more}/>'


def _pauses(layout: _Layout, job: GanttJob, pieces: Sequence[tuple[float, float]]) -> str:
    drawn = []
    for start, stop in job.pauses:
        x, end = layout.x(start), layout.x(stop)
        if end - x >= 1:
            drawn += [_rectangle(x, end - x, piece, ' class="g-pause"') for piece in pieces]
    return "".join(drawn)


def _number(job: GanttJob, x: float, wide: float, pieces: Sequence[tuple[float, float]]) -> str:
    top, height = max(pieces, key=lambda piece: piece[1])
    if wide < _NUMBER_FROM or height < CORE_ROW:
        return ""
    text = f"{job.number} {job.marks}".rstrip() if job.number else job.marks
    return f'<text class="g-number" x="{x + 7:.1f}" y="{top + height / 2 + 4:.1f}">{escape(text)}</text>'


def _now(layout: _Layout) -> str:
    since, until = layout.view.window
    if not since <= layout.view.now < until:
        return ""
    x = layout.x(layout.view.now)
    anchor = "end" if x > layout.view.width - 30 else "start" if x < LABEL + 20 else "middle"
    return (
        f'<path class="g-now" d="M{x:.1f} 0V{layout.height:.1f}"/>'
        f'<text class="g-now-text" x="{x:.1f}" y="{layout.height + 14:.1f}" text-anchor="{anchor}">'
        f"{escape(layout.view.now_text)}</text>"
    )


_STEPS = (300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600)


def round_instants(window: Window, offset: Callable[[int], int], *, most: int = 10) -> list[int]:
    """Return round instants in a window, at most so many; `offset` is the zone's then, in seconds east of UTC.

    They are round by the clock on the wall: where that is set in the window, two of them are an hour more or less
    apart. Of an hour that there is twice one is marked, of one that is missing none.
    """
    since, until = window
    step = next((step for step in _STEPS if (until - since) / step <= most), _STEPS[-1])
    walls = range(-(-(since + offset(since)) // step) * step, until + offset(until) + _CLOCK_CHANGE, step)
    instants = [_at_wall(wall, offset) for wall in walls]
    return sorted({instant for instant in instants if instant is not None and since <= instant < until})


_CLOCK_CHANGE = 7200  # clocks are set by less


def _at_wall(wall: int, offset: Callable[[int], int]) -> int | None:
    """Return when the clock on the wall shows a time; None if it never does."""
    for near in (wall - offset(wall - _CLOCK_CHANGE), wall - offset(wall + _CLOCK_CHANGE), wall - offset(wall)):
        if near + offset(near) == wall:
            return near
    return None
