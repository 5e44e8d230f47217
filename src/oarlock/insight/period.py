"""The report of a user or a project over some days: used against held, the worst jobs, findings, and the trend."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from oarlock.insight.days import ReportPeriod
from oarlock.insight.findings import Finding, find
from oarlock.insight.gather import JudgedFacts, gather
from oarlock.insight.report import UseBar, bar_line
from oarlock.insight.rules import FindingRules, Severity
from oarlock.insight.tables import table_lines
from oarlock.insight.wording import write_energy
from oarlock.model.summary import DayUsage
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import judged_jobs, summaries

MOST_JUDGED = 2000
"""Of how many jobs findings are counted; the newest come first."""

_WORST, _GROUPS, _LISTED_DAYS = 10, 15, 40
_MOST_GROUPS = 10_000
_HOUR = 3600
_GIB = 1 << 30
_MARKS = {Severity.BAD: "!!", Severity.WARN: " !"}


class ReportScope(Struct, frozen=True):
    """Whose jobs a report is about: of a user, of a project, or of a user in a project."""

    user: str | None = None
    project: str | None = None

    @property
    def words(self) -> str:
        """Whose jobs they are, in words."""
        names = (("user", self.user), ("project", self.project))
        return ", ".join(f"{kind} {name}" for kind, name in names if name is not None) or "all jobs"


class WorstJob(Struct, frozen=True):
    """A job with the core-seconds that it held and used."""

    id: int
    user: str
    project: str
    name: str | None
    core_seconds: float
    cpu_seconds: float


class FindingCount(Struct, frozen=True):
    """About how many jobs a rule found something; `example` is what it says about the newest of them."""

    id: str
    severity: Severity
    jobs: int
    example_job: int
    example: str
    advice: str


class GroupSums(Struct, frozen=True):
    """What one user of a project, or one project of a user, held and used."""

    name: str
    usage: DayUsage


class DaySums(Struct, frozen=True):
    """What was held and used on a day (epoch seconds at midnight UTC)."""

    day: int
    usage: DayUsage


class PeriodReport(Struct, frozen=True, kw_only=True):
    """What the jobs of a user or a project held and used, and what was found about those that ended or run.

    `before` are the sums of the period before; `groups` those of users or projects, as `by` says. `judged` is about how
    many jobs findings were looked for; `more`: there were older ones that were not looked at.
    """

    scope: ReportScope
    period: ReportPeriod
    usage: DayUsage
    before: DayUsage
    days: list[DaySums]
    by: str
    groups: list[GroupSums]
    worst: list[WorstJob]
    findings: list[FindingCount]
    judged: int
    more: bool


def make_period_report(
    tx: Tx,
    scope: ReportScope,
    period: ReportPeriod,
    rules: FindingRules,
    *,
    now: int,
    gpu_property: str = "",
    language: str = "en",
    by: str = "",
) -> PeriodReport:
    """Add up what was held and used in a period, and count what is found about its jobs.

    `by` divides the sums by `user` or `project`; by default by what the scope leaves open.
    """
    by = by or ("user" if scope.user is None else "project")
    ids = judged_jobs.ids_between(
        tx, period.since, period.until, user=scope.user, project=scope.project, most=MOST_JUDGED + 1
    )
    judged = gather(tx, ids[:MOST_JUDGED], now=now, gpu_property=gpu_property)
    return PeriodReport(
        scope=scope,
        period=period,
        usage=_sums(tx, scope, period.since, period.until),
        before=_sums(tx, scope, period.before, period.since),
        days=_days(tx, scope, period),
        by=by,
        groups=_groups(tx, scope, period, by),
        worst=_worst(tx, scope, period),
        findings=count_findings(rules, judged, language),
        judged=len(judged),
        more=len(ids) > MOST_JUDGED,
    )


def _sums(tx: Tx, scope: ReportScope, since: int, until: int) -> DayUsage:
    rows = summaries.usage_by(tx, [], since=since, until=until, user=scope.user, project=scope.project, most=1)
    return rows[0].usage if rows else DayUsage()


def _days(tx: Tx, scope: ReportScope, period: ReportPeriod) -> list[DaySums]:
    rows = summaries.usage_by(
        tx, ["day"], since=period.since, until=period.until, user=scope.user, project=scope.project, most=_MOST_GROUPS
    )
    return [DaySums(int(row.group[0]), row.usage) for row in rows]


def _groups(tx: Tx, scope: ReportScope, period: ReportPeriod, by: str) -> list[GroupSums]:
    """Return the users of a project, or the projects of a user, those with most core time held first."""
    if scope.user is not None and scope.project is not None:
        return []
    rows = summaries.usage_by(
        tx, [by], since=period.since, until=period.until, user=scope.user, project=scope.project, most=_MOST_GROUPS
    )
    sums = [GroupSums(str(row.group[0]), row.usage) for row in rows]
    return sorted(sums, key=lambda group: (-group.usage.core_seconds, group.name))[:_GROUPS]


def _worst(tx: Tx, scope: ReportScope, period: ReportPeriod) -> list[WorstJob]:
    jobs = summaries.most_wasteful(tx, period.since, period.until, user=scope.user, project=scope.project, most=_WORST)
    return [
        WorstJob(job.id, job.user, job.project, job.name, job.core_seconds, job.cpu_seconds)
        for job in jobs
        if job.core_seconds > job.cpu_seconds
    ]


def count_findings(rules: FindingRules, judged: Sequence[JudgedFacts], language: str = "en") -> list[FindingCount]:
    """Count the jobs about which each rule finds something, the bad before the rest, then the most frequent first.

    A rule that is bad for one job counts as bad.
    """
    counts: Counter[str] = Counter()
    newest: dict[str, tuple[int, Finding]] = {}
    for job in judged:
        for finding in find(rules, job.facts, language=language, elsewhere=bool(job.job.label)):
            counts[finding.id] += 1
            before = newest.get(finding.id)
            if before is None or _is_better_example(finding, before[1]):
                newest[finding.id] = job.job.id, finding
    counted = [
        FindingCount(name, finding.severity, counts[name], job, finding.text, finding.advice)
        for name, (job, finding) in newest.items()
    ]
    return sorted(counted, key=lambda count: (count.severity is not Severity.BAD, -count.jobs, count.id))


def _is_better_example(finding: Finding, before: Finding) -> bool:
    """Return whether a finding about a newer job takes the place of one before: a bad one stays."""
    return finding.severity is Severity.BAD or before.severity is not Severity.BAD


def share(used: float, held: float) -> float | None:
    """Return what was used of what was held; None where nothing was."""
    return min(used / held, 1.0) if held > 0 else None


def wasted_core_seconds(usage: DayUsage) -> float:
    """Return the core time held and not used."""
    return max(usage.core_seconds - usage.core_busy_seconds, 0.0)


def wasted_gpu_seconds(usage: DayUsage) -> float:
    """Return the GPU time held and not used."""
    return max(usage.gpu_seconds - usage.gpu_busy_seconds, 0.0)


def use_bars(usage: DayUsage) -> list[UseBar]:
    """Return the bars of cores, memory and GPUs; what nobody held has none."""
    return [
        UseBar(label, share(used, held), f"{hours(used / unit)} of {hours(held / unit)} {name}")
        for label, used, held, unit, name in (
            ("Cores", usage.core_busy_seconds, usage.core_seconds, _HOUR, "core-hours"),
            ("Memory", usage.memory_used_byte_seconds, usage.memory_asked_byte_seconds, _HOUR * _GIB, "GiB-hours"),
            ("GPUs", usage.gpu_busy_seconds, usage.gpu_seconds, _HOUR, "GPU-hours"),
        )
        if held > 0
    ]


def hours(value: float) -> str:
    """Write an amount with as many digits as help."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def day_text(instant: int) -> str:
    """Write a day (UTC)."""
    return time.strftime("%Y-%m-%d", time.gmtime(instant))


