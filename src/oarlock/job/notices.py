"""Notices: what of a job its owner wants to hear of."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from oarlock.job.run.effects import Notify
from oarlock.model.event import Event, EventType
from oarlock.model.job import Job, JobState, Moved
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import notices as stored
from oarlock.store.queries.notices import PendingNotice

_TAGS = {
    JobState.RUNNING: "START",
    JobState.TERMINATED: "END",
    JobState.ERROR: "ERROR",
    JobState.SUSPENDED: "SUSPENDED",
    JobState.RESUMING: "RESUMING",
}
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
    """Give the notices of moves, in their order; `[END,ERROR]` before the address chooses among the tags."""
    for moved in moves:
        job, tag = moved.job, _TAGS.get(moved.job.state)
        if not job.notify or tag is None:
            continue
        if moved.before is JobState.RESUMING and tag == "START":
            tag = "RUNNING"
        wanted, how = _chosen(job.notify)
        # The manual calls the beginning START; who chooses among the tags calls it RUNNING.
        if not wanted or {tag, "RUNNING" if tag == "START" else tag} & wanted:
            yield Notify(job.id, job.user, job.name or "", how, tag, moved.why)


def of_events(events: Iterable[Event], jobs: Mapping[int, Job]) -> Iterator[Notify]:
    """Give the notices of events (tag INFO), in their order."""
    for event in events:
        job = jobs.get(event.job or 0) if event.type in _INFO else None
        if job is not None and job.notify:
            wanted, how = _chosen(job.notify)
            if not wanted or "INFO" in wanted:
                yield Notify(job.id, job.user, job.name or "", how, "INFO", event.description)


def store(tx: Tx, told: Sequence[Notify]) -> list[Notify]:
    """Write notices down, so that they are sent though the server may die before; gives them with their numbers."""
    if not told:
        return []
    numbers = stored.add(
        tx, [PendingNotice(one.job, one.user, one.name, one.how, one.tag, one.comment) for one in told]
    )
    return [replace(one, number=number) for one, number in zip(told, numbers, strict=True)]


def unsent(tx: Tx) -> list[Notify]:
    """Give the notices that were written down and perhaps never sent."""
    return [Notify(*one, number=number) for number, one in stored.pending(tx).items()]


def _chosen(text: str) -> tuple[frozenset[str], str]:
    found = _HOW.fullmatch(text)
    tags, how = (found[1] or "", found[2]) if found else ("", text)
    return frozenset(tag.strip().upper() for tag in tags.split(",") if tag.strip()), how
