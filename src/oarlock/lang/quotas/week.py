"""A period of the week: `08:00-19:00 mon-fri * *`, the time of day, the days, and two stars."""

import re

from oarlock.lang.limits import short
from oarlock.model.limits import BadQuotas, QuotaPeriod

HOUR = 3600
DAY, WEEK = 24 * HOUR, 7 * 24 * HOUR
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DEFAULTS = frozenset({"* * * *", "*,*,*,*", "default"})


def is_default(text: str) -> bool:
    """Return whether a line stands for the rest of the week."""
    return " ".join(text.split()) in _DEFAULTS


def periods(text: str, name: str) -> list[QuotaPeriod]:
    """Read a line: a period for each day it speaks of."""
    words = text.split()
    if len(words) != 4 or words[2:] != ["*", "*"]:
        raise BadQuotas(
            f"`{short(text)}` is not a period of a week.",
            hint="Write hours, days and two stars: 08:00-19:00 mon-fri * *  (dates belong into `oneshot`).",
        )
    begin, end = _hours(words[0], text)
    return [QuotaPeriod(day, begin, end, name) for day in _days(words[1], text)]


def spelled(second: int) -> str:
    """Write an instant of the week: mon 08:00."""
    minutes = second % DAY // 60
    return f"{_DAYS[second // DAY % 7]} {minutes // 60:02}:{minutes % 60:02}"


def _hours(text: str, line: str) -> tuple[int, int]:
    if text == "*":
        return 0, DAY
    match = _CLOCK.fullmatch(text)
    if match:
        hours = [int(part) for part in match.groups()]
        begin, end = hours[0] * HOUR + hours[1] * 60, (hours[2] * HOUR + hours[3] * 60) or DAY
        if max(hours[1], hours[3]) < 60 and begin < end <= DAY:
            return begin, end
    raise BadQuotas(f"`{short(line)}` has no good hours.", hint="Write 08:00-19:00; 19:00-00:00 goes to midnight.")


def _days(text: str, line: str) -> list[int]:
    if text == "*":
        return list(range(7))
    days: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in _DAYS or (dash and last not in _DAYS):
            raise BadQuotas(f"`{short(line)}` has no good days.", hint=f"Days are {', '.join(_DAYS)}, or mon-fri.")
        begin = _DAYS.index(first)
        count = (_DAYS.index(last) - begin) % 7 + 1 if dash else 1
        days += [(begin + more) % 7 for more in range(count)]
    return days
