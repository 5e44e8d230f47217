"""Notifies users of their jobs, by mail or by a program of theirs, with rate limits."""

import asyncio
import logging
import smtplib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from email.message import EmailMessage

from oarlock.config import Config
from oarlock.job.notices import REPORT
from oarlock.job.run.effects import Notify
from oarlock.job.run.reports import IncomingReport, NotificationFailed, NotificationSent
from oarlock.lang import options
from oarlock.model.errors import OarlockError
from oarlock.model.event import EventType
from oarlock.node.attempt.notice import Notice

_MAIL_SECONDS = 20.0


class MailFailed(Exception):
    """A mail that the server did not accept; the text has the reason."""


class MailServer:
    """Sends mails."""

    def __init__(self, config: Config) -> None:
        self._server, self._sender = config.mail_smtp_server, config.mail_sender or "oarlock@localhost"
        self._lock = asyncio.Lock()

    async def send(self, to: Sequence[str], subject: str, text: str) -> None:
        """Send a mail; raise `MailFailed` with the reason if the server did not accept it."""
        async with self._lock:
            try:
                await asyncio.to_thread(self._deliver, to, subject, text)
            except (OSError, ValueError, smtplib.SMTPException) as error:
                raise MailFailed(f"a mail to {', '.join(to)} could not be sent: {error}") from error

    def _deliver(self, to: Sequence[str], subject: str, text: str) -> None:
        if not self._server:
            raise ValueError("no MAIL_SMTP_SERVER is set")
        written = mail(to, subject, text, sender=self._sender)
        with smtplib.SMTP(self._server, timeout=_MAIL_SECONDS) as server:
            server.send_message(written)


def mail(to: Sequence[str], subject: str, text: str, *, sender: str) -> EmailMessage:
    """Build a mail; raise `ValueError` for an address or a subject that would add header lines."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, ", ".join(to), subject
    message.set_content(text)
    return message


log = logging.getLogger(__name__)

_WINDOW, _MOST = 60.0, 30  # mails to one address within so many seconds
_PROGRAMS, _WAITING = 6, 1000  # programs that run at once; those of one user that wait for their turn

Run = Callable[[Notice], Awaitable[str]]
"""Runs a program on the submission host; returns what went wrong, or an empty text."""

ReportText = Callable[[int], Awaitable[str]]
"""Returns the report of a job as text, once it is summarised; empty if nothing was measured."""


class NoticeSender:
    """Sends notices the way each user chose. A user's programs run one after the other; failures become reports."""

    def __init__(
        self, config: Config, queue_report: Callable[[IncomingReport], None], run: Run, report: ReportText
    ) -> None:
        self._queue_report, self._run, self._mail_server = queue_report, run, MailServer(config)
        self._report = report
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
