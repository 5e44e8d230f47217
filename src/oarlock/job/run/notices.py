"""Notices: which moves and events of a job its owner is notified of (`--notify`)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from oarlock.job.run.effects import Notify
from oarlock.model.event import FOR_ADMINISTRATORS, Event, EventType
from oarlock.model.job import Job, JobState, Moved
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.cluster import events as stored_events
from oarlock.store.queries.cluster.events import EventRow, PendingNotice

_TAGS = {
    JobState.RUNNING: "START",
    JobState.TERMINATED: "END",
    JobState.ERROR: "ERROR",
    JobState.SUSPENDED: "SUSPENDED",
    JobState.RESUMING: "RESUMING",
}
REPORT = "REPORT"
"""What the job used of what it asked for; a tag of our own."""
_ENDS = frozenset({"END", "ERROR"})
_INFO = frozenset(
    {
        EventType.FRAG_JOB_REQUEST,
        EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION,
        EventType.REDUCE_RESERVATION_WALLTIME,
        EventType.RESUBMIT_JOB_AUTOMATICALLY,
    }
)
"""What happens to a job by the hand of others, and is no move of it."""
_HOW = re.compile(r"\s*(?:\[([^\]]*)\]\s*:?)?\s*(.*)", re.DOTALL)


def of_moves(moves: Iterable[Moved]) -> Iterator[Notify]:
    """Yield the notices of moves, in their order; `[END,ERROR]` before the address selects tags.

    Who wants a REPORT gets it at the end of the job, in the place of END or ERROR.
    """
    for moved in moves:
        job, tag = moved.job, _TAGS.get(moved.job.state)
        if not job.notify or tag is None:
            continue
        if moved.before is JobState.RESUMING and tag == "START":
            tag = "RUNNING"
        wanted, how = _chosen(job.notify)
        if tag in _ENDS and REPORT in wanted:
            tag = REPORT
        # The manual calls the beginning START; who chooses among the tags calls it RUNNING.
        if not wanted or {tag, "RUNNING" if tag == "START" else tag} & wanted:
            yield Notify(job.id, job.user, job.name or "", how, tag, moved.why)


def of_events(events: Iterable[Event], jobs: Mapping[int, Job]) -> Iterator[Notify]:
    """Yield the notices of events (tag INFO), in their order."""
    for event in events:
        job = jobs.get(event.job or 0) if event.type in _INFO else None
        if job is not None and job.notify:
            wanted, how = _chosen(job.notify)
            if not wanted or "INFO" in wanted:
                yield Notify(job.id, job.user, job.name or "", how, "INFO", event.description)


def store(tx: Tx, notices: Sequence[Notify]) -> list[Notify]:
    """Write notices down, so that they are sent though the server may die before; gives them with their numbers."""
    if not notices:
        return []
    numbers = stored_events.add_notices(
        tx,
        [
            PendingNotice(notice.job, notice.user, notice.name, notice.how, notice.tag, notice.comment)
            for notice in notices
        ],
    )
    return [replace(notice, number=number) for notice, number in zip(notices, numbers, strict=True)]


def unsent(tx: Tx) -> list[Notify]:
    """Return the notices that were stored and perhaps never sent."""
    return [Notify(*notice, number=number) for number, notice in stored_events.pending_notices(tx).items()]


def _chosen(text: str) -> tuple[frozenset[str], str]:
    match = _HOW.fullmatch(text)
    tags, how = (match[1] or "", match[2]) if match else ("", text)
    return frozenset(tag.strip().upper() for tag in tags.split(",") if tag.strip()), how


_ALERTED = "administrators told up to event"


def begin_alerts(tx: Tx) -> None:
    """Mark all events of before as sent, where no alert was ever sent."""
    facts.get_or_set(tx, _ALERTED, str(events.last(tx)))


def due_alerts(tx: Tx, *, most: int) -> list[EventRow]:
    """Return the oldest events for which no alert was sent."""
    return events.after(tx, int(facts.get(tx, _ALERTED) or 0), FOR_ADMINISTRATORS, most=most)


def mark_alerts_sent(tx: Tx, sent: Sequence[EventRow]) -> None:
    """Store that alerts for these events were sent."""
    facts.put(tx, _ALERTED, str(max(event.id for event in sent)))
