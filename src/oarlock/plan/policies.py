"""Scheduling policies of queues: the order of jobs, who is promised a start date, who may pass; predicted run times.

A policy is named in the queue's settings.

    name            jobs with a promised date           jobs that may backfill
    fcfs            the first job that has to wait      none
    easy            the first job that has to wait      those that delay no job with a date, in order
    easy-sjbf       the same                            the same, the shortest first
    depth-N         the first N jobs that have to wait  those that delay no job with a date, in order
    depth-N-sjbf    the same                            the same, the shortest first
    conservative    all, and dates are kept             those that delay no job, in order
    multifactor     all                                 those that delay no job, by priority

In the manual's schedulers dates are predictions: every pass plans again, and a job may take resources that were
predicted for a job behind it. `conservative` keeps every date or improves it.
With `+multifactor` after another name, jobs are ordered by priority (`priority`); with `+predict`, plans use the
predicted run times of jobs (`with_predictions`), for policies that do not keep dates.

A job is expected to run as long as its user's last two jobs on average, and never longer than its walltime. A job that
exceeds its prediction is expected to take its whole walltime. It is killed when its walltime is over, never before.

Promises do not depend on predictions: new reservations are answered as if every job took its whole walltime, and no job
starts that could then collide with an accepted reservation or with maintenance. Jobs with a deadline, containers and
inner jobs keep their walltime; where quotas limit time or change with it, all jobs do. Dates of waiting jobs are
forecasts in a queue that predicts; a queue that keeps dates cannot predict.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from msgspec import structs

from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Placement, Plan
from oarlock.model.snapshot import Choice, PlacedJob, Snapshot, Usage, WaitingJob
from oarlock.plan.settings import Fairness, PlanSettings


def karma(job: WaitingJob, usage: Usage, fairness: Fairness) -> float:
    """Return the karma of a job; the lower, the sooner it is planned."""
    return karma_of(job.user, job.project, usage, fairness)


def karma_of(user: str, project: str, usage: Usage, fairness: Fairness) -> float:
    """Return how far a user and a project are above their share."""
    used, requested = usage.used or 1, usage.requested or 1
    user_target = fairness.user_targets.get(user, 0) / 100
    project_target = fairness.project_targets.get(project, 0) / 100
    return (
        fairness.project_weight * (usage.used_by_project.get(project, 0) / used - project_target)
        + fairness.user_weight * (usage.used_by_user.get(user, 0) / used - user_target)
        + fairness.requested_weight * (usage.requested_by_user.get(user, 0) / requested - user_target)
    )


def by_karma(jobs: list[WaitingJob], usage: Usage, fairness: Fairness) -> list[WaitingJob]:
    """Sort jobs by karma, ties by age; at most as many as one pass plans."""
    return sorted(jobs, key=lambda job: (karma(job, usage, fairness), job.job_id))[: fairness.max_jobs]


JobOrder = Callable[[list[WaitingJob], Usage, PlanSettings], list[WaitingJob]]
"""Jobs by increasing id → the jobs to plan, in order; those left out are not planned in this pass."""

_DEPTH = re.compile(r"depth-([1-9][0-9]{0,5})(-sjbf)?")


def fifo(jobs: list[WaitingJob], usage: Usage, settings: PlanSettings) -> list[WaitingJob]:  # noqa: ARG001
    """Keep the order of submission."""
    return jobs if settings.depth is None else jobs[: settings.depth]


def fair(jobs: list[WaitingJob], usage: Usage, settings: PlanSettings) -> list[WaitingJob]:
    """Sort jobs by karma: users and projects that used less come first."""
    return by_karma(jobs, usage, settings.fairness)[: settings.depth]


def by_priority(jobs: list[WaitingJob], usage: Usage, settings: PlanSettings) -> list[WaitingJob]:
    """Mark a policy ordered by priority; the planner replaces it, since priorities need the instant and sizes."""
    raise NotImplementedError(f"of {len(jobs)} jobs nothing but {usage} and {settings} is known here")


class Backfill(Enum):
    """Which jobs without a date may start now, as long as they delay no job that has one."""

    NOBODY = "nobody"
    IN_ORDER = "in order"
    SHORTEST_FIRST = "shortest first"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a queue is planned.

    `reservations`: how many of the jobs that have to wait get a date (None: all of them). `keeps_dates`: no date
    becomes later from one pass to the next.
    """

    order: JobOrder = fifo
    reservations: int | None = None
    backfill: Backfill = Backfill.IN_ORDER
    keeps_dates: bool = False


POLICIES: Mapping[str, Policy] = {
    "oar_sched_gantt_with_timesharing": Policy(),
    "oar_sched_gantt_with_timesharing_and_fairsharing": Policy(order=fair),
    "conservative": Policy(keeps_dates=True),
    "easy": Policy(reservations=1),
    "easy-sjbf": Policy(reservations=1, backfill=Backfill.SHORTEST_FIRST),
    "multifactor": Policy(order=by_priority),
    "fcfs": Policy(reservations=1, backfill=Backfill.NOBODY),
}
"""The manual's two schedulers, and what the literature calls the others; `named` knows `depth-N` besides."""