def period_headline(report: PeriodReport) -> tuple[str, str]:
    """Return whose report it is, and which days it is about."""
    jobs = f"{report.usage.jobs} job{'' if report.usage.jobs == 1 else 's'} began"
    days = f"{day_text(report.period.since)} to {day_text(report.period.until - 1)} (UTC)"
    return f"Report of {report.scope.words}", f"{days}: {jobs}"


def period_lines(report: PeriodReport) -> list[str]:
    """Lay out the report for a terminal or a mail."""
    title, subtitle = period_headline(report)
    lines = [title, subtitle, ""]
    if not report.usage.core_seconds and not report.judged:
        return [*lines, "  Nothing was measured in these days."]
    lines += [bar_line(bar) for bar in use_bars(report.usage)]
    lines += ["", *table_lines(["", "NOW", "BEFORE", "CHANGE"], list(trend_rows(report)))]
    for head, table in _tables(report):
        lines += ["", f"{head}:", *table]
    return lines


def _tables(report: PeriodReport) -> Iterator[tuple[str, list[str]]]:
    if 1 < len(report.days) <= _LISTED_DAYS:
        yield "Cores by day", [bar_line(_day_bar(day), width=10) for day in report.days]
    if len(report.groups) > 1:
        head = [report.by.upper(), "HELD", "USED", "NOT USED"]
        yield (
            f"{report.by.capitalize()}s, in core-hours",
            table_lines(head, [group_cells(group) for group in report.groups]),
        )
    if report.worst:
        head = ["JOB", "USER", "NAME", "HELD", "USED", "NOT USED"]
        yield "Jobs with most core-hours not used", table_lines(head, [worst_cells(j) for j in report.worst], left=3)
    if report.findings:
        older = " (the newest; there are more)" if report.more else ""
        yield f"Findings about {report.judged} jobs{older}", finding_count_lines(report.findings)


