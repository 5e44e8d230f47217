"""Queues: their priorities, and whether they are open."""

import logging
from collections.abc import Collection

from sqlalchemy import delete, func, insert, select, update

from oarlock.model.errors import QueueExists, QueueInUse, UnknownQueue
from oarlock.model.job import FINAL
from oarlock.model.snapshot import Queue
from oarlock.store.engine import journal
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import jobs, queues

_LISTED = select(queues.c.queue_name, queues.c.priority, queues.c.scheduler_policy, queues.c.state).order_by(
    queues.c.priority.desc(), queues.c.queue_name
)


def listed(tx: Tx) -> list[Queue]:
    """Return all queues, those with the highest priority first."""
    rows = tx.execute(_LISTED)
    return [Queue(name, priority, policy, state == "Active") for name, priority, policy, state in rows]


def add(tx: Tx, queue: Queue) -> None:
    """Add a queue; one of that name must not be there (`QueueExists`)."""
    if any(other.name == queue.name for other in listed(tx)):
        raise QueueExists(f"There is already a queue `{queue.name}`.", hint="`oarnotify -l` lists the queues.")
    state = "Active" if queue.active else "notActive"
    row = {"queue_name": queue.name, "priority": queue.priority, "scheduler_policy": queue.policy, "state": state}
    tx.execute(insert(queues), row)
    about = {"queue": queue.name, "priority": queue.priority, "policy": queue.policy}
    journal.note(tx, journal.SITE, "queue added", about)


def remove(tx: Tx, name: str) -> None:
    """Remove a queue in which no job is left (`QueueInUse`)."""
    left = select(func.count()).where(jobs.c.queue_name == name, jobs.c.state.not_in([state.value for state in FINAL]))
    if count := tx.execute(left).scalar_one():
        raise QueueInUse(f"{count} jobs are still in queue `{name}`.", hint="Wait for their end, or `oardel` them.")
    if not tx.execute(delete(queues).where(queues.c.queue_name == name)).rowcount:
        raise UnknownQueue(name)
    journal.note(tx, journal.SITE, "queue removed", {"queue": name})


def start(tx: Tx, names: Collection[str] | None = None) -> list[str]:
    """Start queues: those named (`UnknownQueue` if one is not there), or all. Return those that were stopped."""
    return _set_state(tx, "Active", names)


def stop(tx: Tx, names: Collection[str] | None = None) -> list[str]:
    """Stop queues: those named (`UnknownQueue` if one is not there), or all. Return those that were not stopped."""
    return _set_state(tx, "notActive", names)


def _set_state(tx: Tx, state: str, names: Collection[str] | None) -> list[str]:
    before = {queue.name: queue.active for queue in listed(tx)}
    for name in names or ():
        if name not in before:
            raise UnknownQueue(name)
    wanted = before if names is None else names
    tx.execute(update(queues).where(queues.c.queue_name.in_(wanted)).values(state=state))
    changed = [name for name in dict.fromkeys(wanted) if before[name] != (state == "Active")]
    for name in changed:
        # A stopped queue stays stopped until an administrator starts it: hence a warning.
        stopped = state != "Active"
        text, level = ("queue stopped", logging.WARNING) if stopped else ("queue started", logging.INFO)
        journal.note(tx, journal.SITE, text, {"queue": name}, level=level)
    return changed
