"""Walltime prediction: users request more time than they need, so plans use the run time they will probably need.

A job is expected to run as long as its user's last two jobs on average, and never longer than its walltime. A job that
exceeds its prediction is expected to take its whole walltime. It is killed when its walltime is over, never before.

Promises do not depend on predictions: new reservations are answered as if every job took its whole walltime, and no job
starts that could then collide with an accepted reservation or with maintenance. Jobs with a deadline, containers and
inner jobs keep their walltime; where quotas limit time or change with it, all jobs do. Dates of waiting jobs are
forecasts in a queue that predicts; a queue that keeps dates cannot predict.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Placement, Plan
from oarlock.model.snapshot import Choice, PlacedJob, Snapshot, WaitingJob
from oarlock.plan.settings import PlanSettings

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
    snapshot: Snapshot, predicting: Collection[str], *, now: int, as_asked: Collection[int] = ()
) -> Snapshot:
    """Return the snapshot with predicted walltimes; the jobs `as_asked` keep theirs."""
    recent = snapshot.recent
    answering = any(job.reservation == Reservation.TO_SCHEDULE for job in snapshot.waiting)

    def waits(job: WaitingJob) -> WaitingJob:
        runs = recent.get(job.user, ())
        dated = job.reservation != Reservation.NONE or job.deadline is not None
        if job.queue not in predicting or job.job_id in as_asked or dated or _is_bound(job.types):
            return job
        return replace(job, choices=tuple([replace(c, walltime=predicted(c.walltime, runs)) for c in job.choices]))

    def runs_on(job: PlacedJob) -> PlacedJob:
        if answering or job.queue not in predicting or job.state not in HOLDS_RESOURCES or _is_bound(job.types):
            return job
        return replace(job, stop=expected_stop(job, recent.get(job.user, ()), now))

    return replace(snapshot, waiting=tuple(map(waits, snapshot.waiting)), placed=tuple(map(runs_on, snapshot.placed)))


def _is_bound(types: Sequence[str]) -> bool:
    """Return whether other jobs rely on a job's whole walltime: a container, an inner job, a placeholder."""
    return bool(types) and (parse_types(types).nested or parse_types(types).placeholder is not None)


def with_full_walltimes(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return a plan whose placements last as long as the requested walltimes, after which jobs are killed."""
    choices = {choice.moldable_id: choice for job in snapshot.waiting for choice in job.choices}
    placements = {number: _lasting(place, choices) for number, place in plan.placements.items()}
    return replace(plan, placements=placements)


def _lasting(place: Placement, choices: Mapping[int, Choice]) -> Placement:
    choice = choices.get(place.moldable_id)
    return place if choice is None else replace(place, stop=place.start + choice.walltime)


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
