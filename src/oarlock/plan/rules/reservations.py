"""Advance reservations: accepted at the requested date or refused; at the date, started with what is available."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from oarlock.lang.duration import show
from oarlock.model.event import Event, EventType
from oarlock.model.job import JobState, Reservation
from oarlock.model.plan import Obstacle, Placement, Unplaced
from oarlock.model.snapshot import PlacedJob, WaitingJob
from oarlock.plan.fit.fit import Fit
from oarlock.plan.fit.tree import Demand
from oarlock.plan.rules.limits import JobLimits
from oarlock.plan.timeline.occupancy import Occupancy
from oarlock.plan.timeline.timeline import FreeWindow

Later = Callable[[int, int], FreeWindow | None]
"""A hole's length, and from when on it is sought → the earliest place there."""


@dataclass(slots=True, eq=False)
class ReservationFit:
    """The fit of a reservation: on resources that are ready today if these are enough, else on all existing ones.

    Where groups compete for the same resources, the ready ones may fit where all do not. Whether a date is accepted and
    which date is proposed instead must follow the same rule, so both use this fit.
    """

    fit: Fit
    ready: int
    least: int
    of_nodes: bool
    monotone: bool
    demand: Demand | None = None

    def fits(self, free: int) -> bool:
        return self.fit.fits(free) or self.fit.fits(free & self.ready)

    def take(self, free: int) -> int:
        return self.fit.take(free & self.ready) or self.fit.take(free)

    def offers(self, free: int) -> int:
        return max(self.fit.offers(free), self.fit.offers(free & self.ready))


def ready_first(fit: Fit, ready: int) -> Fit:
    """Wrap a fit so that it prefers ready resources (given in its own units)."""
    return ReservationFit(fit, ready, fit.least, fit.of_nodes, fit.monotone, fit.demand)


class DueReservation(NamedTuple):
    """The decision about an accepted reservation whose date has come: it starts, or waits for a reason."""

    placement: Placement | None
    unplaced: Unplaced | None = None
    events: tuple[Event, ...] = ()


def is_accepted(job: PlacedJob) -> bool:
    """Return whether a job is an accepted reservation that has not started; a held one keeps its place."""
    return job.state in _NOT_BEGUN and job.reservation == Reservation.SCHEDULED


_NOT_BEGUN = (JobState.WAITING, JobState.HOLD)


def place_reservation(
    job: WaitingJob,
    fit: Fit,
    occupancy: Occupancy,
    held: JobLimits,
    later: Later,
    *,
    now: int,
    security_time: int,
    conflict: str = "the date is taken",
) -> Placement | Unplaced:
    """Place a new reservation at the requested date, or refuse it with the earliest possible date.

    Only the first alternative counts. A date in the past is moved to now, unless the reservation would be over. `held`
    chooses resources of a free set and checks quotas; `later` finds the next window. `conflict` is the text for a date
    without enough resources.
    """
    choice = job.choices[0]
    if job.start + choice.walltime <= now:
        return Unplaced(job.job_id, Obstacle.MISSED, "the reservation would already be over")
    start = max(job.start, now)
    duration = choice.walltime + security_time
    taken = held.choose(occupancy.free(fit, start, start + duration))
    broken = held.broken(start, taken) if taken else ""
    if taken and not broken:
        return Placement(job.job_id, choice.moldable_id, start, start + choice.walltime, taken)
    window = later(duration, start)
    if window is None and broken:
        return Unplaced(job.job_id, Obstacle.QUOTA, broken)
    if window is None:
        return _never(job, fit, occupancy, held, duration, start)
    obstacle, why = (Obstacle.QUOTA, broken) if broken else (Obstacle.CONFLICT, conflict)
    wait = f"it could start {show(window.start - start)} later"
    return Unplaced(job.job_id, obstacle, f"{why}; {wait}", earliest=window.start)


def _never(job: WaitingJob, fit: Fit, occupancy: Occupancy, held: JobLimits, duration: int, start: int) -> Unplaced:
    window = occupancy.find(fit, duration, start)
    if window is None:
        return Unplaced(job.job_id, Obstacle.TOO_BIG, "the cluster never has what it asks for")
    return Unplaced(job.job_id, Obstacle.QUOTA, held.broken(window.start, held.choose(window.free)))


def decide_due(job: PlacedJob, resources: int, ready: int, *, now: int, patience: int) -> DueReservation:
    """Decide on an accepted reservation whose start has come; `ready` are the resources a job can start on.

    As long as some are missing (those that no longer exist included) it waits, up to `patience` seconds; then it starts
    with those that are there. It ends when it was to end, however late it starts. While it is held it does not start.
    """
    held = job.state == JobState.HOLD
    if now >= job.stop:
        why = "it was held until its end had passed" if held else "its end has passed before it could start"
        return DueReservation(None, Unplaced(job.job_id, Obstacle.MISSED, why))
    if held:
        return DueReservation(None)
    here = resources & ready
    total = len(job.resources)
    missing = total - here.bit_count()
    if missing and (not here or now - job.start < patience):
        return DueReservation(
            None, Unplaced(job.job_id, Obstacle.UNAVAILABLE, f"{missing} of its {total} resources are missing")
        )
    placement = Placement(job.job_id, job.moldable_id, now, job.stop, here)
    return DueReservation(placement, events=tuple(_reductions(job, missing, now)))


def _reductions(job: PlacedJob, missing: int, now: int) -> list[Event]:
    events = []
    if missing:
        reduced = EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION
        events.append(Event(reduced, now, f"{missing} resources of job {job.job_id} are missing", job.job_id))
    if now > job.start:
        shortened = EventType.REDUCE_RESERVATION_WALLTIME
        late = show(now - job.start)
        events.append(
            Event(shortened, now, f"job {job.job_id} starts {late} late and is that much shorter", job.job_id)
        )
    return events
