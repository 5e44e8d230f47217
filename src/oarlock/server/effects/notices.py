"""Notifies users of their jobs, by mail or by a program of theirs, with rate limits."""

import asyncio
import logging
import smtplib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from oarlock.config import Config
from oarlock.insight.findings import find
from oarlock.insight.gather import gather
from oarlock.insight.mails import build_mail, sender_of
from oarlock.insight.report import make_report, text_lines
from oarlock.insight.rules import rules_in_force
from oarlock.job.run.effects import Notify
from oarlock.job.run.notices import REPORT
from oarlock.job.run.reports import IncomingReport, NotificationFailed, NotificationSent
from oarlock.lang import options
from oarlock.model.errors import OarlockError
from oarlock.model.event import EventType
from oarlock.model.summary import parse_detail
from oarlock.node.attempt.user.notice import Notice
from oarlock.server.process.clock import Clock
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.users.mails import NewMail

_MAIL_SECONDS = 20.0
_PERMANENT = 500  # from this code on a server means what it says: the next try would be refused, too


class MailFailed(Exception):
    """A mail that the server did not accept; the text has the reason. `is_final`: it would not later, either."""

    def __init__(self, says: str, *, is_final: bool) -> None:
        super().__init__(says)
        self.is_final = is_final


class MailServer:
    """Sends mails."""

    def __init__(self, config: Config) -> None:
        self._server, self._sender = config.mail_smtp_server, sender_of(config)
        self._lock = asyncio.Lock()

    async def send(
        self,
        to: Sequence[str],
        subject: str,
        text: str,
        *,
        html: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a mail, perhaps with an HTML part; raise `MailFailed` with the reason if it was not accepted."""
        async with self._lock:
            try:
                await asyncio.to_thread(self._deliver, to, subject, text, html, headers)
            except (OSError, ValueError, smtplib.SMTPException) as error:
                says = f"a mail to {', '.join(to)} could not be sent: {error}"
                raise MailFailed(says, is_final=_is_final(error)) from error

    def _deliver(
        self, to: Sequence[str], subject: str, text: str, html: str, headers: Mapping[str, str] | None
    ) -> None:
        if not self._server:
            raise ValueError("no MAIL_SMTP_SERVER is set")
        written = build_mail(to, subject, text, sender=self._sender, html=html, headers=headers)
        with smtplib.SMTP(self._server, timeout=_MAIL_SECONDS) as server:
            server.send_message(written)


def _is_final(error: Exception) -> bool:
    """Return whether the server refused this mail for good (5xx), or it cannot be written as a mail at all."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= _PERMANENT for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPSenderRefused | smtplib.SMTPDataError):
        return error.smtp_code >= _PERMANENT
    return isinstance(error, ValueError)


log = logging.getLogger(__name__)

_WINDOW, _MOST = 60.0, 30  # mails to one address within so many seconds
_PROGRAMS, _WAITING = 6, 1000  # programs that run at once; those of one user that wait for their turn

Run = Callable[[Notice], Awaitable[str]]
"""Runs a program on the submission host; returns what went wrong, or an empty text."""

ReportText = Callable[[int], Awaitable[str]]
"""Returns the report of a job as text, once it is summarised; empty if nothing was measured."""

Enqueue = Callable[[NewMail], Awaitable[None]]
"""Stores a mail that is sent when the mail server is back."""


class NoticeSender:
    """Sends notices the way each user chose. A user's programs run one after the other; failures become reports."""

    def __init__(
        self,
        config: Config,
        queue_report: Callable[[IncomingReport], None],
        run: Run,
        report: ReportText,
        enqueue: Enqueue | None = None,
    ) -> None:
        self._queue_report, self._run, self._mail_server = queue_report, run, MailServer(config)
        self._report, self._enqueue = report, enqueue
        self._sent: dict[str, deque[float]] = {}
        self._programs = asyncio.Semaphore(_PROGRAMS)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: defaultdict[str, int] = defaultdict(int)

    async def send(self, notice: Notify) -> None:
        """Notify a user; the notice is then done, whatever came of it. One that a restart interrupts is sent again."""
        kind, _, where = notice.how.partition(":")
        if kind == "exec":
            await self._execute(notice, where)
        elif self._is_too_much(where):
            log.warning("too many mails; one is left out", extra={"job": notice.job, "user": notice.user})
        else:
            await self._mail(notice, where)
        self._queue_report(NotificationSent(notice.number))

    def _is_too_much(self, address: str) -> bool:
        now = asyncio.get_running_loop().time()
        sent = self._sent.setdefault(address, deque(maxlen=_MOST))
        if len(sent) == _MOST and now - sent[0] < _WINDOW:
            return True
        sent.append(now)
        return False

    async def _mail(self, notice: Notify, address: str) -> None:
        named = f" ({notice.name})" if notice.name else ""
        subject = f"[OAR] {notice.tag}: job {notice.job}{named}"
        text = f"Job {notice.job}{named} of {notice.user}: {notice.comment}\n"
        if notice.tag == REPORT and (report := await self._report(notice.job)):
            text += f"\n{report}"
        try:
            await self._mail_server.send([address], subject, text)
        except MailFailed as problem:
            if self._enqueue is not None and not problem.is_final:
                await self._enqueue(NewMail(0, notice.user, "", address, subject, text, job=notice.job))
                return
            self._queue_report(NotificationFailed(notice.job, EventType.USER_MAIL_NOTIFICATION, str(problem)))

    async def _execute(self, notice: Notify, program: str) -> None:
        if self._waiting[notice.user] >= _WAITING:
            self._not_run(notice, f"{_WAITING} programs of {notice.user} wait already")
            return
        self._waiting[notice.user] += 1
        try:
            async with self._turns[notice.user], self._programs:
                if says := await self._run(_as_node_notice(notice, program)):
                    self._not_run(notice, says)
        except OarlockError as error:
            self._not_run(notice, str(error))
        finally:
            self._done(notice.user)

    def _not_run(self, notice: Notify, says: str) -> None:
        self._queue_report(NotificationFailed(notice.job, EventType.USER_EXEC_NOTIFICATION_ERROR, says))

    def _done(self, user: str) -> None:
        self._waiting[user] -= 1
        if not self._waiting[user]:
            del self._waiting[user], self._turns[user]


def _as_node_notice(notice: Notify, program: str) -> Notice:
    """Append OAR's four arguments to the user's own."""
    path, *arguments = options.words(program)
    about = (str(notice.job), notice.name, notice.tag, notice.comment)
    return Notice(notice.job, notice.user, path, (*arguments, *about))


_PATIENCE, _PAUSE = 30, 2.0  # how often, and after how many seconds, it is looked whether the collector is done

Read = Callable[[Callable[[Tx], Any]], Awaitable[Any]]


class JobReports:
    """Writes reports from summaries. A job that is just over is summarised a moment later: that is waited for."""

    def __init__(self, config: Config, clock: Clock, read: Read) -> None:
        self._config, self._clock, self._read = config, clock, read

    async def text(self, job: int) -> str:
        """Return the report of a job; empty if nothing was measured of it, or if it cannot be written now."""
        try:
            for _ in range(_PATIENCE):
                if await self._read(partial(_is_complete, job=job)):
                    break
                await asyncio.sleep(_PAUSE)
            return str(await self._read(partial(self._write, job=job)))
        except OarlockError as problem:
            log.warning("no report of a job", extra={"job": job, "why": str(problem)})
            return ""

    def _write(self, tx: Tx, *, job: int) -> str:
        judged = gather(
            tx,
            [job],
            now=int(self._clock.now()),
            gpu_property=self._config.job_gpu_property,
            cluster=self._config.cluster_name,
        )
        if not judged:
            return ""
        detail = parse_detail(summaries.details_of(tx, [job])[job])
        findings = find(rules_in_force(self._config.findings_file), judged[0].facts, script=judged[0].script)
        return "\n".join([*text_lines(make_report(judged[0], detail, findings)), ""])


def _is_complete(tx: Tx, *, job: int) -> bool:
    """Return whether the summary of a job has both what its nodes reported and what was sampled."""
    stored = summaries.of_jobs(tx, [job])
    return bool(stored) and bool(stored[0].booked)
