"""Placing a job: at the earliest place that delays no job before it, at its old place, or with a reason why not.

Where promised starts are kept (policy `conservative`), promised jobs are placed before all others. On a real cluster
seconds pass between a decision and a start: a job that started two seconds late ends two seconds late, and so the next
job on its resources starts late. Promises are placed in the order of their dates, each on its own resources; where
these are not free at the date, at the first instant at which they are, so later promises shift by as much. After that
each job looks for an earlier place (`improve_place`).
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from oarlock.model.errors import OarlockError
from oarlock.model.event import Event, EventType
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Unplaced, without
from oarlock.model.snapshot import Promise, Snapshot, WaitingJob
from oarlock.plan import search
from oarlock.plan.pass_state import PassState
from oarlock.plan.rules.limits import PlacementOption
from oarlock.plan.rules.prerequisites import Blocked
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupancy, Occupation

_LATE = "it could not be over by its deadline"
_EXPIRED = "it could not start by its expiry date"

PlanningStep = Callable[[PassState, WaitingJob], None]
"""One step of planning a job; what it decides is written into the state."""


def plan_safely(state: PassState, job: WaitingJob, step: PlanningStep) -> None:
    """Run one planning step of a job; an exception sets this job aside and leaves the others alone."""
    try:
        step(state, job)
    except Exception as error:  # noqa: BLE001
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.SET_ASIDE, f"planning it failed: {error}")
        message = f"planning job {job.job_id} failed: {error}"
        state.events.append(Event(EventType.SCHEDULER_JOB_SET_ASIDE, state.now, message, job.job_id))


def set_unplaced(state: PassState, jobs: Iterable[WaitingJob], obstacle: Obstacle, detail: str) -> None:
    """Record why jobs have no place."""
    for job in jobs:
        state.unplaced[job.job_id] = Unplaced(job.job_id, obstacle, detail)


def place(state: PassState, job: WaitingJob, held: Placement | None = None) -> None:
    """Place a job at the earliest start that delays no job before it, or record why there is none.

    The place that it `held` is given up only for one that is at least as good.
    """
    kind = state.kind(job)
    occupancy = state.occupancies.occupancy(kind)
    earliest = state.earliest(job) if job.after or job.types else job.not_before
    if isinstance(earliest, Blocked):
        state.unplaced[job.job_id] = Unplaced(job.job_id, earliest.obstacle, earliest.detail)
        return
    if job.job_id in state.carried and keep_place(state, job, state.carried[job.job_id], kind, earliest):
        return
    best: PlacementOption | None = None
    for choice in job.choices:
        option = search.find_earliest(state, occupancy, job, kind, choice, earliest)
        if option is not None and (best is None or option.end < best.end):
            best = option
    if held is not None and (best is None or best.end > held.stop) and keep_place(state, job, held, kind, earliest):
        return
    if best is not None:
        place_before_deadline(state, job, kind, occupancy, best)
    else:
        state.unplaced[job.job_id] = search.why_never(state, job, kind)


def place_before_deadline(
    state: PassState, job: WaitingJob, kind: OccupancyKind, occupancy: Occupancy, option: PlacementOption
) -> None:
    """Place a job in a window that was found, unless it would end after its deadline."""
    if job.deadline is not None and option.end > job.deadline:
        late = _LATE if parse_types(job.types).expire is None else _EXPIRED
        state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.DEADLINE, late, option.window.start)
        return
    start, walltime = option.window.start, option.choice.walltime
    taken = state.choose_resources(kind, option.fit, option.window.free)
    placement = Placement(job.job_id, option.choice.moldable_id, start, start + walltime, taken)
    _assign(state, job, placement, kind, occupancy)


def keep_place(state: PassState, job: WaitingJob, old: Placement, kind: OccupancyKind, earliest: int) -> bool:
    """Keep the place of an earlier pass if it is still free; return whether it is."""
    occupancy = state.occupancies.occupancy(kind)
    resources = without(old.resources, state.available.always)
    length = state.duration(kind, old.stop - old.start)
    stop = old.start + length
    if old.start < max(state.now, earliest) or not occupancy.has_free(Occupation(old.start, stop, resources)):
        return False
    if not state.limits.allow(job, kind, old, resources, length=length):
        return False
    _assign(state, job, Placement(job.job_id, old.moldable_id, old.start, old.stop, resources), kind, occupancy)
    return True


def improve_place(state: PassState, job: WaitingJob) -> None:
    """Move a job to the earliest place while all others keep theirs; its own resources count as free.

    Its present place may be shorter than `minimum_hole`, so a search alone would not find it again.
    """
    held = state.placements.pop(job.job_id, None)
    if held is not None:
        state.occupancies.remove(job.job_id)
        state.limits.forget(job.job_id)
        _refresh_container(state, state.containers.withdraw(job) if job.types else None)
        del state.ends[job.job_id]
        if job.deadline is not None and held.stop > job.deadline:
            held = None
    place(state, job, held)


def answer_reservation(state: PassState, job: WaitingJob) -> None:
    """Accept a new reservation at its date, or refuse it."""
    kind = state.kind(job)
    answer = search.place_reservation(state, job, kind)
    state.answered.append(job.job_id)
    if isinstance(answer, Placement):
        _assign(state, job, answer, kind._replace(reservation=False), None)
    else:
        state.unplaced[job.job_id] = answer


def _assign(
    state: PassState, job: WaitingJob, placement: Placement, kind: OccupancyKind, occupancy: Occupancy | None
) -> None:
    """Write a placement into the state; in the `occupancy` where it was found its resources are surely free."""
    length = state.duration(kind, placement.stop - placement.start)
    occupation = Occupation(placement.start, placement.start + length, placement.resources)
    if always := state.available.always:  # every job gets these, so they are not occupied
        occupation = replace(occupation, resources=without(placement.resources, always))
        placement = replace(placement, resources=placement.resources | always)
    state.occupancies.settle(job.job_id, kind, occupation, found_in=occupancy)
    state.limits.count(job, kind, occupation, placement.stop - placement.start)
    if job.types:
        _refresh_container(state, state.containers.open(job, replace(occupation, stop=placement.stop)))
    state.ends[job.job_id] = placement.stop
    state.placements[job.job_id] = placement


def _refresh_container(state: PassState, container: str | None) -> None:
    """Rebuild on demand what inner jobs of a container see, after the container grew or shrank."""
    if container is not None:
        state.occupancies.forget_container(container)


def promised_placements(state: PassState, snapshot: Snapshot) -> dict[int, Placement]:
    """Return the promised placements of waiting jobs, as far as they still match the requests."""
    if not snapshot.promised:
        return {}
    return {
        job.job_id: placement
        for job in snapshot.waiting
        if (promise := snapshot.promised.get(job.job_id)) is not None
        and (placement := _promised(state, job, promise)) is not None
    }


def _promised(state: PassState, job: WaitingJob, promise: Promise) -> Placement | None:
    """Return a promised placement; None if resources are gone or their properties have changed."""
    choice = next((choice for choice in job.choices if choice.moldable_id == promise.moldable_id), None)
    resources = state.layout.bits_of(promise.resources)
    if choice is None or resources.bit_count() < len(promise.resources):
        return None
    try:
        fit = state.fit(choice.shape)
    except (OarlockError, ValueError):
        return None  # it is set aside when it is planned
    if not fit.fits(state.units(fit, resources)):
        return None
    return Placement(job.job_id, choice.moldable_id, promise.start, promise.start + choice.walltime, resources)


def place_promised(state: PassState, jobs: Iterable[WaitingJob]) -> None:
    """Place jobs where they were promised, the earliest promised start first."""
    promised = state.promised
    for job in sorted([job for job in jobs if job.job_id in promised], key=lambda job: promised[job.job_id].start):
        plan_safely(state, job, _hold)


def _hold(state: PassState, job: WaitingJob) -> None:
    """Place a job as promised, or on the same resources as soon afterwards as they are free."""
    earliest, old, kind = state.earliest(job), state.promised[job.job_id], state.kind(job)
    if isinstance(earliest, Blocked) or keep_place(state, job, old, kind, earliest):
        return
    length = state.duration(kind, old.stop - old.start)
    resources = without(old.resources, state.available.always)
    window = state.occupancies.occupancy(kind).find_same(resources, length, max(state.now, earliest, old.start))
    if window is not None:
        later = replace(old, start=window.start, stop=window.start + old.stop - old.start)
        keep_place(state, job, later, kind, earliest)
