"""One check of a database: reads it in one transaction, judges, and returns what does not hold."""

from collections import Counter
from collections.abc import Callable, Iterator

from oarlock.config import Config
from oarlock.job.check import jobs, sharing, site
from oarlock.job.check.finding import CheckFinding, broken
from oarlock.model.job import FINAL, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import integrity, integrity_site
from oarlock.store.queries.site.integrity import JobRecord
from oarlock.store.queries.site.integrity_site import SiteRecords
from oarlock.store.queries.usage.accounting import AccountingRow

Progress = Callable[[int, int], None]
"""Called with how many jobs were looked at, and how many there are."""


def check(
    tx: Tx, config: Config, *, now: int | None = None, thorough: bool = False, progress: Progress = lambda *_: None
) -> list[CheckFinding]:
    """Check a database, and return what does not hold, by invariant and job.

    `now` is for one whose server runs; without, the last instant that was written counts: nothing went on since.
    `thorough` also reads the file itself.
    """
    whole = integrity_site.site_records(tx, thorough=thorough)
    running = _DatabaseCheck(tx, config, whole, now=whole.last if now is None else now)
    total, done = integrity.count_jobs(tx), 0
    for records in integrity.job_records(tx):
        running.add(records)
        done += len(records)
        progress(done, total)
    return sorted({*running.found, *running.finish()}, key=lambda finding: (finding.invariant, finding.job))


class _DatabaseCheck:
    """A check under way: what was found of single jobs, and what is compared at the end."""

    def __init__(self, tx: Tx, config: Config, whole: SiteRecords, *, now: int) -> None:
        self.found: list[CheckFinding] = []
        self._whole, self._now, self._window = whole, now, config.accounting_window
        self._licences = integrity.licences(tx)
        self._bounds = jobs.CheckBounds(
            passing=_longest_passing(config),
            over=_longest_over(config),
            now=now,
            away=frozenset(whole.away),
            clock_jumped=integrity.clock_jumped(tx),
        )
        self._occupancy = sharing.CheckedResources()
        self._expected: Counter[AccountingRow] = Counter()
        self._began: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._required: dict[int, list[int]] = {}
        self._present: list[JobRecord] = []

    def add(self, records: list[JobRecord]) -> None:
        for record in records:
            self.found += jobs.judge(record, self._bounds)
            self._note(record)

    def _note(self, record: JobRecord) -> None:
        job = record.job
        self._occupancy.add(job.id, record.resources, record.stays, job.types)
        if job.state in FINAL:
            self._ended[job.id] = record.stays[-1].turn if record.stays else 0
        else:
            self._present.append(record)
        if record.requires:
            self._required[job.id] = record.requires
            starts = [stay.turn for stay in record.stays if stay.state is JobState.TO_LAUNCH]
            if starts:
                self._began[job.id] = starts[0]
        computes = set(record.resources) - self._licences
        if job.accounted and computes and job.start and job.stop > job.start:
            amounts = integrity.expected_accounts(job, len(record.resources), record.walltime, self._window)
            for row, amount in amounts:
                self._expected[row] += amount
        elif job.accounted and job.state not in FINAL:
            self.found.append(broken(10, f"job {job.id} is accounted and not over", job=job.id))

    def finish(self) -> Iterator[CheckFinding]:
        yield from site.judge(self._whole)
        for resource, first, second in self._occupancy.overlaps():
            yield broken(1, f"resource {resource} was given to job {second} while job {first} had it", job=second)
        yield from sharing.judge_plan(self._whole.plan)
        yield from self._reservations()
        yield from site.judge_accounts(self._whole.accounts, self._expected, since=self._whole.accounts_since)
        yield from site.judge_dependencies(self._required, self._began, self._ended)
        yield from site.judge_limits(self._present, self._whole, now=self._now)

    def _reservations(self) -> Iterator[CheckFinding]:
        planned = {place.job_id for place in self._whole.plan}
        for record in self._present:
            job = record.job
            if job.reservation == "Scheduled" and job.state is JobState.WAITING and job.id not in planned:
                yield broken(11, f"reservation {job.id} was accepted and has no place in the plan", job=job.id)


def _longest_passing(config: Config) -> int:
    """Return how long a job may be on its way: both programs of the site, the kill, and the lease of its nodes."""
    programs = 2 * (config.prologue_epilogue_timeout + config.server_prologue_epilogue_timeout)
    return programs + _longest_over(config)


def _longest_over(config: Config) -> int:
    return config.lease_grace + config.watch_frequency + 600
