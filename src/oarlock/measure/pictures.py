"""Pictures of a recorded job, drawn with Pillow (the extra `graphs`): a PNG for each graph, and an animation."""

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

from oarlock.measure import graphs
from oarlock.measure.graphs import Graph, Points, RecordedGraphs

_SCALE = 2  # drawn larger and then reduced, which smooths lines
_WIDTH, _HEIGHT = 900, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 70, 66
_PALETTE = ("#1f6feb", "#d1602f", "#2f8f4e", "#8250df", "#b8860b", "#c2347d", "#0f8a8a", "#6b7280")
_INK, _SOFT, _GRID, _FRAME, _LIMIT = "#1b1f24", "#6b7280", "#e6e8eb", "#c5cad1", "#b42318"
_FAINT = "#c9d7ee"
_MOST_BARS = 24
_BAR, _GAP = 18, 8
_FRAME_MS, _LAST_MS = 120, 2500

Point = tuple[float, float]
_Place = Callable[[float, float], Point]


def draw(recorded: RecordedGraphs) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file: `NAME.png` for every graph, and `job.gif`."""
    for graph in recorded.graphs:
        yield f"{graph.file}.png", _png(_draw_graph(graph, recorded.heading))
    yield "job.gif", _gif([_draw_frame(recorded, instant) for instant in recorded.frames()])


class _Canvas:
    """A white picture whose coordinates are those of the finished one."""

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)
        self._image = Image.new("RGB", (width * _SCALE, height * _SCALE), "white")
        self._draw = ImageDraw.Draw(self._image)

    def text(self, at: Point, text: str, *, size: int = 13, color: str = _INK, anchor: str = "la") -> None:
        font = ImageFont.load_default(size * _SCALE)
        self._draw.text((at[0] * _SCALE, at[1] * _SCALE), text, fill=color, font=font, anchor=anchor)

    def text_width(self, text: str, size: int = 13) -> float:
        return ImageFont.load_default(size * _SCALE).getlength(text) / _SCALE

    def line(self, points: Sequence[Point], color: str, width: float = 1.0) -> None:
        scaled = [(x * _SCALE, y * _SCALE) for x, y in points]
        self._draw.line(scaled, fill=color, width=max(1, round(width * _SCALE)), joint="curve")

    def dashes(self, begin: Point, end: Point, color: str) -> None:
        x, stop = begin[0], end[0]
        while x < stop:
            self.line([(x, begin[1]), (min(x + 7, stop), end[1])], color, 1.5)
            x += 12

    def area(self, points: Sequence[Point], color: str) -> None:
        self._draw.polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=color)

    def box(self, corner: Point, other: Point, *, fill: str | None = None, outline: str | None = None) -> None:
        scaled = (corner[0] * _SCALE, corner[1] * _SCALE, other[0] * _SCALE, other[1] * _SCALE)
        self._draw.rounded_rectangle(scaled, radius=3 * _SCALE, fill=fill, outline=outline, width=_SCALE)

    def finished(self) -> Image.Image:
        return self._image.resize(self.size, Image.Resampling.LANCZOS)


def _draw_graph(graph: Graph, heading: str) -> Image.Image:
    canvas = _Canvas(_WIDTH, _HEIGHT)
    canvas.text((_LEFT, 18), graph.title + (", by node" if len(graph.curves) > 1 else ""), size=19)
    canvas.text((_LEFT, 44), heading, color=_SOFT)
    marks = graphs.ticks(graph.top, graph.unit)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    seconds = graph.seconds or 1.0

    def place(at: float, value: float) -> Point:
        return _LEFT + at / seconds * (right - _LEFT), bottom - value / marks[-1] * (bottom - _TOP)

    for mark in marks:
        _, y = place(0, mark)
        canvas.line([(_LEFT, y), (right, y)], _FRAME if mark == 0 else _GRID)
        canvas.text((_LEFT - 10, y), graphs.shown(mark, graph.unit), size=12, color=_SOFT, anchor="rm")
    for instant in graphs.time_ticks(seconds):
        x, _ = place(instant, 0)
        canvas.line([(x, bottom), (x, bottom + 5)], _FRAME)
        canvas.text((x, bottom + 9), graphs.clock(instant), size=12, color=_SOFT, anchor="ma")
    if graph.limit is not None and graph.shows_limit:
        canvas.dashes(place(0, graph.limit), place(seconds, graph.limit), _LIMIT)
    legend = _draw_curves(canvas, graph, place)
    if graph.limit is not None:
        far = "" if graph.shows_limit else ", above this scale"
        legend.append((f"limit {graphs.shown(graph.limit, graph.unit)}{far}", _LIMIT))
    _draw_legend(canvas, legend)
    return canvas.finished()


def _draw_curves(canvas: _Canvas, graph: Graph, place: _Place) -> list[tuple[str, str]]:
    """Draw the curves; return what the legend says. Many nodes are faint lines with their mean in front."""
    curves = {node: points for node, points in graph.curves.items() if points}
    if len(curves) > len(_PALETTE):
        for points in curves.values():
            _draw_curve(canvas, points, place, _FAINT, 1.0)
        _draw_curve(canvas, graphs.mean(curves.values()), place, _PALETTE[0], 2.5)
        return [(f"mean of {len(curves)} nodes", _PALETTE[0]), ("each node", _FAINT)]
    if len(curves) == 1:
        [points] = curves.values()
        outline = [place(*point) for point in points]
        canvas.area([place(points[0][0], 0), *outline, place(points[-1][0], 0)], "#e3edfd")
    for points, color in zip(curves.values(), _PALETTE, strict=False):
        _draw_curve(canvas, points, place, color, 2.0)
    return list(zip(curves, _PALETTE, strict=False))


def _draw_curve(canvas: _Canvas, points: Points, place: _Place, color: str, width: float) -> None:
    placed = [place(*point) for point in points]
    canvas.line(placed if len(placed) > 1 else [placed[0], (placed[0][0] + 3, placed[0][1])], color, width)


def _draw_legend(canvas: _Canvas, entries: Sequence[tuple[str, str]]) -> None:
    x, y = float(_LEFT), _HEIGHT - 22
    for name, color in entries:
        width = canvas.text_width(name, 12) + 42
        if x + width > _WIDTH - _RIGHT:
            canvas.text((x, y), "…", size=12, color=_SOFT, anchor="lm")
            return
        canvas.line([(x, y), (x + 16, y)], color, 3)
        canvas.text((x + 22, y), name, size=12, color=_SOFT, anchor="lm")
        x += width


def _draw_frame(recorded: RecordedGraphs, instant: float) -> Image.Image:
    """Draw what every node used at an instant: a bar each, beside the most that was used or may be."""
    nodes = sorted({node for graph in recorded.animated for node in graph.curves}, key=graphs.by_number)
    rows = nodes[:_MOST_BARS]
    height = 118 + len(rows) * (_BAR + _GAP) + (24 if len(nodes) > len(rows) else 0)
    canvas = _Canvas(_WIDTH, height)
    names = min(220.0, max(canvas.text_width(node, 13) for node in rows)) + 24
    canvas.text((24, 16), recorded.heading, size=17)
    canvas.text((_WIDTH - 24, 18), graphs.clock(instant), size=17, anchor="ra")
    length = recorded.frames()[-1] or 1.0
    canvas.box((24, 46), (_WIDTH - 24, 51), fill=_GRID)
    canvas.box((24, 46), (24 + max(4.0, (_WIDTH - 48) * instant / length), 51), fill=_SOFT)
    for place, node in enumerate(rows):
        canvas.text((24, 96 + place * (_BAR + _GAP) + _BAR / 2), node[:30], anchor="lm")
    column = (_WIDTH - 24 - 24 - names) / len(recorded.animated)
    for place, graph in enumerate(recorded.animated):
        _draw_bars(canvas, graph, rows, instant, (24 + names + place * column, column - 24), _PALETTE[place])
    if len(nodes) > len(rows):
        canvas.text((24, height - 26), f"and {len(nodes) - len(rows)} more nodes", color=_SOFT)
    return canvas.finished()


def _draw_bars(
    canvas: _Canvas, graph: Graph, rows: Sequence[str], instant: float, span: tuple[float, float], color: str
) -> None:
    left, width = span
    room = width - 92  # the value stands behind the bar
    full = graph.top or 1.0
    canvas.text((left, 68), graph.title, color=_SOFT)
    for place, node in enumerate(rows):
        y = 96 + place * (_BAR + _GAP)
        value = graphs.value_at(graph.curves.get(node, ()), instant)
        canvas.box((left, y), (left + room, y + _BAR), fill="#f3f4f6")
        if value is not None:
            if value > 0:
                canvas.box((left, y), (left + max(3.0, room * value / full), y + _BAR), fill=color)
            says = f"{value:.2f}" if not graph.unit else graphs.shown(value, graph.unit)
            canvas.text((left + room + 8, y + _BAR / 2), says, size=12, color=_SOFT, anchor="lm")


def _png(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _gif(frames: Sequence[Image.Image]) -> bytes:
    file = BytesIO()
    # One palette for all frames: another one a frame would make colours flicker.
    first = frames[-1].quantize(96, dither=Image.Dither.NONE)
    reduced = [frame.quantize(palette=first, dither=Image.Dither.NONE) for frame in frames]
    durations = [_FRAME_MS] * (len(reduced) - 1) + [_LAST_MS]
    reduced[0].save(file, "GIF", save_all=True, append_images=reduced[1:], duration=durations, loop=0, optimize=False)
    return file.getvalue()
