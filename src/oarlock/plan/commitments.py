"""Promised starts that are kept (policy `conservative`): promised jobs are placed before all others.

On a real cluster seconds pass between a decision and a start: a job that started two seconds late ends two seconds
late, and so the next job on its resources starts late. Promises are placed in the order of their dates, each on its own
resources; where these are not free at the date, at the first instant at which they are, so later promises shift by as
much. After that each job looks for an earlier place (`Planner.improve_place`).
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oarlock.model.errors import OarlockError
from oarlock.model.plan import Placement
from oarlock.model.snapshot import Promise, Snapshot, WaitingJob
from oarlock.plan.rules.dependencies import Blocked
from oarlock.plan.sets.bitset import without

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


def promised_placements(planner: "Planner", snapshot: Snapshot) -> dict[int, Placement]:
    """Return the promised placements of waiting jobs, as far as they still match the requests."""
    if not snapshot.promised:
        return {}
    return {
        job.job_id: place
        for job in snapshot.waiting
        if (promise := snapshot.promised.get(job.job_id)) is not None
        and (place := _place(planner, job, promise)) is not None
    }


def _place(planner: "Planner", job: WaitingJob, promise: Promise) -> Placement | None:
    """Return a promised placement; None if resources are gone or their properties have changed."""
    choice = next((choice for choice in job.choices if choice.moldable_id == promise.moldable_id), None)
    resources = planner.layout.bits_of(promise.resources)
    if choice is None or resources.bit_count() < len(promise.resources):
        return None
    try:
        fit = planner.fit(choice.shape)
    except (OarlockError, ValueError):
        return None  # it is set aside when it is planned
    if not fit.fits(planner.units(fit, resources)):
        return None
    return Placement(job.job_id, choice.moldable_id, promise.start, promise.start + choice.walltime, resources)


def place_promised(planner: "Planner", jobs: Iterable[WaitingJob]) -> None:
    """Place jobs where they were promised, the earliest promised start first."""
    promised = planner.promised
    for job in sorted([job for job in jobs if job.job_id in promised], key=lambda job: promised[job.job_id].start):
        planner.plan_safely(job, partial(_hold, planner))


def _hold(planner: "Planner", job: WaitingJob) -> None:
    """Place a job as promised, or on the same resources as soon afterwards as they are free."""
    earliest, old, kind = planner.earliest(job), planner.promised[job.job_id], planner.kind(job)
    if isinstance(earliest, Blocked) or planner.keep_place(job, old, kind, earliest):
        return
    length = planner.duration(kind, old.stop - old.start)
    resources = without(old.resources, planner.available.always)
    window = planner.occupancies.occupancy(kind).find_same(resources, length, max(planner.now, earliest, old.start))
    if window is not None:
        later = replace(old, start=window.start, stop=window.start + old.stop - old.start)
        planner.keep_place(job, later, kind, earliest)
