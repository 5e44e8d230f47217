"""Round numbers along an axis, and lengths of time in words."""

from collections.abc import Iterator
from itertools import count

from oarlock.lang.duration import show

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
