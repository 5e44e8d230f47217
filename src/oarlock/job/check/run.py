"""One check of a database: reads it in one transaction, judges, and returns what does not hold."""

from collections import Counter
from collections.abc import Callable, Iterator

from oarlock.config import Config
from oarlock.job import quotas
from oarlock.job.check import jobs, sharing, site
from oarlock.job.check.finding import CheckFinding, CheckSeverity, broken, warning
from oarlock.job.check.past_quotas import PastQuotas
from oarlock.job.run.starting import schedule
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, JobState
from oarlock.model.snapshot import QuotaRule
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import moves
from oarlock.store.queries.planning.snapshot import SnapshotRead
from oarlock.store.queries.site import integrity, integrity_site
from oarlock.store.queries.site.integrity import JobRecord
from oarlock.store.queries.site.integrity_site import SiteRecords
from oarlock.store.queries.usage.accounting import AccountingRow

_LONGEST_WAIT = 600
"""Seconds that a job may wait though nothing keeps it from starting, the reactor making a pass at least each minute."""

_PLANNED_JOBS = 512  # waiting jobs of a queue: who could start now is nearly always among them

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
        self._tx, self._config, self._whole, self._now = tx, config, whole, now
        self._licences = integrity.licences(tx)
        self._bounds = jobs.CheckBounds(
            passing=_longest_passing(config),
            over=_longest_over(config),
            now=now,
            cut_off=frozenset(integrity.cut_off_jobs(tx, whole.away)),
            lease=config.lease_grace,
            clock_jumped=integrity.clock_jumped(tx),
        )
        self._occupancy = sharing.CheckedResources()
        self._past_quotas = PastQuotas(whole.quotas, whole.quotas_since)
        self._expected: Counter[AccountingRow] = Counter()
        self._began: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._required: dict[int, list[int]] = {}
        self._present: list[JobRecord] = []
        self._just_ended: set[int] = set()
        self._just_released: set[int] = set()

    def add(self, records: list[JobRecord]) -> None:
        for record in records:
            self.found += jobs.judge(record, self._bounds)
            self._note(record)

    def _note(self, record: JobRecord) -> None:
        job = record.job
        self._occupancy.add(job.id, record.resources, record.stays, job.types)
        if job.state in FINAL:
            self._ended[job.id] = record.stays[-1].turn if record.stays else 0
            if job.stop > self._now - _LONGEST_WAIT:
                self._just_ended.add(job.id)
                self._just_released.update(record.resources)
        else:
            self._present.append(record)
        if record.requires:
            self._required[job.id] = record.requires
            starts = [stay.turn for stay in record.stays if stay.state is JobState.TO_LAUNCH]
            if starts:
                self._began[job.id] = starts[0]
        computes = set(record.resources) - self._licences
        self._past_quotas.add(record, len(computes))
        if job.accounted and computes and job.start and job.stop > job.start:
            amounts = integrity.expected_accounts(
                job, len(record.resources), record.walltime, self._config.accounting_window
            )
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
        yield from site.judge_limits(self._present, self._whole, self._quotas(), now=self._now)
        yield from self._past_quotas.exceeded()
        yield from self._kills_without_effect()
        if not any(finding.severity is CheckSeverity.BROKEN for finding in self.found):  # nothing else can be planned
            yield from self._overlooked()

    def _quotas(self) -> list[QuotaRule]:
        """Return the rules that hold now: those of the table, and those of the site's file."""
        if not self._config.quotas:
            return self._whole.quotas
        table = self._snapshot().snapshot.resources
        written = quotas.current(self._config)
        active = () if written is None else quotas.active_at(written, table, at=self._now).rules
        return [*self._whole.quotas, *active]

    def _snapshot(self) -> SnapshotRead:
        settings, window = schedule.plan_settings(self._config), self._config.karma_window
        return schedule.read(self._tx, settings, karma_window=window, now=self._now, depth=_PLANNED_JOBS)

    def _kills_without_effect(self) -> Iterator[CheckFinding]:
        """Yield jobs that should have been over for long (7), those that make room for others as 13."""
        longest = self._config.jobdel_walltime + _longest_over(self._config)
        present = {record.job.id: record for record in self._present}
        for number, _, since in moves.kills_under_way(self._tx):
            record, took = present.get(number), self._now - since
            if record is not None and took > longest and number not in self._bounds.cut_off:
                kind = 13 if EventType.BESTEFFORT_KILL in record.events else 7
                yield warning(kind, f"job {number} is {record.job.state}, and was to end {took} s ago", job=number)

    def _overlooked(self) -> Iterator[CheckFinding]:
        """Yield jobs that the scheduler would start now and could have started long ago (7), or make room for (13)."""
        waiting = {record.job.id: record for record in self._present if record.job.state is JobState.WAITING}
        if not waiting:
            return
        decision = schedule.decide(self._snapshot(), schedule.plan_settings(self._config), now=self._now)
        begins, quiet = resources.states_since(self._tx), self._now - _LONGEST_WAIT
        changed = self._just_released | {number for number, since in begins.items() if since > quiet}
        for start in decision.starts:
            record = waiting[start.job_id]
            since = _waits_since(record)
            if since <= quiet and changed.isdisjoint(start.resources) and self._just_ended.isdisjoint(record.requires):
                text = f"job {start.job_id} waits since {self._now - since} s, and nothing keeps it from starting"
                yield warning(7, text, job=start.job_id)
        soon = self._now + self._config.scheduler_besteffort_kill_duration_before_reservation + _LONGEST_WAIT
        if changed or any(quiet < _waits_since(record) < soon for record in waiting.values()):
            return
        for record in self._present:
            kept = record.kill is None and EventType.BESTEFFORT_KILL not in record.events
            if record.job.id in decision.kill and kept and record.stays[-1].start <= quiet:
                text = f"job {record.job.id} is best effort and keeps what others wait for, for more than"
                yield warning(13, f"{text} {_LONGEST_WAIT} s", job=record.job.id)

    def _reservations(self) -> Iterator[CheckFinding]:
        planned = {place.job_id for place in self._whole.plan}
        for record in self._present:
            job = record.job
            if job.reservation == "Scheduled" and job.state is JobState.WAITING and job.id not in planned:
                yield broken(11, f"reservation {job.id} was accepted and has no place in the plan", job=job.id)


def _waits_since(record: JobRecord) -> int:
    """Return since when a job waits; a reservation does so from its date on."""
    return max(record.stays[-1].start, record.job.start)


def _longest_passing(config: Config) -> dict[JobState, int]:
    """Return how long a job may be in each state on its way: what the site's programs, a kill and nodes may take."""
    beginning = config.prologue_epilogue_timeout + config.server_prologue_epilogue_timeout
    slack = _longest_over(config)
    return {
        JobState.TO_LAUNCH: slack,
        JobState.TO_ERROR: slack,
        JobState.TO_ACK_RESERVATION: slack,
        JobState.LAUNCHING: 2 * beginning + slack,
        JobState.RESUMING: slack,
        JobState.FINISHING: 2 * beginning + slack,
    }


def _longest_over(config: Config) -> int:
    return config.lease_grace + config.watch_frequency + 600
