"""Statistics of a replay, and the energy that it would have used. Times are seconds.

A simple model: a node with any job on it takes `busy` watts; without, `idle`; and `off` once it was idle for `timeout`
seconds, until its next job. Booting takes no time here. Where processors are identical, each is a node, and jobs are
packed: as few as possible are busy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import ceil
from typing import Any

from oarlock.simulate.replay import ReplayedJob

JOULES = 3_600_000  # in a kilowatt-hour

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts of a node, and after how many idle seconds it would be switched off."""

    busy: float = 200
    idle: float = 100
    off: float = 10
    timeout: int = 600


@dataclass(frozen=True, slots=True)
class Energy:
    """Kilowatt-hours from the first submission to the last end."""

    always_on_kwh: float
    with_shutdown_kwh: float


@dataclass(slots=True)
class _Seconds:
    """Seconds of nodes: busy, idle for less than the timeout, idle beyond it."""

    busy: int = 0
    idle: int = 0
    off: int = 0

    def rest(self, seconds: int, timeout: int, nodes: int = 1) -> None:
        """Count idle time of nodes."""
        short = min(seconds, timeout)
        self.idle += short * nodes
        self.off += (seconds - short) * nodes


def of_nodes(ran: Sequence[ReplayedJob], nodes: Sequence[int], power: PowerModel) -> Energy:
    """Count the energy of nodes, each given as the set of its resources."""
    begin, end = _span(ran)
    seconds = _Seconds()
    for node in nodes:
        free_since = begin
        for start, stop in _joined((job.start, job.end) for job in ran if job.resources & node):
            seconds.rest(start - free_since, power.timeout)
            seconds.busy += stop - start
            free_since = stop
        seconds.rest(end - free_since, power.timeout)
    return _energy(seconds, power)


def of_pool(ran: Sequence[ReplayedJob], size: int, power: PowerModel) -> Energy:
    """Count the energy of processors that are all alike; the one that rested last works first."""
    begin, end = _span(ran)
    seconds = _Seconds()
    resting: list[tuple[int, int]] = [(begin, size)]  # since when, how many; those at the end began last
    for instant, change in _changes(ran):
        if change < 0:
            resting.append((instant, -change))
        left = max(change, 0)
        while left:
            since, count = resting.pop()
            woken = min(count, left)
            seconds.rest(instant - since, power.timeout, woken)
            left -= woken
            if count > woken:
                resting.append((since, count - woken))
    for since, count in resting:
        seconds.rest(end - since, power.timeout, count)
    seconds.busy = sum(job.job.run * job.job.processors for job in ran)
    return _energy(seconds, power)


def _span(ran: Sequence[ReplayedJob]) -> Interval:
    return min((job.job.submitted for job in ran), default=0), max((job.end for job in ran), default=0)


def _changes(ran: Sequence[ReplayedJob]) -> list[tuple[int, int]]:
    """Return how many more or fewer processors are busy from when on; at one instant ends come first."""
    ends = [(job.end, -job.job.processors) for job in ran if job.job.run]
    return sorted([*ends, *((job.start, job.job.processors) for job in ran if job.job.run)])


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for start, stop in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


def _energy(seconds: _Seconds, power: PowerModel) -> Energy:
    working = seconds.busy * power.busy
    resting = seconds.idle * power.idle
    return Energy(
        always_on_kwh=(working + resting + seconds.off * power.idle) / JOULES,
        with_shutdown_kwh=(working + resting + seconds.off * power.off) / JOULES,
    )


TAU = 10
"""Shorter jobs count as if they ran so long: a slowdown of a second's job says nothing."""


@dataclass(frozen=True, slots=True)
class UserStatistics:
    """How one user fared."""

    user: str
    jobs: int
    mean_wait: float
    bounded_slowdown: float
    processor_seconds: int


@dataclass(frozen=True, slots=True)
class StartPredictions:
    """How good the first date was that jobs were told; only those that did not start at once are told one.

    `mean_error` is start minus date: above 0 they began later than told.
    """

    dated: int
    mean_error: float
    mean_absolute_error: float
    late: int


@dataclass(frozen=True, slots=True)
class ReplayStatistics:
    """One policy on one trace. `fairness` is Jain's index of the users' mean slowdowns: 1 is even, 1/users is worst."""

    jobs: int
    never_fitted: int
    mean_wait: float
    median_wait: int
    p90_wait: int
    p95_wait: int
    p99_wait: int
    max_wait: int
    bounded_slowdown: float
    utilisation: float
    makespan: int
    fairness: float
    prediction: StartPredictions
    energy: Energy
    users: list[UserStatistics] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON; users by what they waited in all, at most twenty."""
        return asdict(self)


def slowdown(ran: ReplayedJob) -> float:
    """Return a job's bounded slowdown."""
    return max(1.0, (ran.wait + ran.job.run) / max(ran.job.run, TAU))


def compute(ran: Sequence[ReplayedJob], *, size: int, submitted: int, energy: Energy) -> ReplayStatistics:
    """Measure what became of jobs on a site of this size; `submitted` is how many there were."""
    waits = sorted(job.wait for job in ran)
    count = len(ran) or 1
    users = by_user(ran)
    makespan = max((job.end for job in ran), default=0) - min((job.job.submitted for job in ran), default=0)
    work = sum(job.job.run * job.job.processors for job in ran)
    return ReplayStatistics(
        jobs=len(ran),
        never_fitted=submitted - len(ran),
        mean_wait=sum(waits) / count,
        median_wait=percentile(waits, 50),
        p90_wait=percentile(waits, 90),
        p95_wait=percentile(waits, 95),
        p99_wait=percentile(waits, 99),
        max_wait=waits[-1] if waits else 0,
        bounded_slowdown=sum(map(slowdown, ran)) / count,
        utilisation=work / (size * makespan) if makespan else 0.0,
        makespan=makespan,
        fairness=jain([user.bounded_slowdown for user in users]),
        prediction=_predictions(ran),
        energy=energy,
        users=sorted(users, key=lambda user: -user.mean_wait * user.jobs)[:20],
    )


def percentile(ordered: Sequence[int], share: int) -> int:
    """Return the smallest value that so many per cent of all do not exceed."""
    return ordered[max(ceil(len(ordered) * share / 100) - 1, 0)] if ordered else 0


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def by_user(ran: Sequence[ReplayedJob]) -> list[UserStatistics]:
    """Measure each user apart."""
    made = []
    for user, group in groupby(sorted(ran, key=lambda job: job.job.user), key=lambda job: job.job.user):
        mine = list(group)
        made.append(
            UserStatistics(
                user,
                len(mine),
                sum(job.wait for job in mine) / len(mine),
                sum(map(slowdown, mine)) / len(mine),
                sum(job.job.run * job.job.processors for job in mine),
            )
        )
    return made


def _predictions(ran: Sequence[ReplayedJob]) -> StartPredictions:
    errors = [job.start - job.foreseen for job in ran if job.foreseen is not None]
    count = len(errors) or 1
    return StartPredictions(
        dated=len(errors),
        mean_error=sum(errors) / count,
        mean_absolute_error=sum(map(abs, errors)) / count,
        late=sum(error > 0 for error in errors),
    )
