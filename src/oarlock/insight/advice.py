"""Advice that staff send: what was found about jobs of a user, as one mail, and what changed since."""

from html import escape
from typing import NamedTuple

from oarlock.config import Config
from oarlock.insight.days import DAY, is_working_hour
from oarlock.insight.findings import Finding
from oarlock.insight.mails import ADVICE, MailKind, portal_address, unsubscribe_link, user_address
from oarlock.model.summary import DayUsage
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import NewMail

COMPARED = 14 * DAY
"""So much time before and after a mail is compared."""

_HOUR = 3600
_WEEK_OF_HOURS = 7 * 24


class AdvisedJobs(NamedTuple):
    """Jobs of a user about which the same was found: the worst of them with its finding, and how many there are."""

    user: str
    jobs: int
    example: int
    finding: Finding


def next_working_hour(now: int, hours: str) -> int:
    """Return the first instant from `now` on at which mails are sent; in whole hours if not at once."""
    for step in range(_WEEK_OF_HOURS):
        at = now if step == 0 else (now // _HOUR + step) * _HOUR
        if is_working_hour(at, hours):
            return at
    return now


def compose_advice(config: Config, advised: AdvisedJobs, *, author: str, key: bytes, now: int) -> NewMail:
    """Return the mail. `key` signs the link by which such mails are refused."""
    finding, link = advised.finding, unsubscribe_link(config, key, advised.user, MailKind.ADVICE)
    jobs = f"job {advised.example}" if advised.jobs == 1 else f"{advised.jobs} jobs, such as {advised.example}"
    page = f"{portal_address(config)}/jobs/{advised.example}" if config.portal else ""
    lines = [
        f"About your {jobs} on {config.cluster_name}:", "", finding.text, "", finding.advice, "",
        *([f"  {finding.line}", ""] if finding.line else []),
        *([f"More: {page}"] if page else []),
        f"{author} of the staff sent this. No more of such mails: {link or '`oarlock mail --off advice`'}", "",
    ]  # fmt: skip
    subject = f"[OAR] About your {jobs} on {config.cluster_name}"
    html = _html(config, advised, page, link, author)
    due = next_working_hour(now, config.mail_hours)
    address = user_address(config, advised.user)
    return NewMail(due, advised.user, ADVICE + finding.id, address, subject, "\n".join(lines), html, advised.example)


def _html(config: Config, advised: AdvisedJobs, page: str, link: str, author: str) -> str:
    finding = advised.finding
    parts = [f"<p><b>{escape(finding.text)}</b></p>", f"<p>{escape(finding.advice)}</p>"]
    if finding.line:
        parts.append(f"<pre>{escape(finding.line)}</pre>")
    if page:
        parts.append(f'<p><a href="{escape(page)}">Job {advised.example} on {escape(config.cluster_name)}</a></p>')
    end = f'<a href="{escape(link)}">No more of such mails</a>' if link else "<code>oarlock mail --off advice</code>"
    parts.append(f"<p>{escape(author)} of the staff sent this. {end}</p>")
    return "".join(parts)


class AdviceEffect(NamedTuple):
    """A mail with advice, and which part of what the user held was used before and after; None: nobody knows.

    `due` is when it is or was sent; `sent` is 0 while it waits.
    """

    user: str
    rule: str
    job: int
    due: int
    sent: int
    before: float | None
    after: float | None


def effects(tx: Tx, *, now: int, since: int, user: str | None = None, most: int = 50) -> list[AdviceEffect]:
    """Return the mails with advice since an instant, newest first, with what changed after each."""
    stored = mails.advice_since(tx, since, prefix=ADVICE, most=most, user=user)
    return [
        AdviceEffect(
            mail.user, rule := mail.rule.removeprefix(ADVICE), mail.job, mail.due, mail.sent,
            _share(tx, mail.user, rule, mail.due - COMPARED, mail.due),
            _share(tx, mail.user, rule, mail.due + DAY, min(mail.due + DAY + COMPARED, now)) if mail.sent else None,
        )
        for mail in stored
    ]  # fmt: skip


def _share(tx: Tx, user: str, rule: str, since: int, until: int) -> float | None:
    """Return which part was used of what jobs held in whole days."""
    first, last = since // DAY * DAY, until // DAY * DAY
    rows = summaries.usage_by(tx, [], since=first, until=last, user=user, most=1) if last > first else []
    return _part(rows[0].usage, rule) if rows else None


def _part(usage: DayUsage, rule: str) -> float | None:
    if rule.startswith("gpu."):
        used, held = usage.gpu_busy_seconds, usage.gpu_seconds
    elif rule.startswith("mem."):
        used, held = usage.memory_used_byte_seconds, usage.memory_asked_byte_seconds
    else:
        used, held = usage.core_busy_seconds, usage.core_seconds
    return used / held if held else None
