"""The language of quotas: OAR 3's file, read and checked; and what of its calendar holds when."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from oarlock.lang.limits import short
from oarlock.model.limits import ALWAYS, BadQuotas, Date, OneShotQuota, QuotaAmount, QuotaBook, QuotaPeriod, WrittenRule
from oarlock.model.snapshot import QuotaRule

_AMOUNT = re.compile(r"(?:(?P<number>-?\d{1,15}(?:\.\d{1,9})?)(?P<times>\s*\*\s*ALL)?|(?P<all>ALL))")
_NAME = re.compile(r"[^\s,*/]{1,255}|[*/]")
_FIELDS = "queue,project,type,user"
_NO_LIMIT = QuotaAmount(-1)


def read_set(name: str, given: Any) -> tuple[WrittenRule, ...]:
    """Read a set of rules."""
    if not isinstance(given, Mapping):
        raise BadQuotas(f"`{short(name)}` is not a set of rules.", hint=f'Write {{"{_FIELDS}": [16, -1, -1], …}}.')
    return tuple(rule(key, value) for key, value in given.items())


def rule(key: str, value: Any) -> WrittenRule:
    """Read one rule: whom it is for, and its limits."""
    who = [part.strip() for part in key.split(",")]
    if len(who) != 4 or not all(map(_NAME.fullmatch, who)):
        raise BadQuotas(
            f"`{short(key)}` does not say whom a quota is for.",
            hint=f"Write {_FIELDS}: a name each, * for all together, / for each by itself.",
        )
    if who[2] == "/":
        raise BadQuotas(f"`{short(key)}`: types cannot be counted each by itself.", hint="Write * or the type's name.")
    limits = value if isinstance(value, list) else [value, -1, -1]
    if len(limits) != 3:
        raise BadQuotas(
            f"The quota `{short(key)}` has {len(limits)} limits.",
            hint="It has three: resources, jobs and resource-hours at once; -1 is no limit.",
        )
    queue, project, job_type, user = who
    return WrittenRule(queue, project, job_type, user, *(_amount(key, limit) for limit in limits))


def _amount(key: str, given: Any) -> QuotaAmount:
    match = None if isinstance(given, bool) else _AMOUNT.fullmatch(str(given).strip())
    if match is None:
        raise BadQuotas(
            f"The quota `{short(key)}` has the limit `{short(str(given))}`, which is none.",
            hint="A limit is a number, ALL, or a number times ALL such as 0.5*ALL; -1 is no limit.",
        )
    number = float(match["number"] or 1)
    return _NO_LIMIT if number < 0 else QuotaAmount(number, of_all=bool(match["times"] or match["all"]))


def resolved(rules: Iterable[WrittenRule], everything: int) -> tuple[QuotaRule, ...]:
    """Return rules in numbers, for a cluster of so many resources; fractions of a resource are cut off."""
    return tuple(
        QuotaRule(
            rule.queue,
            rule.project,
            rule.job_type,
            rule.user,
            int(rule.resources.value(everything)),
            int(rule.jobs.value(everything)),
            -1 if rule.hours == _NO_LIMIT else int(rule.hours.value(everything) * 3600),
        )
        for rule in rules
    )


HOUR = 3600
DAY, WEEK = 24 * HOUR, 7 * 24 * HOUR
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DEFAULTS = frozenset({"* * * *", "*,*,*,*", "default"})


def is_default(text: str) -> bool:
    """Return whether a line stands for the rest of the week."""
    return " ".join(text.split()) in _DEFAULTS


def weekly_periods(text: str, name: str) -> list[QuotaPeriod]:
    """Read a line: a period for each day it speaks of."""
    words = text.split()
    if len(words) != 4 or words[2:] != ["*", "*"]:
        raise BadQuotas(
            f"`{short(text)}` is not a period of a week.",
            hint="Write hours, days and two stars: 08:00-19:00 mon-fri * *  (dates belong into `oneshot`).",
        )
    begin, end = _hours(words[0], text)
    return [QuotaPeriod(day, begin, end, name) for day in _days(words[1], text)]


def spell_instant(second: int) -> str:
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
    defaults = [name for text, name, *_ in week_lines if is_default(text)]
    periods = [period for text, name, *_ in week_lines if not is_default(text) for period in weekly_periods(text, name)]
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
    spans = sorted((DAY * period.weekday + period.begin, DAY * period.weekday + period.end) for period in periods)
    edges = [(0, 0), *spans, (WEEK, WEEK)]
    for (_, end), (begin, _) in pairwise(edges):
        if begin < end:
            raise BadQuotas(f"Two periods speak of {spell_instant(begin)}.", hint="Let one end where the other begins.")
        if begin > end and not covered:
            raise BadQuotas(
                f"No period speaks of {spell_instant(end)}.",
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


OnDay = Callable[[int, int], int]
"""The instant of a second of the n-th day from the first one on; the caller knows the time zone and its summer time."""


class Span(NamedTuple):
    """A set of rules that holds during [begin, end)."""

    begin: int
    end: int
    name: str


def spans(book: QuotaBook, *, weekday: int, days: int, on_day: OnDay, on_date: Callable[[Date], int]) -> list[Span]:
    """Return what holds on so many days, the first of which is that weekday; one span ends where the next begins."""
    week = [span for day in range(days) for span in _of_day(book, (weekday + day) % 7, day, on_day)]
    shots = [Span(on_date(span.begin), on_date(span.end), span.name) for span in book.oneshots]
    begin, end = on_day(0, 0), on_day(days, 0)
    inside = [Span(max(span.begin, begin), min(span.end, end), span.name) for span in shots]
    once = [span for span in inside if span.begin < span.end]
    return _joined(sorted([*once, *_around(week, once)]))


def _of_day(book: QuotaBook, weekday: int, day: int, on_day: OnDay) -> Iterable[Span]:
    """Return what holds on a day: its periods, and between them the default."""
    at = 0
    for period in [day for day in book.week if day.weekday == weekday]:
        yield Span(on_day(day, at), on_day(day, period.begin), book.otherwise)
        yield Span(on_day(day, period.begin), on_day(day, period.end), period.name)
        at = period.end
    yield Span(on_day(day, at), on_day(day, DAY), book.otherwise)


def _around(week: Iterable[Span], once: Iterable[Span]) -> Iterable[Span]:
    """Return what is left of spans beside those that hold once."""
    left = list(week)
    for shot in once:
        left = [
            piece
            for span in left
            for piece in (
                Span(span.begin, min(span.end, shot.begin), span.name),
                Span(max(span.begin, shot.end), span.end, span.name),
            )
            if piece.begin < piece.end
        ]
    return left


def _joined(spans_given: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans_given:
        if span.begin >= span.end:
            continue
        if joined and joined[-1].name == span.name and joined[-1].end == span.begin:
            joined[-1] = Span(joined[-1].begin, span.end, span.name)
        else:
            joined.append(span)
    return joined


def mistakes(given: Any) -> list[BadQuotas]:
    """Return every mistake; one that only shows when all the rest is right (a gap in the week) comes alone."""
    parts = _parts(given) if isinstance(given, Mapping) else iter(())
    problems = [refused for refused in map(_tried, parts) if refused]
    if problems:
        return problems
    rest = _tried(lambda: read(given))
    return [rest] if rest else []


def _tried(step: Callable[[], object]) -> BadQuotas | None:
    try:
        step()
    except BadQuotas as refused:
        return refused
    return None


def _parts(given: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
    """Return a check for each rule and each period."""
    for name, rules in given.items():
        if name not in WORDS:
            pieces = [{key: value} for key, value in rules.items()] if isinstance(rules, Mapping) else [rules]
            yield from (partial(read_set, name, piece) for piece in pieces)
    for key, least in ((PERIODICAL, 2), (ONE_SHOT, 3)):
        reading = partial(lines, given, key, least)
        if _tried(reading):
            yield reading
            continue
        for line in reading():
            yield partial(_named, given, line[0], line[least - 1])
            yield from [partial(_period, line[0])] if key == PERIODICAL else [partial(date, text) for text in line[:2]]


def _named(given: Mapping[str, Any], text: str, name: str) -> None:
    if name not in given or name in WORDS:
        raise BadQuotas(
            f"`{text}` names the rules `{name}`, of which there are none.",
            hint=f"There are {', '.join(name for name in given if name not in WORDS) or 'no rules at all'}.",
        )


def _period(text: str) -> None:
    if not is_default(text):
        weekly_periods(text, "")


def unused(book: QuotaBook) -> list[str]:
    """Name the sets of rules that never hold."""
    used = {period.name for period in book.week} | {period.name for period in book.oneshots} | {book.otherwise}
    return [name for name in book.sets if name not in used]
