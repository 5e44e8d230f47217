"""The Gantt chart: nodes from top to bottom, time from left to right, what was, what is and what is planned.

A node is one row in which its cores lie one above the other; an open one has a row a core. Bars that are too narrow to
be seen are drawn together: a thousand jobs of a minute on a chart of a week would be nothing but edges.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from oarlock.insight.drawing.marks import COLOURS

LABEL, ROW, CORE_ROW, GAP, HEAD = 96, 17, 13, 2, 20
WIDTH = 1232
_EDGE, _EDGE_FROM, _MERGED_BELOW, _NARROWEST, _NUMBER_FROM = 3, 6, 2.0, 2, 48
_NOW_ROOM = 40.0  # beside the time of the now line
_PIECE = 2.0  # the least height of what one can point at
_TOUCHING = 0.01  # pixels between two cores that are drawn as one
_LONGEST_NAME = 14
_OPEN, _LEAST_CORE_ROW = 208.0, 4.0  # the height of an open node; one with very many cores is higher

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

    `number` is 0 where the job is not known to whoever looks. `title` may be empty: the bar says its number alone.
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
class _Row:
    """A node as it is drawn: where its row begins, how high it is, and the bars that begin in it."""

    node: GanttNode
    top: float
    height: float
    bars: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a set of resources is drawn: the row in which it begins, and its pieces as (top in the chart, height).

    `tint` and `edge` are paths with the top of the row as origin; in `tint` a W stands for the width of the bar.
    `middle` is the height of the number below that origin; None if no piece is high enough for it.
    """

    row: int
    pieces: Sequence[tuple[float, float]]
    tint: str
    edge: str
    middle: str | None


@dataclass(slots=True)
class _Layout:
    """Where each resource is drawn. `places` numbers them from top to bottom; `tops` and `ends` are by place."""

    view: GanttView
    scale: float  # pixels a second
    places: dict[int, int] = field(default_factory=dict)
    tops: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)
    row_tops: list[float] = field(default_factory=list)
    height: float = 0.0
    shapes: dict[tuple[int, ...], _Shape | None] = field(default_factory=dict)

    def x(self, instant: float) -> int:
        """Return where an instant is. Whole pixels: they are sharp, and short to write."""
        return LABEL + round(self.along(instant))

    def along(self, instant: float) -> float:
        """Return how far from the beginning an instant is, in pixels; one outside the window is at its edge."""
        since, until = self.view.window
        return self.scale * (min(max(instant, since), until) - since)

    def pieces(self, resources: Iterable[int]) -> list[tuple[float, float]]:
        """Return the heights that resources take, as (top, height), neighbours together."""
        drawn = sorted([self.places[number] for number in resources if number in self.places])
        joined: list[tuple[float, float]] = []
        begin = 0
        for at in range(1, len(drawn) + 1):
            if at < len(drawn) and self.tops[drawn[at]] - self.ends[drawn[at - 1]] < _TOUCHING:
                continue
            top = self.tops[drawn[begin]]
            joined.append((top, self.ends[drawn[at - 1]] - top))
            begin = at
        return joined

    def shape(self, resources: Sequence[int]) -> _Shape | None:
        """Return how resources are drawn; None if none of them is. Jobs on the same ones share it."""
        key = tuple(resources)
        if key not in self.shapes:
            pieces = self.pieces(key)
            self.shapes[key] = self.shape_of(pieces) if pieces else None
        return self.shapes[key]

    def shape_of(self, pieces: Sequence[tuple[float, float]]) -> _Shape:
        """Return how pieces are drawn."""
        row = bisect_right(self.row_tops, pieces[0][0] + _TOUCHING) - 1
        origin = self.row_tops[row]
        written = [(_short(top - origin), _short(max(height, _PIECE))) for top, height in pieces]
        top, height = max(pieces, key=lambda piece: piece[1])
        return _Shape(
            row,
            pieces,
            "".join(f"M0 {top}hWv{height}H0z" for top, height in written),
            "".join(f"M{_EDGE / 2} {top}v{height}" for top, height in written),
            _short(top - origin + height / 2 + 4) if height >= CORE_ROW else None,
        )


