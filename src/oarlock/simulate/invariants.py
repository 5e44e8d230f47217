"""What must be true of any history, however badly nodes, clocks and servers behaved meanwhile."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from oarlock.model.job import FINAL, HOLDS_RESOURCES, MOVES, Job, JobState
from oarlock.model.job_type import JobType as T
from oarlock.model.job_type import parse_types
from oarlock.simulate.nodes import SimulatedNode
from oarlock.store.queries.attempts import Attempt
from oarlock.store.queries.history import FullHistory, StateInterval
from oarlock.store.queries.plans import ReservedPlace


def broken(history: FullHistory, nodes: Iterable[SimulatedNode]) -> list[str]:
    """Return a sentence for each violated invariant once every job is over; empty if all is well."""
    everywhere = list(nodes)
    problems = [*_of_resources(history), *_of_accounts(history), *_of_nodes(history, everywhere)]
    for number, job in history.jobs.items():
        problems += [f"job {number} {problem}" for problem in _of_story(job, history.stays.get(number, []))]
        problems += [f"job {number} {problem}" for problem in _of_attempts(history.attempts.get(number, []))]
        problems += [f"job {number} {problem}" for problem in _of_end(job, history.events.get(number, []))]
    return problems


_SHARING = frozenset({T.ALLOW, T.ALLOWED, T.BESTEFFORT, T.CONTAINER, T.INNER, T.PLACEHOLDER, T.TIMESHARING})
"""Types of jobs that may use a resource while another one does."""


def overlapping(places: Iterable[ReservedPlace]) -> list[str]:
    """Return a sentence for each two accepted reservations that were promised the same resource at the same time."""
    promised: dict[int, list[tuple[int, int, int]]] = {}
    for place in places:
        for resource in () if _SHARING & parse_types(place.types).words else place.resources:
            promised.setdefault(resource, []).append((place.start, place.stop, place.job_id))
    return [
        f"resource {resource} is promised to job {first} until {stop} and to job {second} from {start}"
        for resource, spans in promised.items()
        for (_, stop, first), (start, _, second) in pairwise(sorted(spans))
        if start < stop
    ]


def _of_story(job: Job, stays: list[StateInterval]) -> Iterator[str]:
    """A story has no gap and no illegal move, ends once, and says what the job's row says."""
    states = [stay.state for stay in stays]
    if not stays or states[0] not in {JobState.WAITING, JobState.HOLD}:
        yield f"begins with {states[:1]}"
        return
    for before, after in pairwise(stays):
        if after.state not in MOVES[before.state]:
            yield f"went from {before.state} to {after.state}"
        if before.stop != after.start:
            yield f"was {before.state} until {before.stop}, and {after.state} from {after.start}"
    if states[-1] is not job.state or stays[-1].stop:
        yield f"is {job.state}, and its story ends with {states[-1]} (until {stays[-1].stop})"
    ends = sum(state in FINAL for state in states)
    if ends != 1:
        yield f"ended {ends} times"


def _of_attempts(tries: list[Attempt]) -> Iterator[str]:
    """Attempts are counted without a gap, all are closed, and the user's code began in the last one at most."""
    numbers = [attempt.number for attempt in tries]
    if numbers != list(range(1, len(tries) + 1)):
        yield f"has attempts {numbers}"
    yield from (f"has an attempt {attempt.number} that is not closed" for attempt in tries if attempt.closed_us is None)
    yield from (
        f"began in attempt {attempt.number} and was tried again" for attempt in tries[:-1] if attempt.started_us
    )


def _of_end(job: Job, events: list[str]) -> Iterator[str]:
    """A job that ended well has the status of its command; one that did not has an event for it."""
    if job.state is JobState.TERMINATED and not parse_types(job.types).noop:
        words = (job.command or "").split()
        expected = int(words[words.index("exit") + 1]) << 8 if "exit" in words else 0
        if job.exit_code != expected and "saves" not in words:
            yield f"ended with {job.exit_code} instead of {expected}"
    if job.state is JobState.ERROR and not events:
        yield "is in Error, and no event says why"
    if job.start and job.stop < job.start:
        yield f"stopped at {job.stop}, before its start at {job.start}"
    if not job.accounted:
        yield "was not accounted"


def _of_resources(history: FullHistory) -> Iterator[str]:
    """No resource belongs to two jobs at a time, and none to a job that is over."""
    if history.held:
        yield f"{history.held} resources are held by jobs that are over"
    holding: dict[int, list[tuple[int, int, int]]] = {}
    for number, resources in history.resources.items():
        span = _held(history.stays[number])
        for resource in resources if span else ():
            holding.setdefault(resource, []).append((*span, number))  # type: ignore[misc]
    for resource, spans in holding.items():
        for (_, stop, first), (start, _, second) in pairwise(sorted(spans)):
            if start < stop:
                yield f"resource {resource} was given to job {second} while job {first} had it"


def _held(stays: list[StateInterval]) -> tuple[int, int] | None:
    """Return the last span in which a job had resources: those of a failed launch were taken back."""
    span = None
    for before, after in pairwise(stays):
        if before.state in HOLDS_RESOURCES:
            first = span[0] if span and span[1] == before.turn else before.turn
            span = (first, after.turn)
    return span


def _of_accounts(history: FullHistory) -> Iterator[str]:
    """What was accounted is what jobs used."""
    used = sum(
        (job.stop - job.start) * len(history.resources.get(number, ()))
        for number, job in history.jobs.items()
        if job.start
    )
    if used != history.used:
        yield f"{history.used} resource-seconds were accounted and {used} were used"


def _of_nodes(history: FullHistory, nodes: list[SimulatedNode]) -> Iterator[str]:
    """Every job's command began at most once anywhere, and nothing is left on nodes."""
    began: dict[int, list[str]] = {}
    for node in nodes:
        for job, attempt in node.ran:
            began.setdefault(job, []).append(f"{attempt} on {node.name}")
        yield from (f"{node.name} still runs job {job}" for (job, _), run in node.runs.items() if run.lives)
    for job, places in began.items():
        if len(places) > 1:
            yield f"the command of job {job} began {len(places)} times: attempt {', '.join(places)}"
        if job not in history.jobs:
            yield f"job {job} ran, and nobody knows of it"
