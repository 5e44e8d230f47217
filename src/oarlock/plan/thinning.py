"""Find starts in a very long queue without a place for each job: of those that ask for the same, few are planned.

The first of them is planned as it is, and one stands for the others: it is as short as the shortest, waits where the
second does, and whatever it could use is kept free from its earliest start on (`WaitingJob.unread`, see `planner`).
So whoever starts delays no job before it, and would start in a full pass, too. Others may start there as well: when
nobody does here, a full pass has to look.
"""

from collections.abc import Hashable

from msgspec.structs import replace

from oarlock.model.job import Reservation
from oarlock.model.plan import Plan
from oarlock.model.snapshot import Choice, Snapshot, WaitingJob
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings

MANY = 2_000
"""Waiting jobs from which on it is worth the while."""

_LEAST_SHARE = 4  # so many jobs ask for the same on average, at least


def find_starts(snapshot: Snapshot, *, now: int, settings: PlanSettings) -> Plan | None:
    """Return a plan with jobs that start now, and nothing else to do; None where only a full pass finds some."""
    if len(snapshot.waiting) < MANY or not _can_be_thinned(snapshot, settings):
        return None
    thinned = thin(snapshot)
    if len(thinned.waiting) * _LEAST_SHARE > len(snapshot.waiting):
        return None
    plan = make_plan(thinned, now=now, settings=settings)
    starts = _without_stand_ins(plan, thinned)
    if not starts or plan.kill:
        return None  # what has to end for a job must not end for one that only stands for others
    return replace(plan, start=starts, wake=(), orphans=(), events=(), unplaced={})


def _can_be_thinned(snapshot: Snapshot, settings: PlanSettings) -> bool:
    """Return whether free resources alone decide, in a fixed order, and no reservation asks for a date."""
    limited = settings.depth is not None or snapshot.quotas or snapshot.quota_spans
    return (
        not limited
        and all(queue.in_order for queue in snapshot.queues)
        and not any(job.reservation == Reservation.TO_SCHEDULE for job in snapshot.waiting)
    )


def _without_stand_ins(plan: Plan, thinned: Snapshot) -> tuple[int, ...]:
    stand_ins = {job.job_id for job in thinned.waiting if job.unread}
    return tuple(number for number in plan.start if number not in stand_ins)


def thin(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the first of the jobs that ask for the same, and one that stands for the others."""
    groups: dict[Hashable, list[WaitingJob]] = {}
    for job in snapshot.waiting:
        groups.setdefault(_request(job), []).append(job)
    waiting = [kept for jobs in groups.values() for kept in _first_and_stand_in(jobs)]
    return replace(snapshot, waiting=tuple(sorted(waiting, key=lambda job: job.job_id)))


def _request(job: WaitingJob) -> Hashable:
    """Return what jobs have in common that could take each other's place, but for how long they last."""
    if job.reservation != Reservation.NONE:
        return job.job_id
    choices = job.choices
    shapes = choices[0].shape if len(choices) == 1 else tuple([choice.shape for choice in choices])
    name = job.name if job.types else None  # only types look at it
    return job.queue, job.user, shapes, job.types, name, job.after, job.not_before, job.deadline


def _first_and_stand_in(jobs: list[WaitingJob]) -> list[WaitingJob]:
    if len(jobs) == 1:
        return jobs
    first, second, *_ = jobs
    others = jobs[1:]
    shortest = tuple([_shortest(others, at, choice) for at, choice in enumerate(second.choices)])
    return [first, replace(second, choices=shortest, unread=len(others))]


def _shortest(jobs: list[WaitingJob], at: int, choice: Choice) -> Choice:
    return replace(choice, walltime=min([job.choices[at].walltime for job in jobs]))
