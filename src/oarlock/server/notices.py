"""Notices: mails to users about their jobs. One at a time and not too many, so that a large array floods nobody."""

import asyncio
import logging
import smtplib
from collections import deque
from collections.abc import Callable
from email.message import EmailMessage

from oarlock.config import Config
from oarlock.job.instructions import Notify
from oarlock.job.news import News, NotNotified
from oarlock.model.event import EventType

log = logging.getLogger(__name__)

_SECONDS = 20.0
_WINDOW, _MOST = 60.0, 30  # mails to one address within so many seconds


class Notices:
    """Sends mails by MAIL_SMTP_SERVER, in a thread."""

    def __init__(self, config: Config, tell: Callable[[News], None]) -> None:
        self._config, self._tell = config, tell
        self._sent: dict[str, deque[float]] = {}
        self._turn = asyncio.Lock()

    async def send(self, notice: Notify) -> None:
        """Tell a user, as the user chose; what goes wrong is told as news."""
        kind, _, where = notice.how.partition(":")
        if kind == "mail" and self._is_too_much(where):
            log.warning("too many mails; one is left out", extra={"job": notice.job, "user": notice.user})
        elif kind == "mail":
            await self._mail(notice, where)
        else:
            says = f"{kind}: programs are not run for notices yet; use mail:"
            self._tell(NotNotified(notice.job, EventType.USER_EXEC_NOTIFICATION_ERROR, says))

    def _is_too_much(self, address: str) -> bool:
        now = asyncio.get_running_loop().time()
        sent = self._sent.setdefault(address, deque(maxlen=_MOST))
        if len(sent) == _MOST and now - sent[0] < _WINDOW:
            return True
        sent.append(now)
        return False

    async def _mail(self, notice: Notify, address: str) -> None:
        async with self._turn:
            try:
                await asyncio.to_thread(self._deliver, notice, address)
            except (OSError, ValueError, smtplib.SMTPException) as error:
                says = f"a mail to {address} could not be sent: {error}"
                self._tell(NotNotified(notice.job, EventType.USER_MAIL_NOTIFICATION, says))

    def _deliver(self, notice: Notify, address: str) -> None:
        if not self._config.mail_smtp_server:
            raise ValueError("no MAIL_SMTP_SERVER is set")
        with smtplib.SMTP(self._config.mail_smtp_server, timeout=_SECONDS) as server:
            server.send_message(mail(notice, address, sender=self._config.mail_sender or "oarlock@localhost"))


def mail(notice: Notify, address: str, *, sender: str) -> EmailMessage:
    """Write a mail about a job; `ValueError` for an address or a name that would add lines to its head."""
    made = EmailMessage()
    named = f" ({notice.name})" if notice.name else ""
    made["From"], made["To"] = sender, address
    made["Subject"] = f"[OAR] {notice.tag}: job {notice.job}{named}"
    made.set_content(f"Job {notice.job}{named} of {notice.user}: {notice.comment}\n")
    return made
