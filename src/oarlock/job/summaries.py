"""Summaries of jobs: what nodes reported of their attempts and what samples said, in one row a job, and sums by day.

A job's part of every day is written into its summary in the transaction that adds it to the sums, so that each change
adds the difference only: whatever is measured, reported or handed over again counts once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from oarlock.model.software import SoftwareUse, modules_of, used_software
from oarlock.model.summary import (
    DayUsage,
    EnergyOfJob,
    MeasuredJob,
    NodeMeasured,
    SummaryDetail,
    UsageTotals,
    least_start,
    merged_counters,
    offered_by,
    parse_detail,
    totals,
    totals_of,
    write_detail,
)
from oarlock.node.wire.messages import Report
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import scripts
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from oarlock.store.queries.usage import energy, software, summaries
from oarlock.store.queries.usage.software import SoftwareGroup, SoftwareSums
from oarlock.store.queries.usage.summaries import DayGroup, SummarisedJob, Summary

DAY = 86_400

CountersByAttempt = Mapping[str, Mapping[str, Mapping[str, float]]]

_MILLI = 1000
_AT_ONCE = 1000


def keep_reports(tx: Tx, reports: Sequence[Report], *, now: int) -> None:
    """Add the counters of reports to the summaries of their jobs; an attempt that a node reports twice counts once.

    This is on the way of every job that ends, so sums are left to `book`.
    """
    counted = [report for report in reports if report.counters]
    if not counted:
        return
    stored = {row.job_id: row for row in summaries.of_jobs(tx, {report.job for report in counted})}
    details = {job: parse_detail(row.detail) for job, row in stored.items()}
    for report in counted:
        ran = {} if report.ran is None else {"seconds": report.ran}
        nodes = details.setdefault(report.job, SummaryDetail()).attempts.setdefault(str(report.attempt), {})
        # A report that comes again after a restart of the server lacks what samples had added to the first.
        nodes[report.node] = {**nodes.get(report.node, {}), **report.counters, **ran}
    summaries.save(tx, [_reported(job, detail, stored.get(job), now) for job, detail in sorted(details.items())])


def _reported(job: int, detail: SummaryDetail, before: Summary | None, now: int) -> Summary:
    energy_joules = None if before is None else before.energy_joules
    walltime = None if before is None else before.walltime
    return _row(job, detail, totals(detail), now=now, walltime=walltime, energy_joules=energy_joules, booked=0)


def keep_measured(tx: Tx, measured: Mapping[int, MeasuredJob], *, now: int, cluster: str = "") -> None:
    """Write what samples said of jobs into their summaries and the sums of days; numbers of no job are left out.

    `cluster` is the name under which scripts of this server's own jobs may have been sent.
    """
    _write(tx, list(measured), measured, now=now, cluster=cluster)


def book(tx: Tx, *, now: int, most: int = _AT_ONCE, cluster: str = "") -> int:
    """Add what nodes reported of jobs to the sums of days, `most` jobs at once; return how many there were."""
    pending = summaries.not_booked(tx, most)
    if pending:
        _write(tx, pending, {}, now=now, cluster=cluster)
    return len(pending)


def forget_old(tx: Tx, *, now: int, days: int, most: int = _AT_ONCE) -> int:
    """Delete summaries, sums of days and energy that are older than so many days, a part of them; 0 days keeps all.

    Return how many rows these were: as long as there are some, there may be more.
    """
    if not days:
        return 0
    before = (now - days * DAY) // DAY * DAY
    forgotten = summaries.forget_summaries(tx, before, most=most)
    return forgotten + summaries.forget_first_day(tx, before) + energy.forget_first_day(tx, before, most=most // 10)


def _write(tx: Tx, ids: Collection[int], measured: Mapping[int, MeasuredJob], *, now: int, cluster: str) -> None:
    stored = summaries.details_of(tx, ids)
    ledger = _read_ledger(tx, ids)
    rows: list[Summary] = []
    sums: dict[DayGroup, DayUsage] = {}
    software_sums: dict[SoftwareGroup, SoftwareSums] = {}
    summarised = summaries.summarised_jobs(tx, ids)
    modules = _modules_loaded(tx, summarised, cluster)
    for job in summarised:
        detail = parse_detail(stored[job.id]) if job.id in stored else SummaryDetail()
        booked, booked_software = detail.days, detail.software
        row = _summarise(job, detail, measured.get(job.id), ledger.get(job.id, _NO_ENERGY), now=now)
        if job.ended and job.stop:
            detail.software = _software(detail, row, modules.get(job.id, ()))
            row = row if detail.software == booked_software else replace(row, detail=write_detail(detail))
        rows.append(row)
        for day, change in _changes(booked, detail.days):
            group = DayGroup(day, job.user, job.project, job.queue)
            _add(sums.setdefault(group, DayUsage()), change)
        _add_software(software_sums, job, booked_software, detail.software)
    summaries.save(tx, rows)
    summaries.add_days(tx, sums)
    software.add_days(tx, {group: change for group, change in software_sums.items() if any(change)})


def _modules_loaded(tx: Tx, summarised: Sequence[SummarisedJob], cluster: str) -> dict[int, list[str]]:
    """Return the modules that the scripts load of those of these jobs that are over."""
    ended = [job.id for job in summarised if job.ended]
    sent = scripts.of_jobs(tx, ended, cluster=cluster) if ended else {}
    return {job: names for job, script in sent.items() if (names := modules_of(script))}


def _software(detail: SummaryDetail, row: Summary, modules: Sequence[str]) -> list[SoftwareUse]:
    """Return what a job ran: by the CPU time of its executables, or where that is not known by their threads."""
    nodes = [node for by_node in detail.measured.values() for node in by_node.values()]
    weights: Counter[str] = Counter()
    for node in nodes:
        weights.update(node.executable_cpu_seconds)
    if not weights:
        for node in nodes:
            weights.update(node.threads_most)
    held, used = row.core_seconds or 0.0, row.cpu_seconds or 0.0
    return used_software(weights, modules, core_seconds=held, cpu_seconds=used) if held else []


def _add_software(
    sums: dict[SoftwareGroup, SoftwareSums], job: SummarisedJob, before: Sequence[SoftwareUse],
    after: Sequence[SoftwareUse],
) -> None:  # fmt: skip
    """Add what is counted of a job now, and take away what was."""
    if before == after:
        return
    for uses, sign in ((before, -1), (after, 1)):
        for use in uses:
            group = SoftwareGroup(_day(job.stop), job.user, job.project, use.kind, use.name)
            jobs, held, cpu = sums.get(group, SoftwareSums(0, 0.0, 0.0))
            sums[group] = SoftwareSums(jobs + sign, held + sign * use.core_seconds, cpu + sign * use.cpu_seconds)


class _JobEnergy(NamedTuple):
    """What the ledger has of a job: millijoules by day, the seconds in which they were measured, and how."""

    days: dict[int, int]
    seconds: float
    methods: tuple[str, ...]


_NO_ENERGY = _JobEnergy({}, 0.0, ())


def _read_ledger(tx: Tx, ids: Collection[int]) -> dict[int, _JobEnergy]:
    ledger: dict[int, _JobEnergy] = {}
    shares = energy.days_of_jobs(tx, ids)
    methods = energy.methods_of_jobs(tx, ids) if shares else {}
    for share in shares:
        before = ledger.get(share.job_id, _NO_ENERGY)
        days = {**before.days, share.day: share.energy}
        ledger[share.job_id] = _JobEnergy(days, before.seconds + share.seconds, methods.get(share.job_id, ()))
    return ledger


def _summarise(
    job: SummarisedJob, detail: SummaryDetail, measured: MeasuredJob | None, ledger: _JobEnergy, *, now: int
) -> Summary:
    """Build the row of a job; `detail` is brought up to date with what samples and the ledger say."""
    days = detail.days
    # Fewer samples than before: the log of the job was lost, and what is stored says more.
    if measured is not None and _samples(measured.nodes) >= _samples(detail.measured):
        detail.measured, days = measured.nodes, measured.days
    end = job.stop if job.ended and job.stop else now
    if job.id >= FIRST_NUMBER:
        job = job._replace(start=int(least_start(job.start, detail.measured)))
    ran = float(max(end - job.start, 0)) if job.start else None
    if ledger.days:
        detail.energy = EnergyOfJob(methods=ledger.methods, seconds=ledger.seconds)
    by_attempt = merged_counters(detail, ran=ran)
    used = totals_of(detail, by_attempt)
    detail.days = _days(job, detail, used, days, ledger, by_attempt, end=end)
    joules = sum(ledger.days.values()) / _MILLI if ledger.days else None
    return _row(job.id, detail, used, now=now, walltime=job.walltime or None, energy_joules=joules, booked=1)


def _row(
    job: int, detail: SummaryDetail, used: UsageTotals, *,
    now: int, walltime: int | None, energy_joules: float | None, booked: int,
) -> Summary:  # fmt: skip
    return Summary(
        job_id=job,
        date=now,
        run_seconds=used.seconds,
        walltime=walltime,
        core_seconds=used.cpu_seconds_offered,
        cpu_seconds=used.cpu_seconds,
        memory_asked_bytes=used.memory_limit_bytes,
        memory_own_mean_bytes=used.memory_own_mean_bytes,
        memory_own_peak_bytes=used.memory_own_peak_bytes,
        memory_peak_bytes=used.memory_peak_bytes,
        read_bytes=used.read_bytes,
        written_bytes=used.written_bytes,
        gpu_seconds=used.gpu_seconds,
        gpu_busy_seconds=used.gpu_busy_seconds,
        energy_joules=energy_joules,
        samples=used.samples,
        coverage=used.coverage,
        booked=booked,
        detail=write_detail(detail),
    )


def _samples(nodes: Mapping[str, Mapping[str, NodeMeasured]]) -> int:
    return sum(node.samples for by_node in nodes.values() for node in by_node.values())


def _days(
    job: SummarisedJob, detail: SummaryDetail, used: UsageTotals, measured: Mapping[int, DayUsage],
    ledger: _JobEnergy, by_attempt: CountersByAttempt, *, end: int,
) -> dict[int, DayUsage]:  # fmt: skip
    """Return what the job held and used on each day.

    Cores are held from its beginning to its end; what was used belongs to the day of the measurement, and what only the
    last report knows to the day of the end.
    """
    days = {day: _measured_part(usage) for day, usage in measured.items()}
    for begin, stop, cores in _held(job, detail, by_attempt, end=end):
        for day, seconds in split_by_day(begin, stop):
            days.setdefault(day, DayUsage()).core_seconds += cores * seconds
    rest = (used.cpu_seconds or 0.0) - sum(usage.core_busy_seconds for usage in days.values())
    if rest:
        days.setdefault(_day(end), DayUsage()).core_busy_seconds += rest
    for day, amount in ledger.days.items():
        days.setdefault(day, DayUsage()).energy_joules = amount / _MILLI
    if job.start and (days or detail.attempts):
        days.setdefault(_day(job.start), DayUsage()).jobs = 1
    return days


def _measured_part(usage: DayUsage) -> DayUsage:
    """Return what samples said; the rest is known better elsewhere."""
    return DayUsage(
        core_busy_seconds=usage.core_busy_seconds,
        memory_asked_byte_seconds=usage.memory_asked_byte_seconds,
        memory_used_byte_seconds=usage.memory_used_byte_seconds,
        gpu_seconds=usage.gpu_seconds,
        gpu_busy_seconds=usage.gpu_busy_seconds,
    )


def _held(
    job: SummarisedJob, detail: SummaryDetail, by_attempt: CountersByAttempt, *, end: int
) -> Iterator[tuple[float, float, float]]:
    """Yield from when to when each attempt held how many cores of each node."""
    last = max(map(int, by_attempt), default=0)
    for attempt, nodes in by_attempt.items():
        for node, row in nodes.items():
            cores, seconds = row.get("cpus"), row.get("seconds")
            if not cores or not seconds:
                continue
            measured = detail.measured.get(attempt, {}).get(node)
            begin = float(job.start) if int(attempt) == last and job.start else end - seconds
            if int(attempt) != last and measured is not None:
                begin = measured.since
            yield begin, begin + seconds, offered_by(row) / seconds


def split_by_day(begin: float, end: float) -> Iterator[tuple[int, float]]:
    """Split a stretch of time at midnight (UTC): each day, and the seconds of it."""
    while begin < end:
        day = _day(begin)
        until = min(end, float(day + DAY))
        yield day, until - begin
        begin = until


def _day(at: float) -> int:
    return int(at // DAY) * DAY


def _changes(before: Mapping[int, DayUsage], after: Mapping[int, DayUsage]) -> Iterable[tuple[int, DayUsage]]:
    """Yield what is to be added to the sums of each day."""
    nothing = DayUsage()
    for day in before.keys() | after.keys():
        old, new = before.get(day, nothing), after.get(day, nothing)
        if old != new:
            yield (
                day,
                DayUsage(**{name: getattr(new, name) - getattr(old, name) for name in DayUsage.__struct_fields__}),
            )


def _add(sums: DayUsage, change: DayUsage) -> None:
    for name in DayUsage.__struct_fields__:
        setattr(sums, name, getattr(sums, name) + getattr(change, name))
