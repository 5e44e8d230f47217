"""Pages about use over days: of a user, of a project, the energy of the site, and what is wasted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from oarlock.insight.drawing.columns import DayColumn
from oarlock.insight.findings import Finding
from oarlock.insight.rules import Severity
from oarlock.model.summary import DayUsage
from oarlock.web.pages.parts import formats
from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, Redirect, View
from oarlock.web.verbs.measurements.advice import SentAdviceResponse, WasteFindingsResponse
from oarlock.web.verbs.measurements.findings import FindingsResponse, JobFindingsView
from oarlock.web.verbs.measurements.profiles import ProfileResponse
from oarlock.web.verbs.measurements.software import SoftwareResponse, SoftwareView
from oarlock.web.verbs.measurements.usage import UsageDaysResponse

_HOUR, _DAY = 3600, 86_400
PERIODS = (7, 30, 365)
_MOST_WEEKS = 92  # days up to which a column is a day; above, a week
_SHOWN_JOBS, _OF_ONE_JOB = 12, 2
_KWH = 3_600_000
_MOST_MEMBERS, _OTHERS = 7, "c7"


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
    since = max(view.now - period * _DAY, 0)
    chosen = {kind: name}
    days: UsageDaysResponse = await view.ask("usage.days", since=since, by=["day"], **chosen)
    other = "project" if kind == "user" else "user"
    parts: UsageDaysResponse = await view.ask("usage.days", since=since, by=[other], **chosen)
    findings: FindingsResponse = await view.ask("findings.list", since=max(since, view.now - 30 * _DAY, 0), **chosen)
    profile: ProfileResponse = await view.ask("usage.profile", since=since, **chosen)
    colours = _colours(parts) if kind == "project" and len(parts.rows) > 1 else {}
    members: UsageDaysResponse | None = None
    if colours:
        members = await view.ask("usage.days", since=since, by=["day", "user"], **chosen)
    quotas = await view.ask_if_allowed("quotas.list", **({"user": name} if kind == "user" else {}))
    return view.page(
        "usage.html",
        bins=_bins(profile),
        bins_cut=profile.more,
        shares=_shares(profile, days, period),
        quotas=[rule for rule in quotas.rules if kind == "user" or _is_of_project(rule.rule, name)] if quotas else [],
        advice=(await view.ask("advice.list", user=name)).advice if kind == "user" else [],
        pdf=_pdf(view, kind, name, since),
        kind=kind,
        name=name,
        period=period,
        periods=PERIODS,
        own=days.own and not (kind == "user" and name == view.user),
        total=_total(days),
        columns=_columns(days, period),
        members=_stacked(members, colours, period) if members else [],
        colours=colours,
        parts=sorted(((str(row.group[other]), row.usage) for row in parts.rows), key=_held),
        counted=Counter(finding.id for job in findings.jobs for finding in job.findings).most_common(8),
        findings=_worst_first(findings.jobs[:_SHOWN_JOBS]),
        judged=findings.judged,
    )


def _worst_first(jobs: Sequence[JobFindingsView]) -> list[tuple[JobFindingsView, Finding]]:
    """Return the first findings of each job: one of each rule, the bad ones first, then a second of each, and so on."""
    rows = [(job, finding) for job in jobs for finding in job.findings[:_OF_ONE_JOB]]
    before: Counter[str] = Counter()
    ranked = []
    for row in rows:
        rule = row[1]
        ranked.append(((before[rule.id], rule.severity is not Severity.BAD), row))
        before[rule.id] += 1
    return [row for _, row in sorted(ranked, key=lambda entry: entry[0])]


@page("/energy", nav="Energy", place=50)
async def energy(view: View) -> Answer:
    """Show what the meters counted: jobs, idle and not assigned, by node, project and day."""
    period = _period(view)
    since = max(view.now - period * _DAY, 0)
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
    since = max(view.now - period * _DAY, 0)
    order = "energy" if view.query.get("order") == "energy" else "cores"
    lost = await view.ask("waste.show", since=since, order=order)
    kinds: WasteFindingsResponse = await view.ask("waste.findings", since=max(since, view.now - 30 * _DAY, 0))
    return view.page(
        "waste.html", period=period, periods=PERIODS, waste=lost, order=order, kinds=kinds,
        titles=_TITLES, advice=(await view.ask("advice.list")).advice,
        done=view.query.get("done", "")[:200], may_act=view.secret is not None, may_write=view.may_change,
    )  # fmt: skip


_TITLES = {
    "gpu": "GPUs that did nothing",
    "cpu": "Cores that did nothing",
    "serial": "Serial jobs on several cores",
    "memory": "Memory held and not used",
}


@action("/waste/act")
async def act_on_waste(view: View) -> Answer:
    """Set findings aside, show them again, or send advice."""
    if view.field("unsnooze"):
        await view.change("waste.unsnooze", id=view.field("unsnooze"))
        return Redirect("/waste#aside")
    rule, user = view.field("rule"), view.field("user")
    if view.field("do") == "snooze":
        reason, days = view.field("reason"), view.field("days", "30")
        await view.change("waste.snooze", rule=rule, user=user, reason=reason, days=days)
        return Redirect("/waste#aside")
    sent: SentAdviceResponse = await view.change("advice.send", rule=rule, user=user)
    return Redirect(f"/waste?{urlencode({'done': f'{sent.address}, {formats.exact(sent.due)}'})}")


@page("/software", nav="Software", place=75, source=lambda config: bool(config.sample_period or config.prometheus_url))
async def software(view: View) -> Answer:
    """Show which executables and modules jobs ran."""
    period = _period(view)
    kind = "module" if view.query.get("kind") == "module" else "executable"
    chosen = {name: view.query[name] for name in ("user", "project") if view.query.get(name)}
    shown: SoftwareResponse = await view.ask(
        "software.show", since=max(view.now - period * _DAY, 0), kind=kind, **chosen
    )  # fmt: skip
    return view.page(
        "software.html", shown=shown, kind=kind, period=period, chosen=chosen, whose=", ".join(chosen.values()),
        rows=[(row, _trend(row, shown, period)) for row in shown.software],
        whole=sum(row.core_seconds for row in shown.software),
    )  # fmt: skip


def _trend(row: SoftwareView, shown: SoftwareResponse, period: int) -> list[float]:
    """Return the core-seconds of each day, or of each week of a long time."""
    step = _DAY if period <= _MOST_WEEKS else 7 * _DAY
    sums = [0.0] * -(-(shown.until - shown.since) // step)
    for day in row.days:
        sums[(day.day - shown.since) // step] += day.core_seconds
    return sums


def _is_of_project(rule: str, name: str) -> bool:
    """Return whether a quota (queue, project, type, user) is about a project."""
    return rule.split(",")[1].strip() in {name, "/"}


def _pdf(view: View, kind: str, name: str, since: int) -> str:
    """Return the address of the same as PDF; empty where it would be refused."""
    caller = view.caller
    if caller is None or not (caller.admin or (kind == "user" and name == view.user)):
        return ""
    return f"/api/v1/reports/period.pdf?{urlencode({kind: name, 'since': since // _DAY * _DAY})}"


def _colours(parts: UsageDaysResponse) -> dict[str, str]:
    """Return the class of the colour of each of the members who held most."""
    held = sorted(parts.rows, key=lambda row: -row.usage.core_seconds)
    return {str(row.group["user"]): f"c{place}" for place, row in enumerate(held[:_MOST_MEMBERS])}


def _stacked(days: UsageDaysResponse, colours: Mapping[str, str], period: int) -> list[DayColumn]:
    """Return a column for each day, or week, with the core-hours of each member one on the other."""
    step = _DAY if period <= _MOST_WEEKS else 7 * _DAY
    sums: dict[int, dict[str, float]] = {at: {} for at in range(days.since, days.until, step)}
    for row in days.rows:
        at = days.since + (int(row.group["day"]) - days.since) // step * step
        user = str(row.group["user"])
        sums[at][user] = sums[at].get(user, 0.0) + row.usage.core_seconds / _HOUR
    return [_stacked_column(at, sums[at], colours) for at in sums]


def _stacked_column(at: int, hours: Mapping[str, float], colours: Mapping[str, str]) -> DayColumn:
    parts: dict[str, float] = {}
    for user, amount in hours.items():
        colour = colours.get(user, _OTHERS)
        parts[colour] = parts.get(colour, 0.0) + amount
    whole = sum(hours.values())
    most = sorted(hours.items(), key=lambda entry: -entry[1])[:_MOST_MEMBERS]
    listed = ", ".join(f"{user} {amount:,.1f}" for user, amount in most)
    title = f"{formats.day(at)}: {whole:,.1f} core-hours" + (f" ({listed})" if listed else "")
    return DayColumn(formats.month_and_day(at), whole, whole, title, sorted(parts.items()))


def _bins(profile: ProfileResponse) -> list[DayColumn]:
    """Return a column for each tenth of the cores used: the core-hours of the jobs that used so much."""
    return [
        DayColumn(
            f"{100 * part.least:.0f}–{100 * part.most:.0f} %", hours := part.core_seconds / _HOUR, hours,
            f"{100 * part.least:.0f} to {100 * part.most:.0f} % of the cores used: {part.jobs} jobs, "
            f"{hours:,.1f} core-hours",
        )
        for part in profile.bins
    ]  # fmt: skip


def _shares(profile: ProfileResponse, days: UsageDaysResponse, period: int) -> list[DayColumn]:
    """Return a column a day, or a week, with the part of all core-hours held in percent."""
    step = _DAY if period <= _MOST_WEEKS else 7 * _DAY
    sums = {at: [0.0, 0.0] for at in range(days.since, days.until, step)} if profile.shares else {}
    for share in profile.shares:
        held = sums.setdefault(days.since + (share.day - days.since) // step * step, [0.0, 0.0])
        held[0] += share.core_seconds
        held[1] += share.all_core_seconds
    return [
        DayColumn(
            formats.month_and_day(at), part := 100 * theirs / everybody if everybody else 0.0, part,
            f"{formats.day(at)}: {part:.1f} % of the core-hours that were held",
        )
        for at, (theirs, everybody) in sorted(sums.items())
    ]  # fmt: skip


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
