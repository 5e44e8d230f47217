"""The queue of mails: sent when they are due, and tried again with growing pauses while the mail server is away.

Mails to administrators (MAIL_RECIPIENT) do not wait in it: what happened since the last one goes together in one.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial

from oarlock.insight.mails import kind_of, stored_mail_key, unsubscribe_headers, unsubscribe_link
from oarlock.job.run import notices
from oarlock.job.run.reports import NotificationFailed
from oarlock.model.event import EVENTS, Event, EventType
from oarlock.server.core import ServerCore
from oarlock.server.effects.notices import MailFailed, MailServer
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster.events import EventRow
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import StoredMail

log = logging.getLogger(__name__)

_AT_ONCE = 50  # mails of one look: a long queue must not delay the next look for ever
_FIRST_PAUSE, _LONGEST_PAUSE = 60, 6 * 3600
_PATIENCE = 3 * 86_400
_KEPT = 90 * 86_400
_MOST_EVENTS = 200  # in one mail to administrators
_STOPPED = "  All queues were stopped; `oarnotify -E` starts them again.\n"


class MailQueue:
    """Sends the mails of the queue. The outage of a mail server is reported to staff once."""

    def __init__(self, core: ServerCore) -> None:
        self._core, self._mail_server = core, MailServer(core.config)
        self._is_away = False

    async def send_due(self) -> None:
        """Send what is due; stop at the first mail for which the server is away: the others would wait as long."""
        now = int(self._core.clock.now())
        for mail in await self._core.read(partial(mails.due, now=now, most=_AT_ONCE)):
            if not await self._send(mail, now):
                return
        await self._core.write(partial(mails.forget, before=now - _KEPT))

    async def _send(self, mail: StoredMail, now: int) -> bool:
        """Send a mail, or store when it is tried again; return whether the server answers."""
        try:
            headers = await self._headers(mail)
            await self._mail_server.send([mail.address], mail.subject, mail.body, html=mail.html, headers=headers)
        except MailFailed as failure:
            await self._failed(mail, failure, now)
            return failure.is_final
        self._is_away = False
        await self._core.write(lambda tx: mails.close(tx, mail.id, now=now))
        return True

    async def _headers(self, mail: StoredMail) -> dict[str, str]:
        """Return the headers by which such mails can be refused."""
        kind = kind_of(mail.rule)
        key = None if kind is None else await self._core.read(stored_mail_key)
        if kind is None or key is None:
            return {}
        return unsubscribe_headers(unsubscribe_link(self._core.config, key, mail.user, kind))

    async def _failed(self, mail: StoredMail, failure: MailFailed, now: int) -> None:
        says = str(failure)
        if failure.is_final or now - mail.date >= _PATIENCE:
            await self._core.write(lambda tx: mails.close(tx, mail.id, now=now, problem=says))
            if mail.job:
                self._core.queue_report(NotificationFailed(mail.job, EventType.USER_MAIL_NOTIFICATION, says))
        else:
            until = now + min(_FIRST_PAUSE << min(mail.tries, 20), _LONGEST_PAUSE)
            await self._core.write(lambda tx: mails.postpone(tx, mail.id, until=until, problem=says))
        if not failure.is_final and not self._is_away:
            self._is_away = True
            log.warning("the mail server is away; mails wait", extra={"why": says})
            self._core.queue_report(NotificationFailed(0, EventType.MAIL_NOTIFICATION_ERROR, says))


class AlertSender:
    """Mails administrators the events that need them. A mail server that is away is tried again each period."""

    def __init__(self, core: ServerCore) -> None:
        self._core, self._mail_server = core, MailServer(core.config)
        self._failed = False

    async def send_due(self) -> None:
        """Send a mail about what is new, if anything is."""
        rows = await self._core.read(_due_alerts)
        if not rows:
            return
        recipients = self._core.config.mail_recipient
        try:
            await self._mail_server.send(recipients, alert_subject(rows), alert_text(rows))
        except MailFailed as problem:
            self._complain(str(problem))
            return
        self._failed = False
        await self._core.write(lambda tx: notices.mark_alerts_sent(tx, rows))

    def _complain(self, says: str) -> None:
        """Report once that mails cannot be sent; they are tried again."""
        if not self._failed:
            self._failed = True
            log.warning("alert mail could not be sent", extra={"why": says})
            self._core.queue_report(NotificationFailed(0, EventType.MAIL_NOTIFICATION_ERROR, says))


def _due_alerts(tx: Tx) -> list[EventRow]:
    return notices.due_alerts(tx, most=_MOST_EVENTS)


def alert_subject(rows: Sequence[EventRow]) -> str:
    """Name the first event, and how many more there are."""
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"[OAR] {rows[0].event.type}{more}"


def alert_text(rows: Sequence[EventRow]) -> str:
    """Describe the events, one paragraph each."""
    return "\n".join(_paragraph(row.event) for row in rows)


def _paragraph(event: Event) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    about = [f"job {event.job}"] * bool(event.job) + [", ".join(event.hosts)] * bool(event.hosts)
    stopped = _STOPPED if EVENTS[event.type].stops_queues else ""
    named = f" ({'; '.join(about)})" if about else ""
    return f"{at} {event.type}{named}: {EVENTS[event.type].says}.\n  {event.description}\n{stopped}"
