"""Which set of rules holds when: the week, day by day, and what holds once instead of it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from oarlock.lang.quotas.week import DAY
from oarlock.model.limits import Date, QuotaBook

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
