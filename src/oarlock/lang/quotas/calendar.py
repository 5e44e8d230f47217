"""Which set of rules holds when: the week, day by day, and what holds once instead of it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from oarlock.lang.quotas.week import DAY
from oarlock.model.quota import Date, QuotaBook

OnDay = Callable[[int, int], int]
"""The instant of a second of the n-th day from the first one on; the caller knows the time zone and its summer time."""


class Span(NamedTuple):
    """A set of rules that holds during [begin, end)."""

    begin: int
    end: int
    name: str


def spans(book: QuotaBook, *, weekday: int, days: int, on_day: OnDay, on_date: Callable[[Date], int]) -> list[Span]:
    """Give what holds on so many days, the first of which is that weekday; one span ends where the next begins."""
    week = [span for day in range(days) for span in _of_day(book, (weekday + day) % 7, day, on_day)]
    shots = [Span(on_date(one.begin), on_date(one.end), one.name) for one in book.oneshots]
    begin, end = on_day(0, 0), on_day(days, 0)
    inside = [Span(max(one.begin, begin), min(one.end, end), one.name) for one in shots]
    once = [one for one in inside if one.begin < one.end]
    return _joined(sorted([*once, *_around(week, once)]))


def _of_day(book: QuotaBook, weekday: int, day: int, on_day: OnDay) -> Iterable[Span]:
    """Give what holds on a day: its periods, and between them what holds otherwise."""
    at = 0
    for period in [one for one in book.week if one.weekday == weekday]:
        yield Span(on_day(day, at), on_day(day, period.begin), book.otherwise)
        yield Span(on_day(day, period.begin), on_day(day, period.end), period.name)
        at = period.end
    yield Span(on_day(day, at), on_day(day, DAY), book.otherwise)


def _around(week: Iterable[Span], once: Iterable[Span]) -> Iterable[Span]:
    """Give what is left of spans beside those that hold once."""
    left = list(week)
    for shot in once:
        left = [
            piece
            for one in left
            for piece in (
                Span(one.begin, min(one.end, shot.begin), one.name),
                Span(max(one.begin, shot.end), one.end, one.name),
            )
            if piece.begin < piece.end
        ]
    return left


def _joined(found: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for one in found:
        if one.begin >= one.end:
            continue
        if joined and joined[-1].name == one.name and joined[-1].end == one.begin:
            joined[-1] = Span(joined[-1].begin, one.end, one.name)
        else:
            joined.append(one)
    return joined