def _day_bar(day: DaySums) -> UseBar:
    used, held = day.usage.core_busy_seconds, day.usage.core_seconds
    return UseBar(day_text(day.day), share(used, held), f"{hours(used / _HOUR)} of {hours(held / _HOUR)} core-hours")


def group_cells(group: GroupSums) -> list[str]:
    """Return the cells of a user or a project: name, core-hours held, share used, core-hours not used."""
    usage = group.usage
    return [
        group.name,
        hours(usage.core_seconds / _HOUR),
        _percent(share(usage.core_busy_seconds, usage.core_seconds)),
        hours(wasted_core_seconds(usage) / _HOUR),
    ]


def worst_cells(job: WorstJob) -> list[str]:
    """Return the cells of a job: number, owner, name, core-hours held, share used, core-hours not used."""
    return [
        str(job.id),
        job.user,
        (job.name or "–")[:30],
        hours(job.core_seconds / _HOUR),
        _percent(share(job.cpu_seconds, job.core_seconds)),
        hours((job.core_seconds - job.cpu_seconds) / _HOUR),
    ]


def finding_count_lines(counts: Sequence[FindingCount]) -> list[str]:
    """Lay out how often each rule found something, with the newest example."""
    lines = []
    for count in counts:
        lines.append(
            f"  {_MARKS[count.severity]} {count.jobs:5} × {count.id}: job {count.example_job}: {count.example}"
        )
        if count.advice:
            lines.append(f"             {count.advice}")
    return lines


def trend_rows(report: PeriodReport) -> Iterator[list[str]]:
    """Yield what this period and the one before had: a name, both values, and the change."""
    now, before = report.usage, report.before
    yield ["Jobs begun", str(now.jobs), str(before.jobs), _change(now.jobs, before.jobs)]
    for name, held, lost in (
        ("Core-hours", "core_seconds", wasted_core_seconds),
        ("GPU-hours", "gpu_seconds", wasted_gpu_seconds),
    ):
        if getattr(now, held) or getattr(before, held):
            yield _amount_row(f"{name} held", getattr(now, held), getattr(before, held))
            yield _amount_row(f"{name} not used", lost(now), lost(before))
    for name, used, held in (
        ("Cores used", "core_busy_seconds", "core_seconds"),
        ("Memory used", "memory_used_byte_seconds", "memory_asked_byte_seconds"),
        ("GPUs used", "gpu_busy_seconds", "gpu_seconds"),
    ):
        shares = [share(getattr(usage, used), getattr(usage, held)) for usage in (now, before)]
        if any(value is not None for value in shares):
            yield [name, *map(_percent, shares), _points(*shares)]
    if now.energy_joules or before.energy_joules:
        amounts = write_energy(now.energy_joules), write_energy(before.energy_joules)
        yield ["Energy", *amounts, _change(now.energy_joules, before.energy_joules)]


def _amount_row(name: str, now: float, before: float) -> list[str]:
    return [name, hours(now / _HOUR), hours(before / _HOUR), _change(now, before)]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.0f} %"


def _change(now: float, before: float) -> str:
    """Write by how much an amount changed; from nothing there is no percentage."""
    return "–" if before <= 0 else f"{(now / before - 1) * 100:+.0f} %"


def _points(now: float | None, before: float | None) -> str:
    return "–" if now is None or before is None else f"{(now - before) * 100:+.0f} points"
