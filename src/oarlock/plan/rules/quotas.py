"""Quotas: how much users, projects, queues and job types may have at once, counted over time.

A rule selects jobs by queue, project, type and user: a name, `*` (all of them together) or `/` (each by itself). It
limits the resources, the jobs and the resource-seconds (resources times walltime) in use at the same instant. Every
rule that selects a job applies to it, but a rule with a name replaces the one with `/` for that name. Container jobs
are not counted: their inner jobs are. Best-effort jobs count only against each other. Jobs of type `no_quotas` are
neither limited nor counted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from oarlock.model.job_type import parse_types
from oarlock.model.snapshot import PlacedJob, QuotaRule, QuotaSpan, WaitingJob
from oarlock.plan.timeline.occupancy import FOREVER, Occupation

ALL_TOGETHER, EACH = "*", "/"
_NO_LIMIT = 1 << 80

Span = tuple[int, int]
Selection = tuple[str, str, str, str]
"""Whose use is counted: queue, project, type, user."""


class QuotaUse(NamedTuple):
    """What jobs use at an instant: resources, the number of jobs, and resources times walltime."""

    resources: int
    jobs: int
    seconds: int


class QuotaCounter:
    """What some jobs use together over time: `used[i]` from `times[i]` on; the last slot is empty and has no end."""

    __slots__ = ("times", "used")

    def __init__(self) -> None:
        self.times: list[int] = [0]
        self.used: list[QuotaUse] = [QuotaUse(0, 0, 0)]

    def add(self, start: int, stop: int, use: QuotaUse) -> None:
        """Add the use of a job during [start, stop); a negative use removes it."""
        first, last = self._cut(start), self._cut(stop)
        self.used[first:last] = [QuotaUse(*map(sum, zip(used, use, strict=True))) for used in self.used[first:last]]

    def over(self, begin: int, end: int, headroom: QuotaUse) -> int | None:
        """Return the end of the last slot in [begin, end) that uses more than `headroom`; None if no slot does."""
        for index in range(bisect_left(self.times, end) - 1, bisect_right(self.times, begin) - 2, -1):
            if any(used > most for used, most in zip(self.used[index], headroom, strict=True)):
                return self.times[index + 1]
        return None

    def most(self, begin: int, end: int) -> QuotaUse:
        """Return the maximum of each measure in [begin, end)."""
        inside = self.used[bisect_right(self.times, begin) - 1 : bisect_left(self.times, end)]
        return QuotaUse(*map(max, zip(*inside, strict=True)))

    def _cut(self, instant: int) -> int:
        index = bisect_left(self.times, instant)
        if index == len(self.times) or self.times[index] != instant:
            self.times.insert(index, instant)
            self.used.insert(index, self.used[index - 1])
        return index


class QuotaLimit(NamedTuple):
    """A rule that applies to a job: when it holds, and the counter of the jobs that it counts together."""

    rule: QuotaRule
    spans: tuple[Span, ...]
    counter: QuotaCounter

    def headroom(self, use: QuotaUse) -> QuotaUse:
        """Return what other jobs may use beside such a job; negative if the job alone is too much."""
        most = self.rule.resources, self.rule.jobs, self.rule.resource_seconds
        return QuotaUse(*(_NO_LIMIT if limit < 0 else limit - own for limit, own in zip(most, use, strict=True)))

    def clear_from(self, start: int, length: int, use: QuotaUse) -> int:
        """Return the earliest start from `start` on at which such a job does not break the rule for `length`."""
        headroom = self.headroom(use)
        for begin, end in self.spans:
            while begin < start + length and start < end:
                over = (
                    end
                    if min(headroom) < 0
                    else self.counter.over(max(begin, start), min(end, start + length), headroom)
                )
                if over is None:
                    break
                start = min(over, end)
        return start


class JobQuotas(NamedTuple):
    """The limits that apply to a job, and the counters in which it is counted."""

    limits: tuple[QuotaLimit, ...]
    counters: tuple[QuotaCounter, ...]


class Quotas:
    """All rules, and what placed jobs use of them."""

    def __init__(self, always: Sequence[QuotaRule], spans: Iterable[QuotaSpan]) -> None:
        groups: dict[tuple[QuotaRule, ...], list[Span]] = {tuple(always): [(0, FOREVER)]} if always else {}
        for span in spans:
            groups.setdefault(span.rules, []).append((span.begin, span.end))
        self._groups = [(rules, _joined(times)) for rules, times in groups.items()]
        self._counters: dict[tuple[bool, Selection], QuotaCounter] = {}
        self._job_quotas: dict[tuple[bool, Selection], JobQuotas] = {}
        self._counted: dict[int, tuple[list[QuotaCounter], Occupation, QuotaUse]] = {}

    def limits(self, job: WaitingJob | PlacedJob, *, besteffort: bool) -> tuple[QuotaLimit, ...]:
        """Return the rules that hold for a job."""
        return self._of(job, besteffort=besteffort).limits

    def count(self, job: WaitingJob | PlacedJob, occupation: Occupation, use: QuotaUse, *, besteffort: bool) -> None:
        """Count a placed job; an earlier place of the same job is no longer counted."""
        self.forget(job.job_id)
        counters = [*self._of(job, besteffort=True).counters]
        if not besteffort:
            counters += self._of(job, besteffort=False).counters
        self._counted[job.job_id] = counters, occupation, use
        self._add(job.job_id, 1)

    def forget(self, job_id: int) -> None:
        """Stop counting a job."""
        if job_id in self._counted:
            self._add(job_id, -1)
            del self._counted[job_id]

    @contextmanager
    def without(self, job_id: int) -> Iterator[None]:
        """Do not count a job while the context is open."""
        counted = self._counted.get(job_id)
        self.forget(job_id)
        yield
        if counted is not None:
            self._counted[job_id] = counted
            self._add(job_id, 1)

    def _add(self, job_id: int, sign: int) -> None:
        counters, occupation, use = self._counted[job_id]
        for counter in counters:
            counter.add(occupation.start, occupation.stop, QuotaUse(*(sign * amount for amount in use)))

    def _of(self, job: WaitingJob | PlacedJob, *, besteffort: bool) -> "JobQuotas":
        """Return the quotas of a job, cached for all jobs that no rule distinguishes."""
        types = parse_types(job.types)
        if types.is_container or types.no_quotas:
            return JobQuotas((), ())
        words = " ".join(sorted(types.words))
        key = besteffort, (job.queue, job.project, words, job.user)
        quotas = self._job_quotas.get(key)
        if quotas is None:
            quotas = self._job_quotas[key] = self._find(job, besteffort=besteffort)
        return quotas

    def _find(self, job: WaitingJob | PlacedJob, *, besteffort: bool) -> "JobQuotas":
        limits, counters = [], dict[Selection, QuotaCounter]()
        for rules, spans in self._groups:
            mine = [rule for rule in rules if _selects(rule, job)]
            for rule in mine:
                whose = _selection(rule, job)
                counters[whose] = self._counters.setdefault((besteffort, whose), QuotaCounter())
                if not any(_replaces(other, rule) for other in mine):
                    limits.append(QuotaLimit(rule, spans, counters[whose]))
        return JobQuotas(tuple(limits), tuple(counters.values()))


class QuotaShare(NamedTuple):
    """What the jobs use that a rule counts together at an instant, each user's part, and the jobs themselves.

    `besteffort`: as counted for best-effort jobs, which are limited by the use of all jobs; for other jobs, best-effort
    jobs do not count.
    """

    rule: QuotaRule
    whose: Selection
    besteffort: bool
    used: QuotaUse
    resources_by_user: dict[str, int]
    jobs: tuple[int, ...]


class CountedJob(NamedTuple):
    """A job that holds resources at an instant, and its use."""

    job: PlacedJob
    use: QuotaUse
    besteffort: bool


def quota_shares(rules: Sequence[QuotaRule], present: Sequence[CountedJob]) -> list[QuotaShare]:
    """Return the use of each rule, in the order of the rules; rules without a present job are left out."""
    book = Quotas(rules, ())
    members_of: dict[tuple[int, bool, Selection], list[CountedJob]] = {}
    for counted in present:
        for besteffort in {counted.besteffort, True}:
            for limit in book.limits(counted.job, besteffort=besteffort):
                key = rules.index(limit.rule), besteffort, _selection(limit.rule, counted.job)
                members_of.setdefault(key, []).append(counted)
    # A row as best-effort jobs are counted repeats the ordinary one unless a best-effort job is among its members.
    shown = [key for key, members in members_of.items() if not key[1] or any(job.besteffort for job in members)]
    return [_share(rules[key[0]], key[2], members_of[key], besteffort=key[1]) for key in sorted(shown)]


def _share(rule: QuotaRule, whose: Selection, members: Sequence[CountedJob], *, besteffort: bool) -> QuotaShare:
    by_user: dict[str, int] = {}
    for counted in members:
        by_user[counted.job.user] = by_user.get(counted.job.user, 0) + counted.use.resources
    used = QuotaUse(*map(sum, zip(*(counted.use for counted in members), strict=True)))
    most_first = dict(sorted(by_user.items(), key=lambda pair: (-pair[1], pair[0])))
    return QuotaShare(rule, whose, besteffort, used, most_first, tuple(counted.job.job_id for counted in members))


def earliest_within(limits: Sequence[QuotaLimit], start: int, length: int, use: QuotaUse) -> int | None:
    """Return the earliest start from `start` on at which a job breaks none of these rules; None if there is none."""
    before = -1
    while start > before:
        before = start
        for limit in limits:
            start = limit.clear_from(start, length, use)
            if start >= FOREVER:
                return None
    return start


def edges(limits: Iterable[QuotaLimit]) -> set[int]:
    """Return the instants at which the headroom of these rules may change."""
    return {edge for limit in limits for edge in limit.counter.times} | {
        edge for limit in limits for span in limit.spans for edge in span
    }


def broken_quota(limits: Sequence[QuotaLimit], start: int, length: int, use: QuotaUse) -> str:
    """Describe the rule that such a job would break; an empty text if it breaks none."""
    for limit in limits:
        if limit.clear_from(start, length, use) > start:
            return _describe_broken(limit, start, length, use)
    return ""


_MEASURES = ("resource", "job", "resource-hour")


def _describe_broken(limit: QuotaLimit, start: int, length: int, use: QuotaUse) -> str:
    rule = limit.rule
    taken = limit.counter.most(start, start + length)
    limits = zip(_MEASURES, (rule.resources, rule.jobs, rule.resource_seconds), use, taken, strict=True)
    measure, most, own, others = next(row for row in limits if 0 <= row[1] < row[2] + row[3])
    if measure == _MEASURES[2]:
        most, own, others = (round(seconds / 3600, 1) for seconds in (most, own, others))  # type: ignore[assignment]
    have = f"{others:g} {'is' if others == 1 else 'are'} taken and it " if others else "it "
    asks = f"asks for {own:g}" if measure != "job" else "would be one more" if others else "is one"
    plural = "" if most == 1 else "s"
    return f"the quota `{','.join(_words(rule))}` is {most:g} {measure}{plural} at once; {have}{asks}"


def _words(rule: QuotaRule) -> Selection:
    return rule.queue, rule.project, rule.job_type, rule.user


def _selects(rule: QuotaRule, job: WaitingJob | PlacedJob) -> bool:
    named = ((rule.queue, job.queue), (rule.project, job.project), (rule.user, job.user))
    if any(word not in {ALL_TOGETHER, EACH, own} for word, own in named):
        return False
    return rule.job_type == ALL_TOGETHER or rule.job_type in parse_types(job.types).words


def _selection(rule: QuotaRule, job: WaitingJob | PlacedJob) -> Selection:
    """Return whose use a rule counts, seen from a job."""
    queue, project, job_type, user = _words(rule)
    return (
        job.queue if queue == EACH else queue,
        job.project if project == EACH else project,
        job_type,
        job.user if user == EACH else user,
    )


def _replaces(other: QuotaRule, rule: QuotaRule) -> bool:
    """Return whether another rule replaces this one: it has names where this one has `/`."""
    mine, others = _words(rule), _words(other)
    pairs = zip(mine, others, strict=True)
    return mine != others and all(word == its or (word == EACH and its != ALL_TOGETHER) for word, its in pairs)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and joined[-1][1] >= begin:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return tuple(joined)
