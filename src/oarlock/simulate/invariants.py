"""What must be true of any history, however badly nodes, clocks and servers behaved meanwhile."""

from collections.abc import Iterable, Iterator

from oarlock.job.check import jobs as judged
from oarlock.job.check import sharing
from oarlock.model.job import FINAL, Job, JobState
from oarlock.model.job_type import parse_types
from oarlock.simulate.nodes import SimulatedNode
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.planning.plans import ReservedPlace
from oarlock.store.queries.usage.history import FullHistory, StateInterval


def broken(history: FullHistory, nodes: Iterable[SimulatedNode]) -> list[str]:
    """Return a sentence for each violated invariant once every job is over; empty if all is well."""
    everywhere = list(nodes)
    problems = [*_of_resources(history), *_of_accounts(history), *_of_nodes(history, everywhere)]
    for number, job in history.jobs.items():
        problems += [f"job {number} {problem}" for problem in _of_state_history(job, history.stays.get(number, []))]
        problems += [f"job {number} {problem}" for problem in _of_attempts(history.attempts.get(number, []))]
        problems += [f"job {number} {problem}" for problem in _of_end(job, history.events.get(number, []))]
    return problems


def overlapping(places: Iterable[ReservedPlace]) -> list[str]:
    """Return a sentence for each two accepted reservations that were promised the same resource at the same time."""
    return [
        f"resource {resource} is promised to job {first} until {stop} and to job {second} from {start}"
        for resource, first, second, stop, start in sharing.promised_twice(places)
    ]


def _of_state_history(job: Job, stays: list[StateInterval]) -> Iterator[str]:
    """A state history has no gap and no illegal move, ends once, and says what the job's row says."""
    yield from (problem for _, problem in judged.state_history(job.state, stays))
    ends = sum(stay.state in FINAL for stay in stays)
    if stays and ends != 1:
        yield f"ended {ends} times"


def _of_attempts(attempts: list[Attempt]) -> Iterator[str]:
    """Attempts are counted without a gap, all are closed, and the user's code began in the last one at most."""
    yield from (problem for _, problem in judged.attempts(attempts))
    if attempts and attempts[-1].closed_us is None:
        yield f"has an attempt {attempts[-1].number} that is not closed"


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
    occupancy = sharing.CheckedResources()
    for number, resources in history.resources.items():
        occupancy.add(
            number, resources, history.stays[number], history.jobs[number].types if number in history.jobs else ()
        )
    for resource, first, second in occupancy.overlaps():
        yield f"resource {resource} was given to job {second} while job {first} had it"


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
