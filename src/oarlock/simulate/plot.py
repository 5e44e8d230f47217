"""Plots as SVG: areas, scales and labels; and the curves of a replay: distributions, usage and queue lengths."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, count
from math import log10

from oarlock.lang.duration import show
from oarlock.simulate.compare import PolicyResult
from oarlock.simulate.replay import ReplayedJob

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


_COLOURS = (0, 5, 2, 1, 6, 3, 4, 7)  # those that are easiest to tell apart first
_PLAIN = 4  # so many lines are told apart by their colour alone
_BINS = 300
_SHARES = ("0 %", "25 %", "50 %", "75 %", "100 %")
_SCALES = (range(90, 101, 2), range(80, 101, 5), range(50, 101, 10), range(0, 101, 25))
"""Per cent beside a distribution: where most jobs start at once, only what is above can be told apart."""

Mark = tuple[float, str]
Levels = list[tuple[int, int]]

WAITS: Sequence[Mark] = ((1, "≤ 1 s"), (60, "1 min"), (3600, "1 h"), (86_400, "1 d"), (864_000, "10 d"))
SLOWDOWNS: Sequence[Mark] = ((1, "1"), (10, "10"), (100, "100"), (1000, "1,000"), (10_000, "10,000"))


def looks(number: int) -> str:
    """Return the CSS classes of a policy by its number: the same colour everywhere, dashed from the fifth on."""
    dashes = number // _PLAIN % 4
    return f"c{_COLOURS[number % len(_COLOURS)]}" + (f" d{dashes}" if dashes else "")


def legend(names: Sequence[str]) -> str:
    """Name the lines of a picture."""
    return _keys(
        (f'<line class="l {looks(number)}" y1="5" x2="26" y2="5"/>', name) for number, name in enumerate(names)
    )


def over_time_legend() -> str:
    """Name what stands over time."""
    return _keys((
        ('<rect class="used" width="26" height="10"/>', "in use, share of all resources (left)"),
        ('<line class="l c5" y1="5" x2="26" y2="5"/>', "jobs that wait (right; the same scale for all policies)"),
        ('<rect class="window" x="1" y="1" width="24" height="8"/>', "what the Gantt charts show"),
    ))  # fmt: skip


def _keys(keys: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> str:
    drawn = (f'<span class="key"><svg width="26" height="10">{mark}</svg>{escape(name)}</span>' for mark, name in keys)
    return f'<p class="legend">{"".join(drawn)}</p>'


def distribution(
    results: Sequence[PolicyResult], value: Callable[[ReplayedJob], float], marks: Sequence[Mark], *, across: str
) -> str:
    """Draw which share of the jobs had at most what value; `marks` are values to name below, from the least on."""
    frame = PlotArea()
    low, high = log10(marks[0][0]), log10(marks[-1][0])
    shares = [_shares(sorted(value(ran) for ran in result.ran), low, high) for result in results]
    scale = next(scale for scale in _SCALES if scale[0] <= 100 * min(result[0] for result in shares))
    lines = [
        frame.rows([f"{percent} %" for percent in scale]),
        frame.columns(((log10(at) - low) / (high - low), text) for at, text in marks),
    ]
    for number, (result, shares_of) in enumerate(zip(results, shares, strict=True)):
        points = ((at / _BINS, (100 * share - scale[0]) / (100 - scale[0])) for at, share in enumerate(shares_of))
        lines.append(frame.line(points, f"l {looks(number)}", result.policy))
    return frame.drawn(lines, across=across, label=f"share of jobs by {across}")


def _shares(values: Sequence[float], low: float, high: float) -> list[float]:
    """Return which share of sorted values is at most so large, at even steps between two powers of ten."""
    steps = (10 ** (low + (high - low) * step / _BINS) for step in range(_BINS + 1))
    return [bisect_right(values, step) / len(values) for step in steps]


class UsageOverTime:
    """What was in use and how many jobs waited, from `begin` to `end`, drawn alike for every policy."""

    def __init__(self, results: Sequence[PolicyResult], size: int, begin: int, end: int) -> None:
        self._size, self._begin, self._length = size, begin, max(end - begin, 1)
        self._waiting = {result.policy: list(self._means(_waiting(result))) for result in results}
        self._top = top(max(level for levels in self._waiting.values() for level in levels))

    def draw(self, result: PolicyResult, window: tuple[int, int]) -> str:
        """Draw one policy: an area, a line, and a box around the time that other pictures look at."""
        frame = PlotArea(right=60)
        counts = [f"{self._top * quarter // 4:,}" for quarter in range(5)]
        marks = ((at / self._length, text) for at, text in instants(0, self._length))
        used = [level / self._size for level in self._means(_used(result))]
        waiting = [level / self._top for level in self._waiting[result.policy]]
        left, right = (frame.x(min((at - self._begin) / self._length, 1)) for at in window)
        box = (f'<rect class="window" x="{left:.1f}" y="{frame.y(1):.1f}" width="{max(right - left, 1):.1f}" '
               f'height="{frame.y(0) - frame.y(1):.1f}"/>')  # fmt: skip
        parts = [
            frame.rows(_SHARES, counts), frame.columns(marks), frame.area(_spread(used), "used", "in use"), box,
            frame.line(_spread(waiting), "l c5", "jobs that wait"),
        ]  # fmt: skip
        return frame.drawn(
            parts, across="since the first submission", label=f"in use and waiting under {result.policy}"
        )

    def _means(self, levels: Levels) -> Iterator[float]:
        return _mean_levels(levels, self._begin, self._length)


def most_waiting(result: PolicyResult) -> int:
    """Return the largest number of jobs that ever waited at once."""
    return max((level for _, level in _waiting(result)), default=0)


def _used(result: PolicyResult) -> Levels:
    return _levels(
        [(ran.start, ran.job.processors) for ran in result.ran], [(ran.end, -ran.job.processors) for ran in result.ran]
    )


def _waiting(result: PolicyResult) -> Levels:
    late = [ran for ran in result.ran if ran.wait]  # who starts at once does not wait
    return _levels([(ran.job.submitted, 1) for ran in late], [(ran.start, -1) for ran in late])


def _spread(levels: Sequence[float]) -> list[Point]:
    """Put levels, each the mean of a bin, into the middle of their bins, and let them reach both ends."""
    inner = [((at + 0.5) / len(levels), min(level, 1)) for at, level in enumerate(levels)]
    return [(0, inner[0][1]), *inner, (1, inner[-1][1])]


def _levels(comes: list[tuple[int, int]], goes: list[tuple[int, int]]) -> Levels:
    """Turn comings and goings into levels: from each instant on, how many there are."""
    changes = sorted([*goes, *comes])
    levels = accumulate(change for _, change in changes)
    return [(instant, level) for (instant, _), level in zip(changes, levels, strict=True)]


def _mean_levels(levels: Levels, begin: int, length: int) -> Iterator[float]:
    """Return the mean level of each bin of time."""
    sums = [0.0] * _BINS
    width = length / _BINS
    for (since, level), (until, _) in zip(levels, [*levels[1:], (begin + length, 0)], strict=False):
        first, last = (since - begin) / width, (min(until, begin + length) - begin) / width
        for index in range(int(first), min(int(last), _BINS - 1) + 1):
            sums[index] += level * (min(last, index + 1) - max(first, index))
    return iter(sums)
