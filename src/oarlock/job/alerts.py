"""Alerts: which events are sent to administrators, and up to which one that was done.

The last event sent is stored in the database, so that a restart or a mail server that is down loses nothing.
"""

from collections.abc import Sequence

from oarlock.model.event import FOR_ADMINISTRATORS
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import events
from oarlock.store.queries.events import EventRow

_NAME = "administrators told up to event"


def begin(tx: Tx) -> None:
    """Mark all events of before as sent, where no alert was ever sent."""
    facts.get_or_set(tx, _NAME, str(events.last(tx)))


def due(tx: Tx, *, most: int) -> list[EventRow]:
    """Return the oldest events for which no alert was sent."""
    return events.after(tx, int(facts.get(tx, _NAME) or 0), FOR_ADMINISTRATORS, most=most)


def mark_sent(tx: Tx, sent: Sequence[EventRow]) -> None:
    """Store that alerts for these events were sent."""
    facts.put(tx, _NAME, str(max(event.id for event in sent)))
