"""Who holds which resource when: overlaps of jobs, past and present (1), and of what the plan promises (2)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from oarlock.job.check.finding import CheckFinding, broken, warning
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.job import JobState as S
from oarlock.model.job_type import JobType as T
from oarlock.model.job_type import parse_types
from oarlock.store.queries.planning.plans import ReservedPlace
from oarlock.store.queries.site.integrity_site import PlannedJob
from oarlock.store.queries.usage.history import StateInterval

_SHARING = frozenset({T.ALLOW, T.ALLOWED, T.BESTEFFORT, T.CONTAINER, T.INNER, T.PLACEHOLDER, T.TIMESHARING})
"""Types of jobs that may be promised a resource while another one has it."""

_STOPPED = frozenset({S.SUSPENDED, S.RESUMING})


class HeldSpan(NamedTuple):
    """When a job held a resource, counted in moves of all jobs: clocks may be set back. No end: it still does."""

    first: int
    last: int
    job: int


FOREVER = 1 << 62


class CheckedResources:
    """Collects who held what; then finds the overlaps."""

    def __init__(self) -> None:
        self._spans: defaultdict[int, list[HeldSpan]] = defaultdict(list)
        self._types: dict[int, tuple[str, ...]] = {}
        self._users: dict[int, str] = {}

    def add(self, job: int, resources: Iterable[int], stays: Sequence[StateInterval], types: tuple[str, ...]) -> None:
        """Add a job."""
        spans = [HeldSpan(first, last, job) for first, last in held(stays)]
        if types:
            self._types[job] = types
        for resource in resources if spans else ():
            self._spans[resource] += spans

    def overlaps(self) -> Iterator[tuple[int, int, int]]:
        """Yield resource, first and second job of each overlap that their types do not allow."""
        for resource, spans in self._spans.items():
            present: list[HeldSpan] = []
            for span in sorted(spans):
                present = [other for other in present if other.last > span.first]
                for other in present:
                    if other.job != span.job and not self._may_share(other.job, span.job):
                        yield resource, other.job, span.job
                present.append(span)

    def _may_share(self, first: int, second: int) -> bool:
        mine, others = parse_types(self._types.get(first, ())), parse_types(self._types.get(second, ()))
        if mine.timesharing is not None and others.timesharing is not None:
            return True
        if mine.inner != others.inner:  # one is inside of the other's container, or of its own beside it
            return True
        return {mine.placeholder, others.placeholder} & {mine.allowed, others.allowed} - {None} != set()


def held(stays: Sequence[StateInterval]) -> list[tuple[int, int]]:
    """Return the spans in which a job had its resources to itself, in moves of all jobs.

    Those of a launch that failed were taken back, so only what follows the last wait counts. While a job is suspended
    others may use its resources, and a job that is ended while it is suspended does not get them back.
    """
    return [
        (stays[first].turn, FOREVER if last is None else stays[last].turn)
        for first, last in _held_between(tuple([stay.state for stay in stays]))
    ]


@lru_cache(maxsize=4096)
def _held_between(states: tuple[S, ...]) -> list[tuple[int, int | None]]:
    """Return the places in a sequence of states from which, and up to which, the resources are held."""
    holds = [place for place, state in enumerate(states) if state in HOLDS_RESOURCES]
    first = holds[0] if holds else 0
    for before, after in pairwise(holds):
        first = after if after - before > 1 else first
    spans: list[tuple[int, int | None]] = []
    for place in [place for place in holds if place >= first and states[place] not in _STOPPED]:
        if states[place] is S.FINISHING and place > first and states[place - 1] in _STOPPED:
            continue
        end = place + 1 if place + 1 < len(states) else None
        if spans and spans[-1][1] == place:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((place, end))
    return spans


def judge_plan(plan: Sequence[PlannedJob]) -> Iterator[CheckFinding]:
    """Yield what is wrong with the plan: overlaps (2), and reservations without their place (11)."""
    places = [ReservedPlace(p.job_id, p.start, p.stop, tuple(p.resources), p.types) for p in plan]
    reserved = {p.job_id for p in plan if p.reserved}
    for resource, first, second, stop, start in promised_twice(places):
        text = f"resource {resource} is promised to job {first} until {stop} and to job {second} from {start}"
        yield (broken if {first, second} <= reserved else warning)(2, text, job=second)
    for place in plan:
        if place.reserved and not place.resources:
            yield broken(11, f"reservation {place.job_id} was accepted and has no resources", job=place.job_id)
        elif place.reserved and place.start < place.reserved_start:
            text = f"reservation {place.job_id} is for {place.reserved_start} and planned for {place.start}"
            yield broken(11, text, job=place.job_id)


def promised_twice(places: Iterable[ReservedPlace]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield resource, first job, second job, the end of the first and the start of the second of each overlap."""
    promised: dict[int, list[tuple[int, int, int]]] = {}
    for place in places:
        for resource in () if _SHARING & parse_types(place.types).words else place.resources:
            promised.setdefault(resource, []).append((place.start, place.stop, place.job_id))
    for resource, spans in promised.items():
        for (_, stop, first), (start, _, second) in pairwise(sorted(spans)):
            if start < stop:
                yield resource, first, second, stop, start
