"""Resubmit a copy of a job that asked to be run again: once for each end, and a bounded number of times."""

from dataclasses import replace

from oarlock.job.run import unknown_users
from oarlock.job.run.unit_of_work import ON_FRONTEND, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import Job, JobKind, JobState, Reservation
from oarlock.node.wire.messages import EXITED, KILLED, LOST
from oarlock.store.queries import jobs, properties, shapes
from oarlock.store.queries.attempts import Attempt

AGAIN = 99 << 8
"""The wait status by which a program asks to be run again."""

_LEAST_RUN = 60  # seconds: a job that asks again at once would only turn in circles
_LONGEST_CHAIN = 100
_LONGEST_LOST = 3  # a job may be what brings its nodes down
_IDEMPOTENT, _BESTEFFORT = "idempotent", "besteffort"


def resubmit_if_due(unit: UnitOfWork, job: Job, attempt: Attempt) -> int | None:
    """Submit a copy of a job that just ended, if it is one to be run again; give the copy's number.

    Idempotent jobs are: after a checkpoint with exit 0; with exit 99 after more than a minute; when they were best
    effort and made room for others; and when their node lost them. Jobs that wait for this one wait for the copy.
    """
    longest = _LONGEST_LOST if attempt.outcome == LOST else _LONGEST_CHAIN
    if not _may_be_copied(job) or not _wants_again(unit, job, attempt) or _chain(unit, job) >= longest:
        return None
    request = shapes.requests_of(unit.tx, [job.id], properties.types(unit.tx)).get(job.id)
    if request is None:
        return None
    after = tuple(jobs.dependencies(unit.tx, [job.id]).get(job.id, ()))
    [copy] = jobs.add(unit.tx, [jobs.NewJob(_fresh(job, unit.now), request, after)])
    jobs.wait_for_copy(unit.tx, job.id, copy.id)
    unit.event(EventType.RESUBMIT_JOB_AUTOMATICALLY, f"job {copy.id} is a copy of job {job.id}", job.id)
    return copy.id


def _may_be_copied(job: Job) -> bool:
    return (
        _IDEMPOTENT in job.types
        and job.kind is JobKind.PASSIVE
        and job.reservation is Reservation.NONE
        and not ON_FRONTEND & set(job.types)
    )


def _wants_again(unit: UnitOfWork, job: Job, attempt: Attempt) -> bool:
    if attempt.outcome == EXITED and attempt.exit_code == AGAIN:
        return (attempt.ended_us or 0) - (attempt.started_us or 0) > _LEAST_RUN * 1_000_000
    if attempt.outcome == EXITED and attempt.exit_code == 0:
        return job.checkpoint > 0 and unit.has_event(job.id, EventType.CHECKPOINT_SUCCESS)
    if attempt.outcome == LOST and not unit.has_event(job.id, EventType.FRAG_JOB_REQUEST):
        return True
    made_room = attempt.outcome in {KILLED, LOST} and _BESTEFFORT in job.types
    return made_room and unit.has_event(job.id, EventType.BESTEFFORT_KILL)


def _chain(unit: UnitOfWork, job: Job) -> int:
    """Count the copies that led to this job."""
    length, before = 0, job.resubmit_of
    while before and length < _LONGEST_CHAIN:
        length += 1
        before = jobs.get(unit.tx, before).resubmit_of
    return length


def _fresh(job: Job, now: int) -> Job:
    return replace(
        job,
        id=0,
        state=JobState.WAITING,
        submitted=now,
        start=0,
        stop=0,
        assigned=0,
        message=unknown_users.message_without(job),
        exit_code=None,
        resubmit_of=job.id,
        array_index=1,
        suspended=False,
        accounted=False,
    )
