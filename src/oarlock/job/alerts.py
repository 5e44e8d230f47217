"""Alerts: which events an administrator is told of, and up to which one that was done.

How far the telling has come is kept in the database, so that a restart or a mail server that is away loses nothing.
"""

from collections.abc import Sequence

from oarlock.model.event import FOR_ADMINISTRATORS
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import events
from oarlock.store.queries.events import EventRow

_NAME = "administrators told up to event"


def begin(tx: Tx) -> None:
    """Tell of what happens from now on, where nobody was ever told."""
    facts.get_or_set(tx, _NAME, str(events.last(tx)))


def due(tx: Tx, *, most: int) -> list[EventRow]:
    """Give the oldest events that administrators were not told of."""
    return events.after(tx, int(facts.get(tx, _NAME) or 0), FOR_ADMINISTRATORS, most=most)


def mark_sent(tx: Tx, noted: Sequence[EventRow]) -> None:
    """Remember that administrators were told of these."""
    facts.put(tx, _NAME, str(max(one.id for one in noted)))
