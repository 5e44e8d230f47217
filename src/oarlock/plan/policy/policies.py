"""Scheduling policies of queues: the order of jobs, which jobs are promised a start date, which may backfill.

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
predicted run times of jobs (`predict`), for policies that do not keep dates.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from oarlock.model.snapshot import Usage, WaitingJob
from oarlock.plan.settings import Fairness, PlanSettings


def karma(job: WaitingJob, usage: Usage, fairness: Fairness) -> float:
    """Return the karma of a job; the lower, the sooner it is planned."""
    return karma_of(job.user, job.project, usage, fairness)


def karma_of(user: str, project: str, usage: Usage, fairness: Fairness) -> float:
    """Return how far a user and a project are above their share."""
    used, requested = usage.used or 1, usage.asked or 1
    user_target = fairness.user_targets.get(user, 0) / 100
    project_target = fairness.project_targets.get(project, 0) / 100
    return (
        fairness.project_weight * (usage.used_by_project.get(project, 0) / used - project_target)
        + fairness.user_weight * (usage.used_by_user.get(user, 0) / used - user_target)
        + fairness.asked_weight * (usage.asked_by_user.get(user, 0) / requested - user_target)
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
