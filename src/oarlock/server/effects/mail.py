"""Sends mail through MAIL_SMTP_SERVER: one after the other, in a thread, with a timeout."""

import asyncio
import smtplib
from collections.abc import Sequence
from email.message import EmailMessage

from oarlock.config import Config

_SECONDS = 20.0


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
        with smtplib.SMTP(self._server, timeout=_SECONDS) as server:
            server.send_message(written)


def mail(to: Sequence[str], subject: str, text: str, *, sender: str) -> EmailMessage:
    """Build a mail; raise `ValueError` for an address or a subject that would add header lines."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, ", ".join(to), subject
    message.set_content(text)
    return message
