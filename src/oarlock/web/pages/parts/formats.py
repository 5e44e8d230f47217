"""How numbers, times and sizes are written on pages."""

import time
from collections.abc import Callable
from functools import lru_cache

from oarlock.lang.duration import show

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024
_TENS, _THREE_DIGITS, _HUNDREDTH = 10, 100, 0.01
NOTHING = "–"


def number(value: float | None) -> str:
    """Write a count, with commas between thousands."""
    return NOTHING if value is None else f"{value:,.0f}"


def decimal(value: float | None) -> str:
    """Write a measured number with as many digits as help."""
    if value is None:
        return NOTHING
    if abs(value) >= _THREE_DIGITS:
        return f"{value:,.0f}"
    if 0 < abs(value) < _HUNDREDTH / 2:
        return f"< {_HUNDREDTH}"  # little is not nothing
    return f"{value:,.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.2f}".rstrip("0").rstrip(".")


def percent(share: float | None) -> str:
    """Write a share (0 to 1)."""
    if share is not None and 0 < share < _HUNDREDTH / 2:
        return "< 1 %"
    return NOTHING if share is None else f"{100 * share:.0f} %"


def size(count: float | None) -> str:
    """Write bytes in the unit that leaves at most four digits."""
    if count is None:
        return NOTHING
    value, unit = scaled(count)
    return f"{decimal(value)} {unit}"


def scaled(count: float) -> tuple[float, str]:
    """Return bytes as a number and its unit."""
    at = 0
    while abs(count) >= _STEP and at < len(_UNITS) - 1:
        count, at = count / _STEP, at + 1
    return count, _UNITS[at]


def in_unit_of(count: float, other: float) -> tuple[float, str]:
    """Return bytes in the unit in which another number of bytes is written, and that unit."""
    value, unit = scaled(other)
    return (count * value / other if other else 0.0), unit


def duration(seconds: float | None) -> str:
    """Write a length of time as hours and minutes (`12:00`), with seconds below one hour (`0:41:07`)."""
    if seconds is None:
        return NOTHING
    whole = max(0, round(seconds))
    if whole >= 2 * _DAY:
        return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"
    text = show(whole)
    return text if whole < _HOUR else text[:-3]


def rough(seconds: float | None) -> str:
    """Write a length of time as people say it: `3 h 10`, `12 min`, `2 d`."""
    if seconds is None:
        return NOTHING
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        minutes = whole % _HOUR // _MINUTE
        return f"{whole // _HOUR} h {minutes:02}" if minutes else f"{whole // _HOUR} h"
    hours = whole % _DAY // _HOUR
    return f"{whole // _DAY} d {hours} h" if hours and whole < _TENS * _DAY else f"{whole // _DAY} d"


def clock(instant: float | None, now: float) -> str:
    """Write an instant: the time of a day near `now`, else the date with it. In the zone of the server.

    In the hour that there is twice, when the clocks are set back, with the zone.
    """
    if not instant:
        return NOTHING
    at, today = _local(int(instant)), _local(int(now))
    zone = " %Z" if is_twice(int(instant), lambda other: _local(other).tm_gmtoff) else ""
    if (at.tm_year, at.tm_yday) == (today.tm_year, today.tm_yday):
        return time.strftime(f"%H:%M{zone}", at)
    if at.tm_year == today.tm_year:
        return time.strftime(f"%d %b %H:%M{zone}", at)
    return time.strftime(f"%Y-%m-%d %H:%M{zone}", at)


def is_twice(instant: int, offset: Callable[[int], int]) -> bool:
    """Return whether the time of day of an instant comes twice, as clocks are set back; `offset`: east of UTC."""
    here = offset(instant)
    before, after = offset(instant - _HOUR), offset(instant + _HOUR)
    return before == here + _HOUR or after == here - _HOUR


def exact(instant: float | None) -> str:
    """Write an instant with date, seconds and zone, for titles."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", _local(int(instant))) if instant else NOTHING


def seconds(instant: float) -> str:
    """Write the time of day with its seconds."""
    return time.strftime("%H:%M:%S", _local(int(instant)))


def day(instant: float) -> str:
    """Write the date of a day's sums: days are those of UTC, so that none has 23 hours or 25."""
    return time.strftime("%Y-%m-%d", time.gmtime(int(instant)))


def month_and_day(instant: float) -> str:
    """Write the date of a day's sums shortly."""
    return time.strftime("%d %b", time.gmtime(int(instant)))


@lru_cache(maxsize=4096)
def _local(instant: int) -> time.struct_time:
    return time.localtime(instant)
