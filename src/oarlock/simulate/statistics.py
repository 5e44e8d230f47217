"""Statistics of a replay. Times are seconds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import ceil
from typing import Any

from oarlock.simulate.energy import Energy
from oarlock.simulate.replay import ReplayedJob

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
