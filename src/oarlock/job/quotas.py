"""Quotas of the site: their file, read once and checked; and what of them holds in the time to come."""

import json
import time
from functools import lru_cache
from pathlib import Path

from oarlock.config import Config
from oarlock.lang import quotas
from oarlock.model.quota import BadQuotas, Date, QuotaBook
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.snapshot import QuotaRule, QuotaSpan, ResourceTable
from oarlock.plan.chart import FOREVER

DAYS = 120
"""How far the calendar is looked up; from then on all rules hold at once, which is safe and seldom matters."""

_LARGEST = 1_000_000  # bytes


def book(config: Config) -> QuotaBook | None:
    """Give the quotas of the site; None if it has none. `BadQuotas` says what is wrong with their file."""
    if not config.quotas:
        return None
    if config.quotas_conf_file is None:
        raise BadQuotas("QUOTAS is `yes`, but nothing says which they are.", hint="Set QUOTAS_CONF_FILE to their file.")
    return _read(config.quotas_conf_file)


@lru_cache(maxsize=4)
def _read(path: Path) -> QuotaBook:
    """Read a file once: like any setting, it takes effect when the server starts."""
    try:
        with path.open("rb") as file:
            given = json.loads(file.read(_LARGEST))
    except OSError as problem:
        raise BadQuotas(
            f"The quotas in {path} cannot be read: {problem.strerror}.", hint="Correct QUOTAS_CONF_FILE."
        ) from None
    except ValueError as problem:
        raise BadQuotas(f"The quotas in {path} are not JSON: {problem}.", hint="Correct the file.") from None
    try:
        return quotas.read(given)
    except BadQuotas as refused:
        raise BadQuotas(f"{path}: {refused}", hint=refused.hint) from None


def holding(
    written: QuotaBook, resources: ResourceTable, *, now: int
) -> tuple[tuple[QuotaRule, ...], tuple[QuotaSpan, ...]]:
    """Give the rules that always hold, and those that do for a time; in the server's own time zone."""
    everything = sum(one == DEFAULT_TYPE for one in resources.columns["type"])
    rules = {name: quotas.resolved(one, everything) for name, one in written.sets.items()}
    if not written.week and not written.oneshots:
        return rules.get(written.otherwise, ()), ()
    year, month, day, *_, weekday, _, _ = time.localtime(now)

    def on_day(number: int, second: int) -> int:
        return int(time.mktime((year, month, day + number, 0, second // 60, 0, 0, 0, -1)))

    found = quotas.spans(written, weekday=weekday, days=DAYS, on_day=on_day, on_date=_instant)
    known = tuple(QuotaSpan(one.begin, one.end, rules.get(one.name, ())) for one in found)
    used = {one.name for one in written.week} | {one.name for one in written.oneshots} | {written.otherwise}
    later = tuple(rule for name in sorted(used) for rule in rules.get(name, ()))
    return (), (*known, QuotaSpan(on_day(DAYS, 0), FOREVER, later))


def _instant(date: Date) -> int:
    return int(time.mktime((*date, 0, 0, 0, -1)))
