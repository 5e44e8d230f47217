"""Pictures of a replay as SVG: distributions on a logarithmic scale, and what was in use and waiting over time."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import accumulate
from math import log10

from oarlock.lang.duration import show
from oarlock.simulate.compare import Result
from oarlock.simulate.replay import Ran

LINES = (0, 5, 2, 1, 6, 3, 4, 7)
"""Colour classes of lines, the ones that are easiest to tell apart first."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 600, 190, 46, 34
_PLOT = (_WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - 8)
_BINS = 300

Point = tuple[float, float]


def distribution(results: Sequence[Result], value: Callable[[Ran], float], marks: Sequence[tuple[float, str]]) -> str:
    """Draw which share of the jobs had at most what value; `marks` are values to name below, from the least on."""
    low, high = log10(marks[0][0]), log10(marks[-1][0])
    width, height = _PLOT

    def across(amount: float) -> float:
        return _LEFT + width * (min(max(log10(max(amount, marks[0][0])), low), high) - low) / (high - low)

    lines = [_grid(), *(_mark(across(at), text) for at, text in marks)]
    for colour, one in zip(LINES, results, strict=False):
        values = sorted(value(ran) for ran in one.ran)
        points = []
        for step in range(_BINS + 1):
            at = 10 ** (low + (high - low) * step / _BINS)
            share = bisect_right(values, at) / (len(values) or 1)
            points.append((across(at), 8 + height * (1 - share)))
        lines.append(_line(points, colour, one.policy))
    return _svg(lines, "share of jobs")


def over_time(one: Result, size: int, begin: int, end: int) -> str:
    """Draw how much was in use (area) and how many jobs waited (line) from begin to end."""
    width, height = _PLOT
    used = _steps(
        [(ran.start, ran.job.processors) for ran in one.ran], [(ran.end, -ran.job.processors) for ran in one.ran]
    )
    waiting = _steps([(ran.job.submitted, 1) for ran in one.ran], [(ran.start, -1) for ran in one.ran])
    longest = max((count for _, count in waiting), default=0) or 1

    def points(steps: list[tuple[int, int]], top: float) -> list[Point]:
        length = max(end - begin, 1)
        return [
            (_LEFT + width * at / _BINS, 8 + height * (1 - min(level / top, 1)))
            for at, level in enumerate(_mean_levels(steps, begin, length))
        ]

    area = points(used, size)
    floor = 8 + height
    shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(_LEFT, floor), *area, (area[-1][0], floor)])
    days = (end - begin) / 86400
    marks = [_mark(_LEFT + width * part / 4, f"{days * part / 4:.3g} d") for part in range(5)]
    told = f'<text class="note" x="{_LEFT + width}" y="18" text-anchor="end">at most {longest:,} waiting</text>'
    lines = [_grid(), *marks, f'<polygon class="used" points="{shape}"><title>in use</title></polygon>',
             _line(points(waiting, longest), 5, "waiting"), told]  # fmt: skip
    return _svg(lines, "in use")


def legend(names: Sequence[str]) -> str:
    """Name the lines of a picture."""
    keys = (
        f'<span class="key"><svg width="18" height="10"><line class="l c{colour}" y1="5" x2="18" y2="5"/></svg>'
        f"{escape(name)}</span>"
        for colour, name in zip(LINES, names, strict=False)
    )
    return f'<p class="legend">{"".join(keys)}</p>'


def waits() -> list[tuple[float, str]]:
    """Give the waits to name below a distribution."""
    return [(1, "≤ 1 s"), (60, "1 min"), (3600, "1 h"), (86_400, "1 d"), (864_000, "10 d")]


def slowdowns() -> list[tuple[float, str]]:
    """Give the slowdowns to name below a distribution."""
    return [(1, "1"), (10, "10"), (100, "100"), (1000, "1,000"), (10_000, "10,000")]


def span(seconds: int) -> str:
    """Write a length of time."""
    return show(max(seconds, 1))


def _steps(comes: list[tuple[int, int]], goes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Turn comings and goings into levels: from each instant on, how many there are."""
    changes = sorted([*goes, *comes])
    levels = accumulate(change for _, change in changes)
    return [(instant, level) for (instant, _), level in zip(changes, levels, strict=True)]


def _mean_levels(steps: list[tuple[int, int]], begin: int, length: int) -> Iterator[float]:
    """Give the mean level of each bin of time."""
    sums = [0.0] * _BINS
    width = length / _BINS
    for (since, level), (until, _) in zip(steps, [*steps[1:], (begin + length, 0)], strict=True):
        first, last = (since - begin) / width, (min(until, begin + length) - begin) / width
        for index in range(int(first), min(int(last), _BINS - 1) + 1):
            sums[index] += level * (min(last, index + 1) - max(first, index))
    return iter(sums)


def _grid() -> str:
    width, height = _PLOT
    rows = []
    for quarter in range(5):
        y = 8 + height * quarter / 4
        rows.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + width}" y2="{y:.1f}"/>'
                    f'<text class="note" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                    f"{100 - 25 * quarter} %</text>")  # fmt: skip
    return "".join(rows)


def _mark(x: float, text: str) -> str:
    y = _HEIGHT - _BOTTOM
    return (f'<line class="grid" x1="{x:.1f}" y1="8" x2="{x:.1f}" y2="{y}"/>'
            f'<text class="note" x="{x:.1f}" y="{y + 16}" text-anchor="middle">{escape(text)}</text>')  # fmt: skip


def _line(points: Sequence[Point], colour: int, name: str) -> str:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="l c{colour}" points="{drawn}"><title>{escape(name)}</title></polyline>'


def _svg(parts: Sequence[str], label: str) -> str:
    inside = "".join(parts)
    return f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">{inside}</svg>'
