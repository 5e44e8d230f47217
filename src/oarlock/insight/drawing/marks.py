"""Small drawings inside of text: meters, efficiency bars, sparklines. All text is escaped here."""

from collections.abc import Sequence
from html import escape
from zlib import crc32

GOOD, FAIR = 0.70, 0.40
"""From which share on something is used well, or fairly."""

COLOURS = 8


def colour_of(name: str) -> str:
    """Return the class of the colour of a user or a job: the same one everywhere."""
    return f"c{crc32(name.encode()) % COLOURS}"


def meter(parts: Sequence[tuple[str, float]], label: str, *, height: int = 10) -> str:
    """Draw shares of a whole (0 to 1) side by side; each has a class (`busy`, `idle`, `down`), the rest is free."""
    drawn, at = [], 0.0
    for kind, share in parts:
        width = max(0.0, min(share, 1.0 - at))
        if width:
            fill = f'fill="url(#p-{kind})"' if kind == "idle" else f'class="f-{kind}"'
            drawn.append(f'<rect x="{100 * at:.2f}%" width="{100 * width:.2f}%" height="{height}" {fill}/>')
        at += width
    return (
        f'<svg class="meter" width="100%" height="{height}" role="img" aria-label="{escape(label)}">{"".join(drawn)}'
        "</svg>"
    )


def efficiency_bar(share: float | None, *, coloured: bool = True) -> str:
    """Draw how much of something was used (0 to 1), with its number; unknown is a dash, never an empty bar."""
    if share is None:
        return '<span class="bar"><span class="unknown">–</span></span>'
    grade = ("good" if share >= GOOD else "warn" if share >= FAIR else "bad") if coloured else "plain"
    width = 100 * max(0.0, min(share, 1.0))
    return (
        f'<span class="bar {grade}"><svg class="track" width="100%" height="8" aria-hidden="true">'
        f'<rect class="f-{grade}" width="{width:.1f}%" height="8"/></svg><span class="figure">{100 * share:.0f} %'
        "</span></span>"
    )


def sparkline(values: Sequence[float | None], *, top: float, label: str, width: int = 96, height: int = 20) -> str:
    """Draw a curve without axes; where nothing was measured there is a gap."""
    stretches: list[list[str]] = [[]]
    last = max(len(values) - 1, 1)
    for at, value in enumerate(values):
        if value is None:
            stretches.append([])
        else:
            y = height - 1 - (height - 2) * min(value / top, 1.0) if top else height - 1
            stretches[-1].append(f"{width * at / last:.1f},{y:.1f}")
    lines = "".join(f'<polyline class="l c0" points="{" ".join(points)}"/>' for points in stretches if points)
    return f'<svg class="spark" width="{width}" height="{height}" role="img" aria-label="{escape(label)}">{lines}</svg>'


def sparkline_image(values: Sequence[float | None], *, top: float, width: int = 72, height: int = 18) -> str:
    """Draw a curve as a picture of its own, which no style sheet reaches: its colour reads on light and dark ground."""
    numbers = [value for value in values if value is not None]
    drawn = sparkline(values, top=top, label="", width=width, height=height) if numbers else ""
    inside = drawn.partition(">")[2].removesuffix("</svg>").replace('class="l c0"', "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'fill="none" stroke="#3a96cf" stroke-width="1.6">{inside}</svg>'
    )
