"""Waiting jobs that a quick pass did not read: resources that they could use are kept free for them.

A quick pass reads the first jobs of a queue and, of each array behind those, its first member; `WaitingJob.unread`
counts the other members. From the first such array on, two sets of occupancies are kept. Those of the pass occupy more
than a full pass would: everything that jobs which do not start now, read or not, could use, from their earliest start
on. A copy from before occupies less than a full pass would; there that earliest start is searched, since inside a pass
free sets only shrink. So a job that finds a place now delays no job before it, and would start in a full pass, too.
Dates found this way would be too late, so none is given.
"""

from oarlock.model.plan import Obstacle, Unplaced
from oarlock.model.snapshot import Choice, WaitingJob
from oarlock.plan.pass_state import PassState
from oarlock.plan.search import find_earliest
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind
from oarlock.plan.timeline.occupancy import FOREVER, Occupation

_KEYS = -(1 << 62)  # occupations that are kept free have keys that no job has
_NO_DATE = "jobs that this pass did not look at come first"


def keep_room(state: PassState, job: WaitingJob, *, dates: bool) -> None:
    """Keep free what a job that does not start now, and the unread ones behind it, could use.

    Not `dates`: it is certain that jobs of its queue start now or get no place.
    """
    before = state.before_unread
    if before is None:
        before = state.before_unread = state.occupancies.copy()
    elif not _starts_now(state, job):
        _take_date_away(state, job)
    if job.unread or not _starts_now(state, job):
        _keep_free(state, job, before, dates=dates)


def _starts_now(state: PassState, job: WaitingJob) -> bool:
    """Return whether a whole pass would start a job now, too.

    With more room, one that has alternatives might choose another, and one that takes all it can get might take more.
    """
    placement = state.placements.get(job.job_id)
    if placement is None or placement.start > state.now or len(job.choices) != 1:
        return False
    return all(level.count > 0 for group in state.shapes[job.choices[0].shape].groups for level in group.levels)


def _take_date_away(state: PassState, job: WaitingJob) -> None:
    state.placements.pop(job.job_id, None)
    state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, _NO_DATE)


def _keep_free(state: PassState, job: WaitingJob, before: Occupancies, *, dates: bool) -> None:
    kind = state.kind(job)
    start = min((_earliest(state, job, kind, choice, before) for choice in job.choices), default=FOREVER)
    if start >= FOREVER or (start > state.now and not dates):
        return
    resources = union(_usable(state, choice.shape) for choice in job.choices)
    state.occupancies.settle(
        _KEYS + job.job_id, kind, Occupation(start, FOREVER, without(resources, state.available.always))
    )


def _earliest(state: PassState, job: WaitingJob, kind: OccupancyKind, choice: Choice, before: Occupancies) -> int:
    """Return when a job of this kind could start at the earliest; FOREVER if it never could."""
    if job.after or not state.fit(choice.shape).monotone:
        return state.now  # others like it may be free to go sooner, or fit where less is free
    option = find_earliest(state, before.occupancy(kind), job, kind, choice, job.not_before)
    return FOREVER if option is None else option.window.start


def _usable(state: PassState, shape: int) -> int:
    """Return all resources that a shape could take."""
    request = state.shapes[shape]
    return union(state.fitter.allowed(request, group) for group in request.groups)
