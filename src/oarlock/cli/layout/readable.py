"""Text for people: tables, and instants and durations in local time, as OAR prints them and as people type them.

Dates are computed by hand: `datetime` takes long to load.
"""

from __future__ import annotations

import time

from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Column = tuple[str, int, str]

_DATE = "YYYY-MM-DD hh:mm:ss"


def date(instant: int) -> str:
    """Write an instant: `2026-11-15 18:22:42`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(instant))


def duration(seconds: int) -> str:
    """Write a duration as the table has it: `0:00:07`."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def energy(joules: float) -> str:
    """Write an amount of energy in the unit in which it has few digits."""
    if joules >= 360_000:
        return f"{joules / 3_600_000:.2f} kWh"
    return f"{joules / 3600:.1f} Wh" if joules >= 3600 else f"{joules:.0f} J"


def walltime(seconds: int) -> str:
    """Write a duration as requests have it: `0:10:0`."""
    return f"{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}"


def instant(text: str, *, what: str) -> int:
    """Read `YYYY-MM-DD hh:mm:ss` or `YYYY-MM-DD` as local time; `what` names the option in a refusal."""
    day, _, clock = text.strip().partition(" ")
    parts = [*_numbers(day, "-", 3), *_numbers(clock.strip() or "0:0:0", ":", 3)]
    if None not in parts:
        made = time.struct_time((*parts, 0, 0, -1))
        try:
            seconds = int(time.mktime(made))
        except (OverflowError, ValueError):
            seconds = -1
        # 30 February is quietly the 2nd of March for the C library; the calendar says otherwise.
        if time.localtime(seconds)[:3] == made[:3] and made.tm_hour < 24 and made.tm_min < 60 and made.tm_sec < 60:
            return seconds
    raise RequestRefused(f"{what}: `{text.strip()}` is not a date.", kind="BadDate", hint=f'Write it as "{_DATE}".')


def interval(text: str, *, what: str) -> tuple[int, int]:
    """Read two dates with a comma between them; the second must not be earlier."""
    first, comma, second = text.partition(",")
    if not comma:
        raise RequestRefused(
            f"{what} takes two dates, not `{text}`.", kind="BadDate", hint=f'Write "{_DATE}, {_DATE}".'
        )
    since, until = instant(first, what=what), instant(second, what=what)
    if until < since:
        raise RequestRefused(
            f"{what}: {date(until)} is before {date(since)}.", kind="BadDate", hint="Swap the two dates."
        )
    return since, until


def _numbers(text: str, separator: str, count: int) -> list[int | None]:
    parts = text.split(separator)
    if len(parts) != count:
        return [None]
    return [int(part) if part.isdecimal() and part.isascii() and len(part) <= 4 else None for part in parts]


def table(columns: tuple[Column, ...], rows: Sequence[tuple[object, ...]], *, indent: str = "") -> list[str]:
    """Lay out rows below heads and a rule; `indent` moves only those two. A column is its head, width and format."""
    heads = " ".join(f"{head:<{width}}" for head, width, _ in columns)
    rule = " ".join("-" * width for _, width, _ in columns)
    form = " ".join(form for _, _, form in columns)
    return [indent + heads.rstrip(), indent + rule, *(form % row for row in rows)]


def natural_order(value: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts node2 before node10."""
    import re

    def key(part: str) -> tuple[int, int, str]:
        digits = part.lstrip("0")  # compared by length, then as text: no number is too long for that
        return (0, len(digits), f"{digits} {part}") if part[0].isdigit() else (1, 0, part)

    return [key(part) for part in re.split(r"([0-9]+)", value) if part]
