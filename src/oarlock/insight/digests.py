"""Digests: what a week or a month had, as mails to users and staff, in text and HTML."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

from oarlock.config import Config
from oarlock.insight.days import ReportPeriod, last_month, last_week
from oarlock.insight.mails import (
    DIGEST_OF_WEEK,
    LEADER_MONTH,
    STAFF_MONTH,
    STAFF_WEEK,
    MailKind,
    has_addresses,
    kind_of,
    portal_address,
    unsubscribe_link,
    user_address,
)
from oarlock.insight.period import (
    PeriodReport,
    ReportScope,
    group_cells,
    make_period_report,
    period_headline,
    period_lines,
    trend_rows,
    use_bars,
    worst_cells,
)
from oarlock.insight.rules import FindingRules, Severity, rules_in_force
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import NewMail

_MOST_USERS = 10_000
_CELL = 'style="padding:2px 10px 2px 0;text-align:{side};white-space:nowrap"'


class DueDigest(NamedTuple):
    """A digest that was not sent yet: to whom, about whose jobs and which days, and under which rule it is stored."""

    rule: str
    user: str
    address: str
    scope: ReportScope
    period: ReportPeriod
    by: str


def due_digests(tx: Tx, config: Config, *, now: int, again: bool = False) -> list[DueDigest]:
    """Return the digests that are due and were not stored yet; `again`: those that were, too.

    Nobody gets two of a rule in a week, or in a month.
    """
    week = last_week(now)
    due = [*_of_staff(config, STAFF_WEEK, week, "user"), *_of_staff(config, STAFF_MONTH, last_month(now), "project")]
    due += _of_users(tx, config, week)
    due += _of_leaders(tx, config, last_month(now))
    if again:
        return due
    stored = {(digest.rule, digest.period.until): frozenset[str]() for digest in due}
    for rule, until in stored:
        stored[rule, until] = frozenset(mails.users_since(tx, rule, until))
    return [digest for digest in due if digest.user not in stored[digest.rule, digest.period.until]]


def _of_staff(config: Config, rule: str, period: ReportPeriod, by: str) -> Iterator[DueDigest]:
    for address in config.mail_recipient:
        yield DueDigest(rule, address, address, ReportScope(), period, by)


def _of_users(tx: Tx, config: Config, week: ReportPeriod) -> list[DueDigest]:
    if not has_addresses(config):
        return []
    refusing = mails.refusing(tx, MailKind.WEEK.value)
    rows = summaries.usage_by(tx, ["user"], since=week.since, until=week.until, most=_MOST_USERS)
    users = [str(row.group[0]) for row in rows]
    return [
        DueDigest(DIGEST_OF_WEEK, user, address, ReportScope(user=user), week, "project")
        for user in users
        if user not in refusing and (address := user_address(config, user))
    ]


def _of_leaders(tx: Tx, config: Config, month: ReportPeriod) -> Iterator[DueDigest]:
    """Yield the report of each project to each of its leaders."""
    if not has_addresses(config):
        return
    refusing = mails.refusing(tx, MailKind.MONTH.value)
    for project, leaders in sorted(config.project_leaders.items()):
        for user in leaders:
            if user not in refusing and (address := user_address(config, user)):
                scope = ReportScope(project=project)
                yield DueDigest(f"{LEADER_MONTH}{project}", user, address, scope, month, "user")


def compose(
    tx: Tx, config: Config, digest: DueDigest, *, key: bytes, now: int, rules: FindingRules | None = None
) -> NewMail | None:
    """Return the mail of a digest; None where there is nothing to say.

    A user hears of findings or of nothing. `key` signs the link by which the mails are refused.
    """
    report = make_period_report(
        tx,
        digest.scope,
        digest.period,
        rules or rules_in_force(config.findings_file),
        now=now,
        gpu_property=config.job_gpu_property,
        by=digest.by,
    )
    if not report.findings if digest.rule == DIGEST_OF_WEEK else not report.usage.core_seconds:
        return None
    kind = kind_of(digest.rule)
    link = "" if kind is None else unsubscribe_link(config, key, digest.user, kind)
    text = [*period_lines(report), "", *_foot(config, digest, link)]
    subject = f"[OAR] {_subject(config, digest, report)}"
    return NewMail(
        now, digest.user, digest.rule, digest.address, subject, "\n".join([*text, ""]), _html(config, report, link)
    )


def _subject(config: Config, digest: DueDigest, report: PeriodReport) -> str:
    if digest.rule == DIGEST_OF_WEEK:
        jobs = sum(count.jobs for count in report.findings if count.severity is Severity.BAD)
        return f"Your jobs of last week on {config.cluster_name}" + (f": {jobs} things to look at" if jobs else "")
    if kind_of(digest.rule) is MailKind.MONTH:
        return f"Project {digest.scope.project} on {config.cluster_name} last month"
    days = "month" if digest.rule == STAFF_MONTH else "week"
    return f"What was held and not used on {config.cluster_name} last {days}"


def _foot(config: Config, digest: DueDigest, link: str) -> list[str]:
    lines = [f"More: {portal_address(config)}"] if config.portal else []
    kind = kind_of(digest.rule)
    if kind is not None:
        command = f"`oarlock mail --off {kind.value}`"
        way = f"{link} or {command}" if link else command
        lines.append(f"No more of these mails: {way}")
    return lines


def _html(config: Config, report: PeriodReport, link: str) -> str:
    title, subtitle = period_headline(report)
    parts = [f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p>"]
    bars = [[bar.label, _percent(bar.share), bar.text] for bar in use_bars(report.usage)]
    parts.append(_table(["", "Used", ""], bars, left=1))
    parts.append("<h2>Against the period before</h2>" + _table(["", "Now", "Before", "Change"], trend_rows(report)))
    if report.findings:
        items = "".join(
            f"<li><b>{count.jobs} × {escape(count.id)}</b> ({count.severity.value}). Job {count.example_job}: "
            f"{escape(count.example)} {escape(count.advice)}</li>"
            for count in report.findings
        )
        parts.append(f"<h2>Findings about {report.judged} jobs</h2><ul>{items}</ul>")
    if report.worst:
        head = ["Job", "User", "Name", "Held", "Used", "Not used"]
        rows = _table(head, map(worst_cells, report.worst), left=3)
        parts.append(f"<h2>Jobs with most core-hours not used</h2>{rows}")
    if len(report.groups) > 1:
        rows = _table(["", "Held", "Used", "Not used"], map(group_cells, report.groups))
        parts.append(f"<h2>{report.by.capitalize()}s, in core-hours</h2>{rows}")
    if config.portal:
        parts.append(f'<p><a href="{escape(portal_address(config))}">More on the portal</a></p>')
    if link:
        parts.append(f'<p><a href="{escape(link)}">No more of these mails</a></p>')
    start = f'<!doctype html><html lang="en"><head><title>{escape(title)}</title></head>'
    return f"{start}<body>{''.join(parts)}</body></html>"


def _table(head: list[str], rows: Iterable[list[str]], *, left: int = 1) -> str:
    def cells(row: list[str], tag: str) -> str:
        return "".join(
            f"<{tag} {_CELL.format(side='left' if place < left else 'right')}>{escape(cell)}</{tag}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.0f} %"
