"""Mails to administrators (MAIL_RECIPIENT): what happened since the last one, together in one."""

import logging
import time
from collections.abc import Sequence

from oarlock.job.run import notices
from oarlock.job.run.reports import NotificationFailed
from oarlock.model.event import EVENTS, Event, EventType
from oarlock.server.core import ServerCore
from oarlock.server.effects.notices import MailFailed, MailServer
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster.events import EventRow

log = logging.getLogger(__name__)

_MOST = 200  # events in one mail
_STOPPED = "  All queues were stopped; `oarnotify -E` starts them again.\n"


class AlertSender:
    """Mails administrators the events that need them. A mail server that is away is tried again each period."""

    def __init__(self, core: ServerCore) -> None:
        self._core, self._mail_server = core, MailServer(core.config)
        self._failed = False

    async def send_due(self) -> None:
        """Send a mail about what is new, if anything is."""
        rows = await self._core.read(_due)
        if not rows:
            return
        recipients = self._core.config.mail_recipient
        try:
            await self._mail_server.send(recipients, subject(rows), text(rows))
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


def _due(tx: Tx) -> list[EventRow]:
    return notices.due_alerts(tx, most=_MOST)


def subject(rows: Sequence[EventRow]) -> str:
    """Name the first event, and how many more there are."""
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"[OAR] {rows[0].event.type}{more}"


def text(rows: Sequence[EventRow]) -> str:
    """Describe the events, one paragraph each."""
    return "\n".join(_paragraph(row.event) for row in rows)


def _paragraph(event: Event) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    about = [f"job {event.job}"] * bool(event.job) + [", ".join(event.hosts)] * bool(event.hosts)
    stopped = _STOPPED if EVENTS[event.type].stops_queues else ""
    named = f" ({'; '.join(about)})" if about else ""
    return f"{at} {event.type}{named}: {EVENTS[event.type].says}.\n  {event.description}\n{stopped}"