def _short(pixels: float) -> str:
    return f"{pixels:.1f}".removesuffix(".0")


def draw_gantt(
    nodes: Sequence[GanttNode], jobs: Sequence[GanttJob], spans: Sequence[GanttSpan], view: GanttView
) -> str:
    """Draw a chart. All texts are escaped here.

    A job is one element, in the group of the row in which it begins, drawn from its own left edge: what bars have in
    common is then the same text, which compresses to nothing. Only its number and its place differ.
    """
    layout = _lay_out(nodes, view)
    many = _jobs(layout, jobs)
    drawn = [
        _grounds(layout),
        *_instants(layout),
        *(_span(layout, span) for span in spans),
        *(_row(row) for row in layout.rows),
        *many,
        _ghost(layout),
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
        height = max(min(CORE_ROW * count, _OPEN), _LEAST_CORE_ROW * count) if node.is_open else float(ROW)
        each = height / count
        for place, number in enumerate(node.resources):
            layout.places[number] = len(layout.tops)
            layout.tops.append(top + each * place)
            layout.ends.append(top + each * (place + 1))
        layout.rows.append(_Row(node, top, height))
        layout.row_tops.append(top)
        top += height + GAP
    layout.height = top
    return layout


def _grounds(layout: _Layout) -> str:
    """Draw what lies below the bars of all rows."""
    wide = layout.view.width - LABEL - 1
    path = "".join(f"h{wide}v{_short(row.height)}h-{wide}zm0 {_short(row.height + GAP)}" for row in layout.rows)
    return f'<path class="g-row" d="M{LABEL} 0{path}"/>'


def _row(row: _Row) -> str:
    node = row.node
    is_cut = len(node.name) > _LONGEST_NAME
    title, name = (f"<title>{escape(node.name)}</title>", f"{node.name[:13]}…") if is_cut else ("", node.name)
    label = (
        f'<text class="g-name" x="{LABEL - 6}" y="{_short(min(row.height, ROW) / 2 + 4)}">{title}{escape(name)}</text>'
    )
    linked = f'<a href="{escape(node.link)}" class="g-open">{label}</a>' if node.link else label
    return f'<g transform="translate(0 {_short(row.top)})">{linked}{"".join(row.bars)}</g>'


def _instants(layout: _Layout) -> Iterator[str]:
    since, until = layout.view.window
    now = layout.x(layout.view.now) if since <= layout.view.now < until else -_NOW_ROOM
    for instant, text in layout.view.instants:
        x = layout.x(instant)
        if abs(x - now) < _NOW_ROOM:
            yield f'<path class="g-line" d="M{x} 0V{layout.height:.1f}"/>'
            continue
        anchor = "end" if x > layout.view.width - 30 else "start" if x < LABEL + 20 else "middle"
        yield (
            f'<path class="g-line" d="M{x} 0V{layout.height:.1f}"/><text class="g-time" x="{x}" '
            f'y="{layout.height + 14:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )


def _span(layout: _Layout, span: GanttSpan) -> str:
    x, end = layout.x(span.start), layout.x(span.stop)
    pieces = "".join(
        f'<rect x="{x}" y="{top:.1f}" width="{max(end - x, 1)}" height="{height:.1f}"/>'
        for top, height in layout.pieces(span.resources)
    )
    return f'<g class="g-span g-{escape(span.kind)}"><title>{escape(span.title)}</title>{pieces}</g>' if pieces else ""


def _jobs(layout: _Layout, jobs: Sequence[GanttJob]) -> list[str]:
    """Draw the jobs into their rows; those that are too narrow are put together where they lie side by side."""
    narrow: dict[tuple[float, float], list[GanttJob]] = {}
    for job in jobs:
        shape = layout.shape(job.resources)
        if shape is None:
            continue
        if layout.along(job.stop) - layout.along(job.start) >= _MERGED_BELOW:
            layout.rows[shape.row].bars.append(_bar(layout, job, shape))
            continue
        for piece in shape.pieces:
            narrow.setdefault(piece, []).append(job)
    return [drawn for piece, many in narrow.items() for drawn in _many(layout, piece, many)]


def _many(layout: _Layout, piece: tuple[float, float], jobs: Sequence[GanttJob]) -> Iterator[str]:
    """Draw runs of narrow jobs, each as one bar that says how many they are; one that is alone into its row."""
    ordered = sorted(jobs, key=lambda job: job.start)
    first = 0
    for place in range(1, len(ordered) + 1):
        at_end = place == len(ordered)
        if not at_end and layout.along(ordered[place].start) - layout.along(ordered[place - 1].stop) < _MERGED_BELOW:
            continue
        run, first = ordered[first:place], place
        if len(run) == 1:
            shape = layout.shape_of([piece])
            layout.rows[shape.row].bars.append(_bar(layout, run[0], shape))
            continue
        x, end = layout.x(run[0].start), layout.x(max(job.stop for job in run))
        yield (
            f'<g class="g-many"><title>{len(run)} short jobs, {run[0].number} to {run[-1].number}</title>'
            f'<rect x="{x}" y="{_short(piece[0])}" width="{max(end - x, _NARROWEST)}" '
            f'height="{_short(max(piece[1], _PIECE))}"/></g>'
        )


def _bar(layout: _Layout, job: GanttJob, shape: _Shape, kind: str = "") -> str:
    """Draw a bar as it lies in its row: a link, unless its job is not known to whoever looks."""
    x = layout.x(job.start)
    wide = max(layout.x(job.stop) - x, _NARROWEST)
    tint = shape.tint.replace("W", str(wide))
    hatch = f'<path class="g-best" d="{tint}"/>' if job.best_effort else ""
    edge = f'<path class="g-edge" d="{shape.edge}"/>' if wide >= _EDGE_FROM else ""
    pauses = _pauses(layout, job, shape, x) if job.pauses else ""
    number = _number(job, shape, wide)
    title = escape(job.title) or ("" if number or not job.number else str(job.number))
    inside = (
        f'{f"<title>{title}</title>" if title else ""}<path class="g-tint" d="{tint}"/>{hatch}{edge}{pauses}{number}'
    )
    kinds = f"c{job.number % COLOURS} {job.phase}{' g-container' if job.container else ''}{kind}"
    if layout.view.link is None or not job.number:
        return f'<g class="{kinds}" transform="translate({x})">{inside}</g>'
    address = escape(layout.view.link(job.number))
    return f'<a href="{address}" class="{kinds}" transform="translate({x})" tabindex="-1">{inside}</a>'


def _pauses(layout: _Layout, job: GanttJob, shape: _Shape, left: int) -> str:
    origin = layout.row_tops[shape.row]
    drawn = []
    for start, stop in job.pauses:
        x, end = layout.x(start), layout.x(stop)
        drawn += [
            f"M{x - left} {_short(top - origin)}h{end - x}v{_short(max(height, _PIECE))}h{x - end}z"
            for top, height in shape.pieces
            if end > x
        ]
    return f'<path class="g-pause" d="{"".join(drawn)}"/>' if drawn else ""


def _number(job: GanttJob, shape: _Shape, wide: int) -> str:
    if wide < _NUMBER_FROM or shape.middle is None:
        return ""
    text = f"{job.number or ''} {job.marks}".strip()
    return f'<text class="g-number" x="7" y="{shape.middle}">{escape(text)}</text>' if text else ""


def _ghost(layout: _Layout) -> str:
    ghost = layout.view.ghost
    shape = None if ghost is None else layout.shape(ghost.resources)
    if ghost is None or shape is None:
        return ""
    bar = _bar(layout, ghost, shape, " g-ghost")
    return f'<g transform="translate(0 {_short(layout.row_tops[shape.row])})">{bar}</g>'


def _now(layout: _Layout) -> str:
    since, until = layout.view.window
    if not since <= layout.view.now < until:
        return ""
    x = layout.x(layout.view.now)
    anchor = "end" if x > layout.view.width - 30 else "start" if x < LABEL + 20 else "middle"
    return (
        f'<path class="g-now" d="M{x} 0V{layout.height:.1f}"/>'
        f'<text class="g-now-text" x="{x}" y="{layout.height + 14:.1f}" text-anchor="{anchor}">'
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
