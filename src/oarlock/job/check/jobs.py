"""The invariants of one job: its story, its attempts, its times, its end."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from oarlock.job.check.finding import CheckFinding, broken, warning
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, HOLDS_RESOURCES, MOVES, JobState
from oarlock.model.job import JobState as S
from oarlock.model.job_type import parse_types
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.site.integrity import JobRecord
from oarlock.store.queries.usage.history import StateInterval

_FIRST = frozenset({S.WAITING, S.HOLD, S.TO_ACK_RESERVATION})


class CheckBounds(NamedTuple):
    """Seconds that a job may stay in a state, and may run over its walltime; and the nodes that do not answer.

    `now`: None if no server works on the database, so that nothing can have gone on since `last`.
    """

    passing: int
    over: int
    now: int
    away: frozenset[str]
    clock_jumped: bool


def judge(record: JobRecord, bounds: CheckBounds) -> Iterator[CheckFinding]:
    """Yield what is wrong with one job."""
    job = record.job.id
    for number, problem in (
        *story(record.job.state, record.stays),
        *attempts(record.attempts),
        *_assignment(record),
        *_end(record),
    ):
        yield broken(number, f"job {job} {problem}", job=job)
    yield from _times(record, bounds)
    yield from _progress(record, bounds)
    yield from _explained(record)


def story(state: JobState, stays: Sequence[StateInterval]) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the history of a job's states: gaps (4), illegal moves (5), an end that is none (6)."""
    states = [stay.state for stay in stays]
    if not stays or states[0] not in _FIRST:
        yield 4, f"begins with {states[:1]}"
        return
    for before, after in pairwise(stays):
        if before.state in FINAL:
            yield 6, f"went on to {after.state} after it was {before.state}"
        elif after.state not in MOVES[before.state]:
            yield 5, f"went from {before.state} to {after.state}"
        if before.stop != after.start:
            yield 4, f"was {before.state} until {before.stop}, and {after.state} from {after.start}"
        if before.stop < before.start:
            yield 4, f"was {before.state} from {before.start} until {before.stop}"
    if states[-1] is not state or stays[-1].stop:
        yield 4, f"is {state}, and its story ends with {states[-1]} (until {stays[-1].stop})"


def attempts(tries: Sequence[Attempt]) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the attempts of a job: they are counted without a gap, and only the last may be open."""
    numbers = [attempt.number for attempt in tries]
    if numbers != list(range(1, len(tries) + 1)):
        yield 8, f"has attempts {numbers}"
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
    began = any(stay.state is S.RUNNING for stay in record.stays)
    if bounds.clock_jumped or not began:
        return
    if job.start < job.submitted:
        yield broken(9, f"job {job.id} started at {job.start} and was submitted at {job.submitted}", job=job.id)
    ran = sum(stay.stop - stay.start for stay in record.stays if stay.state is S.RUNNING and stay.stop)
    if record.walltime and ran > record.walltime + bounds.over:
        text = f"job {job.id} ran for {ran} s, and its walltime is {record.walltime} s"
        yield warning(9, text, job=job.id)


_PASSED_THROUGH = frozenset({S.TO_LAUNCH, S.TO_ERROR, S.TO_ACK_RESERVATION, S.LAUNCHING, S.RESUMING, S.FINISHING})


def _progress(record: JobRecord, bounds: CheckBounds) -> Iterator[CheckFinding]:
    """A job that waits for a node that does not answer is held on purpose: what it does there is not known."""
    job = record.job
    if job.state not in _PASSED_THROUGH or not record.stays:
        return
    nodes = {node.name for attempt in record.attempts[-1:] for node in attempt.nodes}
    stayed = bounds.now - record.stays[-1].start
    if stayed > bounds.passing and not nodes & bounds.away:
        yield warning(7, f"job {job.id} is {job.state} since {stayed} s", job=job.id)


def _explained(record: JobRecord) -> Iterator[CheckFinding]:
    job, events = record.job, record.events
    if job.state is S.ERROR and not events:
        yield broken(15, f"job {job.id} is in Error, and no event says why", job=job.id)
    if EventType.BESTEFFORT_KILL not in events:
        return
    changed = EventType.DELETE_BESTEFFORT_JOB_TYPE in events
    if not parse_types(job.types).besteffort and not changed:
        yield broken(13, f"job {job.id} was ended for another one and is not a best-effort job", job=job.id)
    elif record.kill is None and job.state not in FINAL:
        yield broken(13, f"job {job.id} was to be ended for another one, and its kill is not noted", job=job.id)