@lru_cache(maxsize=64)
def find_policy(name: str) -> Policy | None:
    """Return the policy of a name; None if there is none."""
    name, *options = name.split("+")
    policy = POLICIES.get(name)
    if policy is None and (depth := _DEPTH.fullmatch(name)):
        policy = Policy(reservations=int(depth[1]), backfill=Backfill.SHORTEST_FIRST if depth[2] else Backfill.IN_ORDER)
    for option in options if len(set(options)) == len(options) else ("twice",):
        policy = None if policy is None else _with(policy, option)
    return policy


def _with(policy: Policy, option: str) -> Policy | None:
    if option == "multifactor" and policy.order is fifo:
        return replace(policy, order=by_priority)
    return policy if option == "predict" and not policy.keeps_dates else None


_RUNS = 2


def predicted(walltime: int, runs: Sequence[int]) -> int:
    """Return the predicted run time: the mean of the user's last two runs; the walltime at most, or with fewer runs."""
    if len(runs) < _RUNS:
        return walltime
    return max(1, min(walltime, sum(runs[:_RUNS]) // _RUNS))


def expected_stop(job: PlacedJob, runs: Sequence[int], now: int) -> int:
    """Return the expected end of a running job; one that exceeded its prediction takes its whole walltime."""
    stop = job.start + predicted(job.stop - job.start, runs)
    return stop if stop > now else job.stop


def predicting_queues(snapshot: Snapshot) -> set[str]:
    """Return the queues whose policy predicts run times; none where quotas count time."""
    if snapshot.quota_spans or any(rule.resource_seconds >= 0 for rule in snapshot.quotas):
        return set()  # quotas count how long jobs take
    return {queue.name for queue in snapshot.queues if queue.predicts}


def with_predictions(
    snapshot: Snapshot, predicting: Collection[str], *, now: int, without_prediction: Collection[int] = ()
) -> Snapshot:
    """Return the snapshot with predicted walltimes; the jobs `without_prediction` keep theirs."""
    recent = snapshot.recent
    answering = any(job.reservation == Reservation.TO_SCHEDULE for job in snapshot.waiting)

    def waits(job: WaitingJob) -> WaitingJob:
        runs = recent.get(job.user, ())
        dated = job.reservation != Reservation.NONE or job.deadline is not None
        if job.queue not in predicting or job.job_id in without_prediction or dated or _is_bound(job.types):
            return job
        return structs.replace(
            job, choices=tuple([structs.replace(c, walltime=predicted(c.walltime, runs)) for c in job.choices])
        )

    def runs_on(job: PlacedJob) -> PlacedJob:
        if answering or job.queue not in predicting or job.state not in HOLDS_RESOURCES or _is_bound(job.types):
            return job
        return structs.replace(job, stop=expected_stop(job, recent.get(job.user, ()), now))

    return structs.replace(
        snapshot, waiting=tuple(map(waits, snapshot.waiting)), placed=tuple(map(runs_on, snapshot.placed))
    )


def _is_bound(types: Sequence[str]) -> bool:
    """Return whether other jobs rely on a job's whole walltime: a container, an inner job, a placeholder."""
    return bool(types) and (parse_types(types).nested or parse_types(types).placeholder is not None)


def with_full_walltimes(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return a plan whose placements last as long as the requested walltimes, after which jobs are killed."""
    choices = {choice.moldable_id: choice for job in snapshot.waiting for choice in job.choices}
    placements = {number: _lasting(place, choices) for number, place in plan.placements.items()}
    return structs.replace(plan, placements=placements)


def _lasting(place: Placement, choices: Mapping[int, Choice]) -> Placement:
    choice = choices.get(place.moldable_id)
    return place if choice is None else structs.replace(place, stop=place.start + choice.walltime)


def breaking(plan: Plan, snapshot: Snapshot, settings: PlanSettings) -> Iterator[int]:
    """Yield the jobs to start now that would collide with a reservation or window if they took their whole walltime."""
    bits = {number: 1 << at for at, number in enumerate(plan.ids) if number}
    undated = {job.job_id for job in snapshot.waiting if job.reservation == Reservation.NONE}
    promised = [
        (job.start, _set(job.resources, bits))
        for job in snapshot.placed
        if job.state == JobState.WAITING and job.reservation == Reservation.SCHEDULED and job.stop > plan.now
    ]
    promised += [(window.start, _set(window.resources, bits)) for window in snapshot.windows if window.stop > plan.now]
    promised += [(plan.placements[number].start, plan.placements[number].resources) for number in plan.accept]
    for number in plan.start:
        place = plan.placements[number]
        until = place.stop + settings.security_time
        if number in undated and any(start < until and place.resources & where for start, where in promised):
            yield number


def _set(resources: Sequence[int], bits: Mapping[int, int]) -> int:
    return sum(bits.get(number, 0) for number in set(resources))
