"""All that is wrong with a file of quotas, not only the first thing."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from oarlock.lang.quotas import week
from oarlock.lang.quotas.parse import ONE_SHOT, PERIODICAL, WORDS, date, lines, read
from oarlock.lang.quotas.rules import read_set
from oarlock.model.limits import BadQuotas, QuotaBook


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
    if not week.is_default(text):
        week.periods(text, "")


def unused(book: QuotaBook) -> list[str]:
    """Name the sets of rules that never hold."""
    used = {period.name for period in book.week} | {period.name for period in book.oneshots} | {book.otherwise}
    return [name for name in book.sets if name not in used]
