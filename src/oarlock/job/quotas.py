"""The site's quota file, read again when it changes, and which of its rules hold at which time."""

import json
import logging
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from oarlock.config import Config
from oarlock.lang import quotas
from oarlock.model.limits import BadQuotas, Date, QuotaBook
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.snapshot import QuotaRule, QuotaSpan, ResourceTable
from oarlock.plan.timeline.occupancy import FOREVER

log = logging.getLogger(__name__)

DAYS = 120
"""How far the calendar is looked up; from then on all rules hold at once, which is safe and seldom matters."""

_LARGEST = 1_000_000  # bytes


def current(config: Config) -> QuotaBook | None:
    """Return the quotas of the site as they are now; None if it has none.

    A changed file is read again. If it is bad, what held before goes on to hold and `problem` says so; the first time,
    `BadQuotas` says what is wrong.
    """
    if not config.quotas:
        return None
    if config.quotas_conf_file is None:
        raise BadQuotas("QUOTAS is `yes`, but nothing says which they are.", hint="Set QUOTAS_CONF_FILE to their file.")
    return _file(config.quotas_conf_file).now()


def problem(config: Config) -> str:
    """Return what is wrong with a changed file that is therefore not used; empty if all is well."""
    return _file(config.quotas_conf_file).problem if config.quotas and config.quotas_conf_file else ""


class QuotaFile:
    """A file of quotas, as it was last when it was good."""

    def __init__(self, path: Path) -> None:
        self.problem = ""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._book: QuotaBook | None = None

    def now(self) -> QuotaBook:
        """Return the quotas, read again if the file changed. Reads the file: not for the event loop."""
        seen = self._look()
        if self._book is None or seen != self._seen:
            self._book, self._seen = self._read(), seen
        return self._book

    def _read(self) -> QuotaBook:
        try:
            made = read_file(self._path)
        except BadQuotas as refused:
            if self._book is None:
                raise
            if str(refused) != self.problem:
                log.warning("changed quotas not used", extra={"file": str(self._path), "why": str(refused)})
            self.problem = str(refused)
            return self._book
        self.problem = ""
        if self._book is not None:
            log.info("quotas read again", extra={"file": str(self._path)})
        return made

    def _look(self) -> tuple[int, int, int] | None:
        """Return what changes when the file does."""
        try:
            now = self._path.stat()
        except OSError:
            return None
        return now.st_mtime_ns, now.st_size, now.st_ino


@lru_cache(maxsize=16)
def _file(path: Path) -> QuotaFile:
    return QuotaFile(path)


def read_file(path: Path) -> QuotaBook:
    """Read a file of quotas; `BadQuotas` says what is wrong with it."""
    given = parsed(path)
    try:
        return quotas.read(given)
    except BadQuotas as refused:
        raise BadQuotas(f"{path}: {refused}", hint=refused.hint) from None


def parsed(path: Path) -> Any:
    """Read the JSON of a file; `BadQuotas` if there is none."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(_LARGEST), object_pairs_hook=_once)
    except OSError as problem:
        raise BadQuotas(
            f"The quotas in {path} cannot be read: {problem.strerror}.", hint="Name a file that can be read."
        ) from None
    except ValueError as problem:
        raise BadQuotas(f"The quotas in {path} are not JSON: {problem}.", hint="Correct the file.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON; a name that is there twice would count once only."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise BadQuotas(f"`{name}` is there twice.", hint="Keep one of the two.")
    return dict(pairs)


def rules_over_time(
    written: QuotaBook, resources: ResourceTable, *, now: int
) -> tuple[tuple[QuotaRule, ...], tuple[QuotaSpan, ...]]:
    """Return the rules that always hold, and those that hold for a time, in the server's time zone."""
    rules = _resolved(written, resources)
    if not written.week and not written.oneshots:
        return rules.get(written.otherwise, ()), ()
    spans = tuple(QuotaSpan(span.begin, span.end, rules.get(span.name, ())) for span in _spans(written, now))
    used = {span.name for span in written.week} | {span.name for span in written.oneshots} | {written.otherwise}
    later = tuple(rule for name in sorted(used) for rule in rules.get(name, ()))
    return (), (*spans, QuotaSpan(spans[-1].end, FOREVER, later))


class ActiveQuotaSet(NamedTuple):
    """The set of rules that holds at an instant, and until when; None: for good."""

    name: str
    until: int | None
    rules: tuple[QuotaRule, ...]


def active_at(written: QuotaBook, resources: ResourceTable, *, at: int) -> ActiveQuotaSet:
    """Return which rules hold at an instant."""
    rules = _resolved(written, resources)
    if not written.week and not written.oneshots:
        return ActiveQuotaSet(written.otherwise, None, rules.get(written.otherwise, ()))
    [span] = [candidate for candidate in _spans(written, at) if candidate.begin <= at < candidate.end]
    return ActiveQuotaSet(span.name, span.end, rules.get(span.name, ()))


def _resolved(written: QuotaBook, resources: ResourceTable) -> dict[str, tuple[QuotaRule, ...]]:
    everything = sum(value == DEFAULT_TYPE for value in resources.columns["type"])
    return {name: quotas.resolved(value, everything) for name, value in written.sets.items()}


def _spans(written: QuotaBook, now: int) -> list[quotas.Span]:
    """Return which set holds when, from the start of the day on."""
    year, month, day, *_, weekday, _, _ = time.localtime(now)

    def on_day(number: int, second: int) -> int:
        return int(time.mktime((year, month, day + number, 0, second // 60, 0, 0, 0, -1)))

    return quotas.spans(written, weekday=weekday, days=DAYS, on_day=on_day, on_date=_instant)


def _instant(date: Date) -> int:
    return int(time.mktime((*date, 0, 0, 0, -1)))
