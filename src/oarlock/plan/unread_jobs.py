"""Waiting jobs that a quick pass did not read: resources that they could use are kept free for them.

A quick pass reads the first jobs of a queue and, of each array behind those, its first member; `WaitingJob.unread`
counts the other members. From the first such array on, two sets of occupancies are kept. Those of the pass occupy more
than a full pass would: everything that jobs which do not start now, read or not, could use, from their earliest start
on. A copy from before occupies less than a full pass would; there that earliest start is searched, since inside a pass
free sets only shrink. So a job that finds a place now delays no job before it, and would start in a full pass, too.
Dates found this way would be too late, so none is given.
"""

from typing import TYPE_CHECKING

from oarlock.model.plan import Obstacle, Unplaced
from oarlock.model.snapshot import Choice, WaitingJob
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind
from oarlock.plan.timeline.occupancy import FOREVER, Occupation

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner

_KEYS = -(1 << 62)  # occupations that are kept free have keys that no job has
_NO_DATE = "jobs that this pass did not look at come first"


def keep_room(planner: "Planner", job: WaitingJob, *, dates: bool) -> None:
    """Keep free what a job that does not start now, and the unread ones behind it, could use.

    Not `dates`: it is certain that jobs of its queue start now or get no place.
    """
    before = planner.before_unread
    if before is None:
        before = planner.before_unread = planner.occupancies.copy()
    elif not _starts_now(planner, job):
        _take_date_away(planner, job)
    if job.unread or not _starts_now(planner, job):
        _keep_free(planner, job, before, dates=dates)


def _starts_now(planner: "Planner", job: WaitingJob) -> bool:
    """Return whether a whole pass would start a job now, too.

    With more room, one that has alternatives might choose another, and one that takes all it can get might take more.
    """
    placement = planner.placements.get(job.job_id)
    if placement is None or placement.start > planner.now or len(job.choices) != 1:
        return False
    return all(level.count > 0 for group in planner.shapes[job.choices[0].shape].groups for level in group.levels)


def _take_date_away(planner: "Planner", job: WaitingJob) -> None:
    planner.placements.pop(job.job_id, None)
    planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, _NO_DATE)


def _keep_free(planner: "Planner", job: WaitingJob, before: Occupancies, *, dates: bool) -> None:
    kind = planner.kind(job)
    start = min((_earliest(planner, job, kind, choice, before) for choice in job.choices), default=FOREVER)
    if start >= FOREVER or (start > planner.now and not dates):
        return
    resources = union(_usable(planner, choice.shape) for choice in job.choices)
    planner.occupancies.settle(
        _KEYS + job.job_id, kind, Occupation(start, FOREVER, without(resources, planner.available.always))
    )


def _earliest(planner: "Planner", job: WaitingJob, kind: OccupancyKind, choice: Choice, before: Occupancies) -> int:
    """Return when a job of this kind could start at the earliest; FOREVER if it never could."""
    fit = planner.fit(choice.shape)
    if job.after or not fit.monotone:
        return planner.now  # others like it may be free to go sooner, or fit where less is free
    planner.occupancies, passing = before, planner.occupancies
    try:
        window = planner.limits.find_earliest(job, kind, choice, fit, job.not_before)
    finally:
        planner.occupancies = passing
    return FOREVER if window is None else window.start


def _usable(planner: "Planner", shape: int) -> int:
    """Return all resources that a shape could take."""
    request = planner.shapes[shape]
    return union(planner.fitter.allowed(request, group) for group in request.groups)
