"""The days that reports and digests are about, and the hours in which mails are sent."""

import re
import time
from calendar import timegm

from msgspec import Struct

from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest

DAY = 86_400
_MONTH = re.compile(r"(19[7-9]\d|[2-9]\d{3})-(0[1-9]|1[0-2])", re.ASCII)
_FRIDAY = 4


class ReportPeriod(Struct, frozen=True):
    """Whole days (UTC) in [since, until), and those before them that they are compared with, from `before` on."""

    since: int
    until: int
    before: int


def month_period(text: str) -> ReportPeriod:
    """Return the days of a month, `YYYY-MM`; they are compared with the month before."""
    match = _MONTH.fullmatch(text)
    if match is None:
        raise BadRequest(f"`{short(text)}` is not a month.", hint="Write it as YYYY-MM, from 1970-01 on.")
    return _month(int(match[1]), int(match[2]))


def last_month(now: int) -> ReportPeriod:
    """Return the last whole month, and the one before it."""
    year, month = time.gmtime(now)[:2]
    return _month(year, month - 1)


def last_week(now: int) -> ReportPeriod:
    """Return the last whole week, Monday to Sunday, and the one before it."""
    day = now // DAY
    monday = (day - (day + 3) % 7) * DAY  # 1 January 1970 was a Thursday
    return ReportPeriod(max(monday - 7 * DAY, 0), monday, max(monday - 14 * DAY, 0))


def _month(year: int, month: int) -> ReportPeriod:
    return ReportPeriod(_month_begin(year, month), _month_begin(year, month + 1), _month_begin(year, month - 1))


def _month_begin(year: int, month: int) -> int:
    """Return the instant at which a month begins, 0 at least; months 0 and 13 are those of the years beside."""
    years, index = divmod(month - 1, 12)
    return max(timegm((year + years, index + 1, 1, 0, 0, 0)), 0)


def is_working_hour(now: int, hours: str) -> bool:
    """Return whether an instant is in working hours (`9-17`, until the second hour begins), Monday to Friday."""
    first, _, last = hours.partition("-")
    local = time.localtime(now)
    return local.tm_wday <= _FRIDAY and int(first) <= local.tm_hour < int(last)
