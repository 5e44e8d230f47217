"""Quotas of past instants (16): no job may have begun while the rules of the table left no room for it.

They are judged since they were changed last, which the audit tells; rules that somebody wrote into the table by hand,
and those of the site's file, have no such instant, and only the present is held against them. Nor are past
resource-seconds: a walltime may have been changed since.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from oarlock.job.check import sharing
from oarlock.job.check.finding import CheckFinding, warning
from oarlock.model.job import FINAL
from oarlock.model.job_type import parse_types
from oarlock.model.snapshot import PlacedJob, QuotaRule
from oarlock.plan.rules.quotas import Quotas, QuotaUse
from oarlock.plan.timeline.occupancy import FOREVER, Occupation
from oarlock.store.queries.site.integrity import JobRecord

_ALWAYS = Occupation(0, FOREVER, 0)


class _Begin(NamedTuple):
    """A job that began to hold resources, or to hold them again: at which move of all jobs, and until which one."""

    first: int
    last: int
    job: PlacedJob
    use: QuotaUse
    judged: bool  # not what began under other rules, nor a suspended job that goes on


class PastQuotas:
    """Collects what jobs held since the rules are as they are; then finds those that began beyond them."""

    def __init__(self, rules: Sequence[QuotaRule], since: int | None) -> None:
        self._rules, self._since = rules, since
        self._begins: list[_Begin] = []

    def add(self, record: JobRecord, size: int) -> None:
        """Add a job with how many of its resources count."""
        job, since = record.job, self._since
        if not self._rules or since is None or (job.state in FINAL and job.stop < since):
            return
        placed = PlacedJob(
            job_id=job.id, moldable_id=job.assigned, user=job.user, queue=job.queue, state=job.state, start=job.start,
            stop=job.start + record.walltime, resources=(), project=job.project, types=job.types,
        )  # fmt: skip
        began = {stay.turn: stay.start for stay in record.stays}
        promised = job.reservation != "None" and job.submitted < since
        for number, (first, last) in enumerate(sharing.held(record.stays)):
            judged = number == 0 and began[first] >= since and not promised
            self._begins.append(_Begin(first, last, placed, QuotaUse(size, 1, 0), judged))

    def exceeded(self) -> Iterator[CheckFinding]:
        """Yield the jobs that began though the others left no room for them."""
        counted = Quotas(self._rules, ())
        present: list[tuple[int, int]] = []  # the last moves of jobs, and their numbers; a heap
        for begin in sorted(self._begins, key=lambda begin: begin.first):
            while present and present[0][0] <= begin.first:
                counted.forget(heappop(present)[1])
            heappush(present, (begin.last, begin.job.job_id))
            besteffort = parse_types(begin.job.types).besteffort
            counted.count(begin.job, _ALWAYS, begin.use, besteffort=besteffort)
            for limit in counted.limits(begin.job, besteffort=besteffort) if begin.judged else ():
                rule, used = limit.rule, limit.counter.most(0, 1)
                for word, taken, most in (
                    ("resources", used.resources, rule.resources),
                    ("jobs", used.jobs, rule.jobs),
                ):
                    if 0 <= most < taken:
                        text = f"job {begin.job.job_id} began while {taken} {word} were in use with it"
                        yield warning(16, f"{text}, and the quota is {most}", job=begin.job.job_id)
