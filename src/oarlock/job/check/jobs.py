"""The invariants of one job: its state history, its attempts, its times, its end."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from oarlock.job.check.finding import CheckFinding, broken, warning
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, HOLDS_RESOURCES, MOVES, JobState
from oarlock.model.job import JobState as S
from oarlock.model.job_type import parse_types
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.site.integrity import CheckedAttempt, JobRecord
from oarlock.store.queries.usage.history import StateInterval

_FIRST = frozenset({S.WAITING, S.HOLD, S.TO_ACK_RESERVATION})


class CheckBounds(NamedTuple):
    """Seconds that a job may stay in each state that it passes through, and may run over its walltime.

    `now`: the last instant that was written, if no server works on the database: nothing can have gone on since.
    `cut_off`: jobs on nodes that do not answer. They are held until the lease there is over, for the walltime and
    `lease` seconds more.
    """

    passing: Mapping[JobState, int]
    over: int
    now: int
    cut_off: frozenset[int]
    lease: int
    clock_jumped: bool


def judge(record: JobRecord, bounds: CheckBounds) -> Iterator[CheckFinding]:
    """Yield what is wrong with one job."""
    job = record.job.id
    for number, problem in (
        *state_history(record.job.state, record.stays),
        *attempts(record.attempts),
        *_assignment(record),
        *_end(record),
    ):
        yield broken(number, f"job {job} {problem}", job=job)
    yield from _times(record, bounds)
    yield from _progress(record, bounds)
    yield from _explained(record)


def state_history(state: JobState, stays: Sequence[StateInterval]) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the history of a job's states: gaps (4), illegal moves (5), an end that is none (6)."""
    if not stays or stays[0].state not in _FIRST:
        yield 4, f"begins with {[stay.state for stay in stays[:1]]}"
        return
    yield from _moves(tuple([stay.state for stay in stays]))
    for before, after in pairwise(stays):
        if before.stop != after.start:
            yield 4, f"was {before.state} until {before.stop}, and {after.state} from {after.start}"
        if before.stop < before.start:
            yield 4, f"was {before.state} from {before.start} until {before.stop}"
    if stays[-1].state is not state or stays[-1].stop:
        yield 4, f"is {state}, and its state history ends with {stays[-1].state} (until {stays[-1].stop})"


@lru_cache(maxsize=4096)
def _moves(states: tuple[JobState, ...]) -> list[tuple[int, str]]:
    """Return the moves that must not be; most jobs of a site go through the same few sequences of states."""
    return [
        (6, f"went on to {after} after it was {before}") if before in FINAL else (5, f"went from {before} to {after}")
        for before, after in pairwise(states)
        if after not in MOVES[before]
    ]


def attempts(tries: Sequence[Attempt | CheckedAttempt]) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the attempts of a job: they are counted without a gap, and only the last may be open."""
    if any(attempt.number != number for number, attempt in enumerate(tries, 1)):
        yield 8, f"has attempts {[attempt.number for attempt in tries]}"
    for attempt in tries[:-1]:
        if attempt.closed_us is None:
            yield 8, f"has an attempt {attempt.number} that is not closed"
        if attempt.started_us:
            yield 8, f"began in attempt {attempt.number} and was tried again"


def _assignment(record: JobRecord) -> Iterator[tuple[int, str]]:
    job, given = record.job, len(record.resources)
    if job.assigned and record.owner != job.id:
        yield 3, f"was given alternative {job.assigned}, which is not its own"
    elif job.assigned and record.wanted is not None and job.state in HOLDS_RESOURCES | {S.TERMINATED}:
        reduced = EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION in record.events
        if given < record.wanted and not reduced:
            yield 3, f"has {given} resources and asked for at least {record.wanted}"
    elif job.state in HOLDS_RESOURCES and not job.assigned:
        yield 3, f"is {job.state} and has no resources"


def _end(record: JobRecord) -> Iterator[tuple[int, str]]:
    job = record.job
    if job.state not in FINAL:
        return
    if not job.stop:
        yield 6, "is over and has no stop time"
    if record.held:
        yield 6, f"is over and holds {record.held} resources"
    if record.kill not in (None, "FRAGGED"):
        yield 6, f"is over, and its kill is still {record.kill}"
    if record.attempts and record.attempts[-1].closed_us is None:
        yield 8, f"is over, and its attempt {record.attempts[-1].number} is not closed"


def _times(record: JobRecord, bounds: CheckBounds) -> Iterator[CheckFinding]:
    job = record.job
    if job.state not in FINAL or not job.start:
        return
    if job.stop < job.start:
        yield broken(9, f"job {job.id} stopped at {job.stop}, before its start at {job.start}", job=job.id)
    longest = record.walltime + bounds.over if record.walltime else job.stop
    if bounds.clock_jumped or (job.submitted <= job.start and job.stop - job.start <= longest):
        return
    runs = [stay for stay in record.stays if stay.state is S.RUNNING]
    if runs and job.start < job.submitted:
        yield broken(9, f"job {job.id} started at {job.start} and was submitted at {job.submitted}", job=job.id)
    if (ran := sum(stay.stop - stay.start for stay in runs if stay.stop)) > longest:
        text = f"job {job.id} ran for {ran} s, and its walltime is {record.walltime} s"
        yield warning(9, text, job=job.id)


def _progress(record: JobRecord, bounds: CheckBounds) -> Iterator[CheckFinding]:
    """A job on a node that does not answer is held on purpose, until it is certain that nothing runs there."""
    job, longest = record.job, bounds.passing.get(record.job.state)
    if longest is None or not record.stays:
        return
    stayed = bounds.now - record.stays[-1].start
    if job.id in bounds.cut_off:
        lease_end = job.start + record.walltime + bounds.lease
        paused = any(stay.state is S.SUSPENDED for stay in record.stays)
        if bounds.now > lease_end + longest and not paused and not bounds.clock_jumped:
            text = f"job {job.id} is {job.state} since {stayed} s, and the lease of its nodes ended at {lease_end}"
            yield warning(7, text, job=job.id)
    elif stayed > longest:
        yield warning(7, f"job {job.id} is {job.state} since {stayed} s", job=job.id)


def _explained(record: JobRecord) -> Iterator[CheckFinding]:
    job, events = record.job, record.events
    if job.state is S.ERROR and not events:
        yield broken(15, f"job {job.id} is in Error, and no event says why", job=job.id)
    copied = events.count(EventType.RESUBMIT_JOB_AUTOMATICALLY)
    if copied > 1:
        yield broken(13, f"job {job.id} was submitted again {copied} times by itself", job=job.id)
    elif copied > record.copies:
        yield broken(13, f"job {job.id} was submitted again by itself, and its copy is gone", job=job.id)
    if EventType.BESTEFFORT_KILL not in events:
        return
    changed = EventType.DELETE_BESTEFFORT_JOB_TYPE in events
    if not parse_types(job.types).besteffort and not changed:
        yield broken(13, f"job {job.id} was ended for another one and is not a best-effort job", job=job.id)
    elif record.kill is None and job.state not in FINAL:
        yield broken(13, f"job {job.id} was to be ended for another one, and its kill is not noted", job=job.id)
