"""Pages about use over days: of a user, of a project, the energy of the site, and what is wasted."""

from collections import Counter

from oarlock.insight.drawing.columns import DayColumn
from oarlock.model.summary import DayUsage
from oarlock.web.pages import formats
from oarlock.web.pages.registry import page
from oarlock.web.pages.view import Answer, View
from oarlock.web.verbs.findings import FindingsResponse
from oarlock.web.verbs.usage import UsageDaysResponse

_HOUR, _DAY = 3600, 86_400
PERIODS = (7, 30, 365)
_MOST_WEEKS = 92  # days up to which a column is a day; above, a week
_SHOWN_JOBS = 12
_KWH = 3_600_000


@page("/users/{name}")
async def user(view: View) -> Answer:
    """Show what a user held and used, and what was found about the jobs."""
    return await _of_somebody(view, "user", view.parts["name"])


@page("/projects/{name}")
async def project(view: View) -> Answer:
    """Show what a project held and used, by member."""
    return await _of_somebody(view, "project", view.parts["name"])


async def _of_somebody(view: View, kind: str, name: str) -> Answer:
    period = _period(view)
    since = view.now - period * _DAY
    chosen = {kind: name}
    days: UsageDaysResponse = await view.ask("usage.days", since=since, by=["day"], **chosen)
    other = "project" if kind == "user" else "user"
    parts: UsageDaysResponse = await view.ask("usage.days", since=since, by=[other], **chosen)
    findings: FindingsResponse = await view.ask("findings.list", since=max(since, view.now - 30 * _DAY), **chosen)
    return view.page(
        "usage.html",
        kind=kind,
        name=name,
        period=period,
        periods=PERIODS,
        own=days.own and not (kind == "user" and name == view.user),
        total=_total(days),
        columns=_columns(days, period),
        parts=sorted(((str(row.group[other]), row.usage) for row in parts.rows), key=_held),
        counted=Counter(finding.id for job in findings.jobs for finding in job.findings).most_common(8),
        jobs=findings.jobs[:_SHOWN_JOBS],
        judged=findings.judged,
    )


@page("/energy", nav="Energy", place=50)
async def energy(view: View) -> Answer:
    """Show what the meters counted: jobs, idle and not assigned, by node, project and day."""
    period = _period(view)
    since = view.now - period * _DAY
    nodes = await view.ask("energy.show", since=since, by=["node"])
    days = await view.ask("energy.show", since=since, by=["day"])
    projects = await view.ask("energy.show", since=since, by=["project"])
    return view.page(
        "energy.html",
        period=period,
        periods=PERIODS,
        energy=nodes,
        kwh=nodes.total.joules / _KWH * (nodes.factors.pue or 1.0),
        columns=[
            DayColumn(
                formats.month_and_day(int(row.group["day"])), row.meter.joules / _KWH, row.joules / _KWH,
                f"{formats.day(int(row.group['day']))}: {row.meter.joules / _KWH:.1f} kWh, "
                f"{row.joules / _KWH:.1f} of jobs",
            )
            for row in days.rows
        ],
        projects=sorted(projects.rows, key=lambda row: -row.joules),
    )  # fmt: skip


@page("/waste", nav="Waste", place=60, staff=True)
async def waste(view: View) -> Answer:
    """Show staff where the machine is lost."""
    period = _period(view)
    since = view.now - period * _DAY
    lost = await view.ask("waste.show", since=since)
    findings: FindingsResponse = await view.ask("findings.list", since=max(since, view.now - 30 * _DAY))
    counted = Counter((finding.id, finding.severity) for job in findings.jobs for finding in job.findings)
    return view.page(
        "waste.html", period=period, periods=PERIODS, waste=lost, counted=counted.most_common(12),
        judged=findings.judged,
    )  # fmt: skip


def _period(view: View) -> int:
    days = view.number("days", PERIODS[0], most=3660)
    return days if days in PERIODS else PERIODS[0]


def _held(part: tuple[str, DayUsage]) -> float:
    return -part[1].core_seconds


def _total(days: UsageDaysResponse) -> DayUsage:
    total = DayUsage()
    for row in days.rows:
        for name in DayUsage.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(row.usage, name))
    return total


def _columns(days: UsageDaysResponse, period: int) -> list[DayColumn]:
    """Return a column for each day, or for each week of a long time; days without jobs have an empty one."""
    step = _DAY if period <= _MOST_WEEKS else 7 * _DAY
    sums: dict[int, list[float]] = {at: [0.0, 0.0] for at in range(days.since, days.until, step)}
    for row in days.rows:
        at = days.since + (int(row.group["day"]) - days.since) // step * step
        sums[at][0] += row.usage.core_seconds / _HOUR
        sums[at][1] += row.usage.core_busy_seconds / _HOUR
    return [
        DayColumn(
            formats.month_and_day(at), held, min(used, held),
            f"{formats.day(at)}: {used:,.1f} of {held:,.1f} core-hours used",
        )
        for at, (held, used) in sums.items()
    ]  # fmt: skip
