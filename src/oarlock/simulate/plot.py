"""Plots as SVG: the area, its grid, and the scales and labels of its axes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

from oarlock.lang.duration import show

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlotArea:
    """The area between margins. Places in it are shares of its width and height, from the left and from below."""

    width: int = 600
    height: int = 224
    left: int = 62
    right: int = 30
    top: int = 16
    bottom: int = 46

    def x(self, share: float) -> float:
        """Return the x coordinate of a share of the width."""
        return self.left + (self.width - self.left - self.right) * share

    def y(self, share: float) -> float:
        """Return the y coordinate of a share of the height."""
        return self.height - self.bottom - (self.height - self.top - self.bottom) * share

    def rows(self, left: Sequence[str], right: Sequence[str] = ()) -> str:
        """Draw lines across, evenly spaced from the bottom, with their words at the left and at the right."""
        last = len(left) - 1
        drawn = []
        for at, text in enumerate(left):
            y = self.y(at / last)
            drawn += [_grid((self.x(0), y), (self.x(1), y)), _text(self.x(0) - 6, y + 4, text, "end")]
            drawn += [_text(self.x(1) + 6, y + 4, right[at], "start")] if right else []
        return "".join(drawn)

    def columns(self, marks: Iterable[tuple[float, str]]) -> str:
        """Draw lines from top to bottom at these shares of the width, with their words below."""
        return "".join(
            _grid((self.x(at), self.y(1)), (self.x(at), self.y(0))) + _text(self.x(at), self.y(0) + 18, text, "middle")
            for at, text in marks
        )

    def line(self, points: Iterable[Point], looks: str, name: str) -> str:
        """Draw a line; `looks` are its classes."""
        return f'<polyline class="{looks}" points="{self._places(points)}"><title>{escape(name)}</title></polyline>'

    def area(self, points: Sequence[Point], looks: str, name: str) -> str:
        """Fill what is below a line."""
        shape = [(points[0][0], 0.0), *points, (points[-1][0], 0.0)]
        return f'<polygon class="{looks}" points="{self._places(shape)}"><title>{escape(name)}</title></polygon>'

    def drawn(self, parts: Iterable[str], *, across: str, label: str) -> str:
        """Put a picture together; `across` says below it what goes from left to right."""
        below = _text(self.x(0.5), self.height - 6, across, "middle")
        size = f'viewBox="0 0 {self.width} {self.height}"'
        return f'<svg class="plot" {size} role="img" aria-label="{escape(label)}">{"".join(parts)}{below}</svg>'

    def _places(self, points: Iterable[Point]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)


def _grid(begin: Point, end: Point) -> str:
    return f'<line class="grid" x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="note" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STEPS = (
    1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR,
    _DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY, 20 * _DAY, 50 * _DAY, 100 * _DAY, 200 * _DAY, 500 * _DAY,
)  # fmt: skip
_MOST_MARKS = 7
_IN_HOURS = 4 * _DAY


def instants(begin: int, end: int) -> Iterator[tuple[int, str]]:
    """Return round instants within [begin, end], in seconds, each with its label; as many as an axis has room for."""
    step = next((candidate for candidate in _STEPS if (end - begin) / candidate <= _MOST_MARKS), _STEPS[-1])
    step *= max(1, -(-(end - begin) // (step * _MOST_MARKS)))
    return ((at, _instant(at, step)) for at in range(-(-begin // step) * step, end + 1, step))


def _instant(at: int, step: int) -> str:
    """Write an instant as exactly as the step between two of them needs."""
    days, rest = divmod(at, _DAY)
    if step % _DAY == 0:
        return f"{days:,} d"
    if step % _HOUR == 0:
        return f"{days:,} d {rest // _HOUR} h" if days else f"{rest // _HOUR} h"
    clock = show(rest) if step % _MINUTE else show(rest)[:-3]
    return f"{days:,} d {clock}" if days else clock


def top(highest: float) -> int:
    """Return the next round number from a count on up whose quarters are whole."""
    tops = (int(f"{digits}{'0' * power}") for power in count() for digits in (4, 8, 12, 20))
    return next(candidate for candidate in tops if candidate >= highest)


def span(seconds: float) -> str:
    """Write a length of time: hours, minutes, seconds; in days too where hours would be hard to grasp."""
    whole = round(seconds)
    if whole < _IN_HOURS:
        return show(whole) if whole else "0"
    return f"{whole // _DAY:,} d {show(whole % _DAY)}"
