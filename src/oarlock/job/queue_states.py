"""Queue states: queues stop and start again, with an event that names the reason and the way on."""

from collections.abc import Collection, Sequence

from oarlock.model.event import EVENTS, Event, EventType
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.site import administration


def start(tx: Tx, names: Collection[str] | None, *, by: str, now: int) -> None:
    """Start queues (all, if none is named) for an administrator, who has seen why they stopped."""
    started = administration.start_queues(tx, names)
    stops = [noted.id for noted in events.to_check(tx) if is_stop(noted.event.type)]
    if stops:
        events.check_off(tx, stops)
    if started:
        events.add(tx, [Event(EventType.QUEUES_STARTED, now, f"{named(started)} started by {by}")])


def stop(tx: Tx, names: Collection[str] | None, *, by: str, now: int) -> None:
    """Stop queues (all, if none is named) for an administrator."""
    stopped = administration.stop_queues(tx, names)
    if stopped:
        says = f"{named(stopped)} stopped by {by}; {_way_on(tx, stopped)}"
        events.add(tx, [Event(EventType.QUEUES_STOPPED, now, says)])


def stop_all(tx: Tx, why: str, *, now: int) -> Event | None:
    """Stop all queues because of a fault of the site; return the event to write, unless they were stopped before."""
    stopped = administration.stop_queues(tx)
    if not stopped:
        return None
    says = f"{why}. No job starts any more in {named(stopped)}; once that is put right, {_way_on(tx, stopped)}"
    return Event(EventType.QUEUES_STOPPED, now, says)


def why_stopped(tx: Tx) -> str:
    """Return the description of the last event that stopped queues which are still stopped; empty if there is none."""
    stops = [noted.event for noted in events.to_check(tx) if noted.event.type is EventType.QUEUES_STOPPED]
    return stops[-1].description if stops else ""


def is_stop(kind: EventType) -> bool:
    """Whether an event tells that queues stopped."""
    return kind is EventType.QUEUES_STOPPED or EVENTS[kind].stops_queues


def named(names: Sequence[str]) -> str:
    """Name queues in a sentence."""
    return f"{'queue' if len(names) == 1 else 'queues'} {', '.join(names)}"


def _way_on(tx: Tx, names: Sequence[str]) -> str:
    """Return how an administrator starts queues again; others that were stopped before stay so."""
    options = "-E" if len(names) == len(administration.all_queues(tx)) else " ".join(f"-e {name}" for name in names)
    return f"`oarnotify {options}` starts {'it' if len(names) == 1 else 'them'} again"
