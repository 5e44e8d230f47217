"""Mails about jobs of a copied cluster that ended: what each used, and what was found about it, one mail for several.

Where others run the jobs nobody can ask for a report at submission, so the site decides (MAIL_JOB_REPORTS), and a user
can refuse.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from oarlock.config import Config
from oarlock.insight.findings import Finding, find
from oarlock.insight.gather import JudgedFacts, gather
from oarlock.insight.mails import JOB_REPORT, MailKind, portal_address, unsubscribe_link, user_address
from oarlock.insight.report import headline, make_report, text_lines
from oarlock.insight.rules import rules_in_force
from oarlock.model.summary import parse_detail
from oarlock.settings.kinds import JobReportMails
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries, unmeasured
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import NewMail

_WHOLE = 5  # reports of a mail that are written out; the others are a line each
_LISTED, _JUDGED = 50, 200


class EndedJobsOfUser(NamedTuple):
    """The jobs of a user that ended, those that held most first, and where the user is mailed."""

    user: str
    address: str
    jobs: tuple[int, ...]


def ended_of_users(tx: Tx, config: Config, *, since: int, until: int) -> list[EndedJobsOfUser]:
    """Return whom to mail about jobs that ended behind an instant, up to another."""
    refusing = mails.refusing(tx, MailKind.JOB.value)
    by_user: dict[str, list[int]] = {}
    for job in unmeasured.ended_between(tx, since=since, until=until):
        by_user.setdefault(job.user, []).append(job.id)
    return [
        EndedJobsOfUser(user, address, tuple(jobs))
        for user, jobs in sorted(by_user.items())
        if user not in refusing and (address := user_address(config, user))
    ]


def compose_reports(tx: Tx, config: Config, ended: EndedJobsOfUser, *, key: bytes, now: int) -> NewMail | None:
    """Return the mail; None where there is nothing to say. `key` signs the link by which such mails are refused."""
    judged = _judge(tx, config, ended.jobs[:_JUDGED], now=now)
    if config.mail_job_reports is JobReportMails.FINDINGS:
        judged = [(facts, findings) for facts, findings in judged if findings]
    if not judged:
        return None
    text = "\n\n".join("\n".join(lines) for lines in _reports(tx, judged))
    link = unsubscribe_link(config, key, ended.user, MailKind.JOB)
    more = f"More: {portal_address(config)}/jobs/{judged[0][0].job.id}" if config.portal else ""
    command = f"`oarlock mail --off {MailKind.JOB.value}`"
    foot = f"No more of these mails: {f'{link} or {command}' if link else command}"
    body = "\n\n".join(part for part in (text, more, foot) if part)
    return NewMail(
        now, ended.user, JOB_REPORT, ended.address, _subject(config, judged), f"{body}\n", _html(text, more, link),
        job=judged[0][0].job.id,
    )  # fmt: skip


Judged = tuple[JudgedFacts, Sequence[Finding]]


def _judge(tx: Tx, config: Config, ids: Sequence[int], *, now: int) -> list[Judged]:
    rules = rules_in_force(config.findings_file)
    cluster = config.cluster_name
    gathered = gather(tx, ids, now=now, gpu_property=config.job_gpu_property, cluster=cluster)
    by_id = {facts.job.id: facts for facts in gathered}
    return [(by_id[job], find(rules, by_id[job].facts, script=by_id[job].script)) for job in ids if job in by_id]


def _reports(tx: Tx, judged: Sequence[Judged]) -> list[list[str]]:
    details = summaries.details_of(tx, [facts.job.id for facts, _ in judged])
    reports = [make_report(facts, parse_detail(details[facts.job.id]), findings) for facts, findings in judged]
    parts = [text_lines(report) for report in reports[:_WHOLE]]
    if others := reports[_WHOLE : _WHOLE + _LISTED]:
        lines = [": ".join(headline(report)) for report in others]
        left = len(reports) - _WHOLE - _LISTED
        parts.append([*lines, *([f"and {left} more"] if left > 0 else [])])
    return parts


def _subject(config: Config, judged: Sequence[Judged]) -> str:
    if len(judged) > 1:
        return f"[OAR] {len(judged)} jobs of yours on {config.cluster_name} ended"
    [(facts, _)] = judged
    return f"[OAR] Job {facts.job.id} on {config.cluster_name} ended: {facts.job.state.value}"


def _html(text: str, more: str, link: str) -> str:
    parts = [f"<pre>{escape(text)}</pre>"]
    if more:
        address = more.removeprefix("More: ")
        parts.append(f'<p><a href="{escape(address)}">More on the portal</a></p>')
    if link:
        parts.append(f'<p><a href="{escape(link)}">No more of these mails</a></p>')
    return f'<!doctype html><html lang="en"><head><title>Ended jobs</title></head><body>{"".join(parts)}</body></html>'
