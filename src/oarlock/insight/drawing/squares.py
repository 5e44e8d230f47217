"""Nodes as squares, a square a core. Runs of equal squares are one rectangle filled with a pattern of squares."""

from collections.abc import Sequence
from html import escape

ACROSS = 16
SIDE, STEP = 7, 8
WIDTH = ACROSS * STEP - 1

Run = tuple[str, int]
"""A kind of square (`busy`, `idle`, `free`, `drain`, `c0` to `c7`), and how many of it follow each other."""

KINDS = ("busy", "free", "drain", *(f"c{number}" for number in range(8)))


def patterns() -> str:
    """Return the patterns that drawings of a page are filled with; every page has them once."""
    square = '<pattern id="s-{kind}" width="8" height="9" patternUnits="userSpaceOnUse">{shape}</pattern>'
    shapes = {kind: f'<rect class="f-{kind}" width="7" height="7" rx="1"/>' for kind in KINDS if kind != "drain"}
    shapes["free"] = '<rect class="o-free" x=".5" y=".5" width="6" height="6" rx="1"/>'
    shapes["idle"] = '<rect class="f-idle o-busy" x=".5" y=".5" width="6" height="6" rx="1"/>'
    shapes["drain"] = '<path class="o-drain" d="M.5 .5h6v6h-6zM0 3.5h7"/>'
    drawn = "".join(square.format(kind=kind, shape=shape) for kind, shape in shapes.items())
    return f'<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>{drawn}{_HATCHES}</defs></svg>'


_HATCHES = (
    '<pattern id="p-idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="f-idle" width="6" height="6"/><rect class="f-stripe" width="2" height="6"/></pattern>'
    '<pattern id="p-suspected" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="f-ground" width="5" height="5"/><rect class="f-down" width="3" height="5"/></pattern>'
    '<pattern id="p-best" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="f-stripe" width="2" height="6"/></pattern>'
)


def node_squares(runs: Sequence[Run], *, state: str = "") -> str:
    """Draw a node: its squares, 16 a line; one that is suspected, standby or absent is one block."""
    count = sum(number for _, number in runs)
    lines = max(1, -(-count // ACROSS))
    height = lines * (STEP + 1) - 2
    head = f'<svg class="squares" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" aria-hidden="true">'
    if state in {"suspected", "dead", "standby", "absent"}:
        return f"{head}{_block(state, height)}</svg>"
    return f"{head}{''.join(_rectangles(runs))}</svg>"


def square(kind: str) -> str:
    """Draw one square, for a legend."""
    return (
        f'<svg class="swatch" width="{SIDE}" height="{SIDE}" aria-hidden="true"><rect width="{SIDE}" height="{SIDE}" '
        f'fill="url(#s-{escape(kind)})"/></svg>'
    )


def _block(state: str, height: int) -> str:
    fill = 'fill="url(#p-suspected)"' if state in {"suspected", "dead"} else ""
    return f'<rect class="b-{escape(state)}" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="2" {fill}/>'


def _rectangles(runs: Sequence[Run]) -> list[str]:
    drawn, at = [], 0
    for kind, number in runs:
        left = number
        while left > 0:
            line, column = divmod(at, ACROSS)
            here = min(left, ACROSS - column)
            drawn.append(
                f'<rect x="{column * STEP}" y="{line * (STEP + 1)}" width="{here * STEP - 1}" height="{SIDE}" '
                f'fill="url(#s-{escape(kind)})"/>'
            )
            at, left = at + here, left - here
    return drawn
