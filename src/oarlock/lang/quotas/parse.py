"""The file of quotas, as OAR 3 has it: sets of rules, and when each holds.

`quotas` always holds; with `periodical` and `oneshot` it holds when these say nothing.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from oarlock.lang.limits import short
from oarlock.lang.quotas import week
from oarlock.lang.quotas.rules import read_set
from oarlock.model.limits import ALWAYS, BadQuotas, Date, OneShotQuota, QuotaBook, QuotaPeriod

PERIODICAL, ONE_SHOT, TYPES = "periodical", "oneshot", "job_types"
WORDS = frozenset({PERIODICAL, ONE_SHOT, TYPES})
"""Names in a file that are no sets of rules."""


def read(given: Any) -> QuotaBook:
    """Check what a file says, or refuse it with a sentence (`BadQuotas`).

    `job_types` is accepted: OAR counts only the types it lists; here every type that a rule names is counted.
    """
    if not isinstance(given, Mapping):
        raise BadQuotas("Quotas are an object.", hint='Write {"quotas": {"*,*,*,/": [16, -1, -1]}}.')
    week_lines, shots = lines(given, PERIODICAL, 2), lines(given, ONE_SHOT, 3)
    sets = {name: read_set(name, rules) for name, rules in given.items() if name not in WORDS}
    for line, name in (*((line, line[1]) for line in week_lines), *((line, line[2]) for line in shots)):
        if name not in sets:
            raise BadQuotas(f"`{short(line[0])}` names the rules `{short(name)}`, of which there are none.",
                            hint=f"There are {', '.join(sets) or 'no rules at all'}.")  # fmt: skip
    defaults = [name for text, name, *_ in week_lines if week.is_default(text)]
    periods = [
        period for text, name, *_ in week_lines if not week.is_default(text) for period in week.periods(text, name)
    ]
    otherwise = defaults[-1] if defaults else ALWAYS
    _check_week(periods, covered=otherwise in sets or not week_lines)
    return QuotaBook(sets, tuple(sorted(periods, key=_order)), _shots(shots), otherwise)


def lines(given: Mapping[str, Any], key: str, least: int) -> list[list[str]]:
    """Return the periods of a calendar, each a list of at least so many words."""
    lines_given: list[list[str]] = given.get(key, [])
    good = isinstance(lines_given, list) and all(
        isinstance(line, list) and len(line) >= least and all(isinstance(word, str) for word in line)
        for line in lines_given
    )
    if not good:
        form = (
            '["08:00-19:00 mon-fri * *", "rules"]' if least == 2 else '["2026-12-24 18:00", "2027-01-02 8:00", "rules"]'
        )
        raise BadQuotas(f"`{key}` is not a list of periods.", hint=f"A period is {form}.")
    return lines_given


def _order(period: QuotaPeriod) -> tuple[int, int]:
    return period.weekday, period.begin


def _check_week(periods: list[QuotaPeriod], *, covered: bool) -> None:
    """Refuse instants of a week of which two periods speak; and, where nothing else does, those of which none does."""
    spans = sorted(
        (week.DAY * period.weekday + period.begin, week.DAY * period.weekday + period.end) for period in periods
    )
    edges = [(0, 0), *spans, (week.WEEK, week.WEEK)]
    for (_, end), (begin, _) in pairwise(edges):
        if begin < end:
            raise BadQuotas(f"Two periods speak of {week.spelled(begin)}.", hint="Let one end where the other begins.")
        if begin > end and not covered:
            raise BadQuotas(
                f"No period speaks of {week.spelled(end)}.",
                hint='Add one, a line ["* * * *", "rules"] for the rest of the week, or a set called `quotas`.',
            )


def _shots(lines_given: list[list[str]]) -> tuple[OneShotQuota, ...]:
    shots = sorted(
        (OneShotQuota(date(begin), date(end), name) for begin, end, name, *_ in lines_given),
        key=lambda shot: shot.begin,
    )
    for shot in shots:
        if shot.end <= shot.begin:
            raise BadQuotas(f"A period of {shot.name} ends before it begins.", hint="Swap its two dates.")
    for first, second in pairwise(shots):
        if second.begin < first.end:
            raise BadQuotas(
                f"Two periods overlap: {first.name} and {second.name}.", hint="Let one end where the other begins."
            )
    return tuple(shots)


def date(text: str) -> Date:
    """Read a local date: YYYY-MM-DD hh:mm."""
    day, _, clock = text.strip().partition(" ")
    parts = [*day.split("-"), *clock.strip().split(":")]
    if len(parts) in {5, 6} and all(part.isdecimal() and part.isascii() and len(part) <= 4 for part in parts):
        year, month, day_of_month, hour, minute = map(int, parts[:5])
        if 1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day_of_month <= 31 and hour < 24 and minute < 60:
            return year, month, day_of_month, hour, minute
    raise BadQuotas(f"`{short(text)}` is not a date.", hint="Write it as YYYY-MM-DD hh:mm.")
