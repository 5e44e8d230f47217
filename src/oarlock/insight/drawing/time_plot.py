"""Curves over time as SVG: what was measured, what was asked for as a dashed line, gaps as gaps."""

import math
import time
from collections.abc import Iterator, Sequence
from html import escape

from msgspec import Struct

WIDTH, HEIGHT = 520, 172
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 4, 12, 24
_ROWS = 4
_COLOURS = (0, 5, 2, 1, 6, 3, 4, 7)
"""Colours of lines in the order in which they are easiest to tell apart; dashed from the fifth on."""

_PLAIN = 4
_MARKS = 5
_SHORT, _LONG = 600, 2 * 86_400
"""Seconds below which an axis has seconds, and above which it has days."""

_FAR = 10.0
"""A limit that lies so many times above the curves is named and not drawn: they would lie flat."""


class PlotLine(Struct, frozen=True):
    """A line: a value for each instant of its plot, None where nothing was measured."""

    name: str
    values: list[float | None]


class TimePlot(Struct, frozen=True, kw_only=True):
    """A plot. `good` is half a sentence on how it should look; `limit` what was asked for, with its words."""

    id: str
    title: str
    unit: str
    good: str = ""
    times: list[float]
    lines: list[PlotLine]
    limit: float | None = None
    limit_words: str = ""
    colour: int = 0

    @property
    def figures(self) -> tuple[float, float, float] | None:
        """The least, the mean and the most of all values; None if there are none."""
        values = [value for line in self.lines for value in line.values if value is not None]
        return (min(values), sum(values) / len(values), max(values)) if values else None

    @property
    def shows_limit(self) -> bool:
        """Whether the limit is near enough to be drawn."""
        return self.limit is not None and self.limit <= _FAR * self._highest

    @property
    def top(self) -> float:
        """The value at the upper end: a round number that has room for all."""
        highest = max(self._highest, (self.limit or 0.0) if self.shows_limit else 0.0)
        return round_top(highest * 1.04)

    @property
    def _highest(self) -> float:
        return max((value for line in self.lines for value in line.values if value is not None), default=0.0)

    def looks(self, at: int) -> str:
        """Return the classes of a line by its place."""
        colour = self.colour if len(self.lines) == 1 else _COLOURS[at % len(_COLOURS)]
        return f"c{colour}" + (f" d{at // _PLAIN % 4}" if at >= _PLAIN else "")


def round_top(highest: float) -> float:
    """Return the next number from a value on up whose quarters are round."""
    if highest <= 0:
        return float(_ROWS)
    power = 10.0 ** math.floor(math.log10(highest / _ROWS))
    return next(_ROWS * step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 10) if _ROWS * step * power >= highest)


def draw(plot: TimePlot) -> str:
    """Draw a plot, with its name and a sentence for those who do not see it."""
    parts = [*_grid(plot), *_curves(plot), *_limit(plot), *_instants(plot)]
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg class="plot" {size} role="img" aria-label="{escape(describe(plot))}">{"".join(parts)}</svg>'


def describe(plot: TimePlot) -> str:
    """Return the sentence of a plot: its name, the least, the mean and the most."""
    if plot.figures is None:
        return f"{plot.title}: nothing was measured"
    least, mean, most = (write(value) for value in plot.figures)
    return f"{plot.title}: least {least}, mean {mean}, most {most} {plot.unit}".rstrip()


def write(value: float) -> str:
    """Write a number of an axis."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _x(plot: TimePlot, at: float) -> float:
    span = plot.times[-1] - plot.times[0] or 1.0
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (at - plot.times[0]) / span


def _y(plot: TimePlot, value: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(value / plot.top, 1.0)


def _grid(plot: TimePlot) -> Iterator[str]:
    for row in range(_ROWS + 1):
        value = plot.top * row / _ROWS
        y = _y(plot, value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>'
        yield f'<text class="axis" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{write(value)}</text>'


def _curves(plot: TimePlot) -> Iterator[str]:
    for place, line in enumerate(plot.lines):
        looks = plot.looks(place)
        for points in _stretches(plot, line.values):
            text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            if len(plot.lines) == 1:
                shape = f"{_on_floor(plot, points[0])} {text} {_on_floor(plot, points[-1])}"
                yield f'<polygon class="a {looks}" points="{shape}"/>'
            yield f'<polyline class="l {looks}" points="{text}"><title>{escape(line.name)}</title></polyline>'


def _on_floor(plot: TimePlot, point: tuple[float, float]) -> str:
    return f"{point[0]:.1f},{_y(plot, 0.0):.1f}"


def _stretches(plot: TimePlot, values: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """Yield runs of values without a gap; a value alone becomes a short line."""
    points: list[tuple[float, float]] = []
    for at, value in zip([*plot.times, 0.0], [*values, None], strict=False):
        if value is not None:
            points.append((_x(plot, at), _y(plot, value)))
        elif points:
            yield points if len(points) > 1 else [points[0], (points[0][0] + 1, points[0][1])]
            points = []


def _limit(plot: TimePlot) -> Iterator[str]:
    if plot.limit is None:
        return
    if plot.shows_limit:
        y = _y(plot, plot.limit)
        yield f'<line class="limit" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>'
        at = y + 12
    else:
        at = _TOP + 8.0
    words = escape(plot.limit_words)
    yield f'<text class="axis strong" x="{WIDTH - _RIGHT - 4}" y="{at:.1f}" text-anchor="end">{words}</text>'


def _instants(plot: TimePlot) -> Iterator[str]:
    first, last = plot.times[0], plot.times[-1]
    form = "%H:%M:%S" if last - first < _SHORT else "%H:%M" if last - first < _LONG else "%d %b"
    for mark in range(_MARKS):
        at = first + (last - first) * mark / (_MARKS - 1)
        anchor = "start" if mark == 0 else "end" if mark == _MARKS - 1 else "middle"
        text = time.strftime(form, time.localtime(at))
        yield f'<text class="axis" x="{_x(plot, at):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{text}</text>'
