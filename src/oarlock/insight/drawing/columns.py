"""Columns over days: how much of what was held was used."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, _LEFT, _BOTTOM, _TOP = 1196, 170, 48, 22, 8
WIDTH_IN_MAIN = 776
"""In a card of the main column, beside the narrow one."""

_NARROWEST, _WIDEST, _GAP = 2.0, 72.0, 0.25
_GRID, _HALF_A_NAME = 4, 22


@dataclass(frozen=True, slots=True)
class DayColumn:
    """A column: its name below, what was held and what of it was used, and a sentence.

    `parts` are drawn instead, one on the other, if there are some: the class of a colour, and how much it is.
    """

    name: str
    held: float
    used: float
    title: str
    parts: Sequence[tuple[str, float]] = ()


def draw_columns(columns: Sequence[DayColumn], *, unit: str, label: str, width: int = WIDTH) -> str:
    """Draw columns, the used part solid in the held one; every few of them has its name below."""
    top = round_top(max((column.held for column in columns), default=0.0))
    step = (width - _LEFT) / max(len(columns), 1)
    wide = min(max(step * (1 - _GAP), _NARROWEST), _WIDEST)
    inside = HEIGHT - _TOP - _BOTTOM
    drawn = [_grid(top, unit, inside, width)]
    named = max(1, -(-len(columns) * 50 // (width - _LEFT)))
    for place, column in enumerate(columns):
        x = _LEFT + step * place + (step - wide) / 2
        rects = [
            f'<rect class="{kind}" x="{x:.1f}" y="{_TOP + inside * (1 - upper / top):.1f}" width="{wide:.1f}" '
            f'height="{inside * (upper - lower) / top:.1f}"/>'
            for kind, lower, upper in _layers(column)
            if top
        ]
        drawn.append(f'<g class="day"><title>{escape(column.title)}</title>{"".join(rects)}</g>')
        if place % named == 0:
            middle = x + wide / 2
            at, anchor = (middle, "middle") if middle < width - _HALF_A_NAME else (float(width), "end")
            drawn.append(
                f'<text class="g-time" x="{at:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
                f"{escape(column.name)}</text>"
            )
    return (
        f'<svg class="columns-chart" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(drawn)}</svg>'
    )


def _layers(column: DayColumn) -> Iterator[tuple[str, float, float]]:
    """Yield the rectangles of a column: their class, and between which amounts they stand."""
    if not column.parts:
        yield "f-idle o-busy", 0.0, column.held
        yield "f-busy", 0.0, column.used
    below = 0.0
    for colour, amount in column.parts:
        yield f"f-{escape(colour)}", below, below + amount
        below += amount


def _grid(top: float, unit: str, inside: float, width: int) -> str:
    lines = []
    for place in range(_GRID + 1):
        y = _TOP + inside * (1 - place / _GRID)
        value = f"{top * place / _GRID:,.3g}" if top < 1000 else f"{top * place / _GRID:,.0f}"
        text = f"{value} {unit}" if place == _GRID else value
        anchor = 'text-anchor="end"' if place < _GRID else ""
        x = _LEFT - 6 if place < _GRID else 0
        lines.append(
            f'<path class="g-line" d="M{_LEFT} {y:.1f}H{width}"/>'
            f'<text class="g-time" x="{x}" y="{y + 4:.1f}" {anchor}>{escape(text)}</text>'
        )
    return "".join(lines)


def round_top(highest: float) -> float:
    """Return a round number that is not below the highest value: 1, 2, 2.5 or 5 times a power of ten."""
    if highest <= 0:
        return 0.0
    power = 1.0
    while power * 10 <= highest:
        power *= 10
    while power > highest:
        power /= 10
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= highest)
