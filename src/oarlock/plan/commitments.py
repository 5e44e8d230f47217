"""Promised starts that are kept (policy `conservative`): promised jobs are placed before all others.

On a real cluster seconds pass between a decision and a start: a job that started two seconds late ends two seconds
late, and so the next job on its resources starts late. Promises are placed in the order of their dates, each on its own
resources; where these are not free at the date, at the first instant at which they are, so later promises shift by as
much. After that each job looks for an earlier place (`placing.improve_place`).
"""

from collections.abc import Iterable

from msgspec.structs import replace

from oarlock.model.errors import OarlockError
from oarlock.model.plan import Placement
from oarlock.model.snapshot import Promise, Snapshot, WaitingJob
from oarlock.plan.pass_state import PassState
from oarlock.plan.placing import keep_place, plan_safely
from oarlock.plan.rules.dependencies import Blocked
from oarlock.plan.sets.bitset import without


def promised_placements(state: PassState, snapshot: Snapshot) -> dict[int, Placement]:
    """Return the promised placements of waiting jobs, as far as they still match the requests."""
    if not snapshot.promised:
        return {}
    return {
        job.job_id: place
        for job in snapshot.waiting
        if (promise := snapshot.promised.get(job.job_id)) is not None
        and (place := _place(state, job, promise)) is not None
    }


def _place(state: PassState, job: WaitingJob, promise: Promise) -> Placement | None:
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
