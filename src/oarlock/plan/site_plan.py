"""Plans of the site's own schedulers: each place is checked as if nobody had thought about it before, then it counts.

A place has resources that exist and can be used, exactly those that the job asks for, free for its whole walltime, so
it moves no job that has a place; quotas, maintenance, dependencies and dates allow it.
"""

from collections.abc import Sequence

from oarlock.lang.duration import show
from oarlock.model.plan import Obstacle, Placement, Unplaced, without
from oarlock.model.snapshot import Choice, Promise, SitePlan, WaitingJob
from oarlock.model.submission import BESTHALF
from oarlock.plan.pass_state import PassState
from oarlock.plan.placing import keep_place, plan_safely, set_unplaced
from oarlock.plan.rules.prerequisites import Blocked
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupation

_SHOWN = 5  # numbers of resources in a sentence


def decided_by(site_plan: SitePlan) -> str:
    """Name the scheduler of a queue at the beginning of a sentence."""
    return f"`{site_plan.program}`, the scheduler of its queue,"


def place_site_plan(state: PassState, site_plan: SitePlan, jobs: Sequence[WaitingJob]) -> None:
    """Place the jobs of a queue as the site's scheduler decided; the others, and those it no longer can, wait."""
    left = {job.job_id: job for job in jobs}
    for job_id, promise in site_plan.places:
        job = left.pop(job_id, None)
        if job is not None:
            _place_safely(state, site_plan, job, promise)
    why = "gave it no place" if site_plan.answered else "has not answered yet"
    set_unplaced(state, left.values(), Obstacle.SITE_SCHEDULER, f"{decided_by(site_plan)} {why}")


def _place_safely(state: PassState, site_plan: SitePlan, job: WaitingJob, promise: Promise) -> None:
    def step(state: PassState, job: WaitingJob) -> None:
        if refusal := place_as_decided(state, job, promise):
            says = f"{decided_by(site_plan)} gave it a place that it cannot have any more: {refusal}"
            state.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.SITE_SCHEDULER, says)

    plan_safely(state, job, step)


def place_as_decided(state: PassState, job: WaitingJob, promise: Promise) -> str:
    """Place a job where it was decided; return why it cannot have that place, or an empty text."""
    choice = next((choice for choice in job.choices if choice.moldable_id == promise.moldable_id), None)
    if choice is None:
        return f"it has no alternative {promise.moldable_id}"
    kind = state.kind(job)
    resources = state.layout.bits_of(promise.resources)
    refusal = _wrong_resources(state, kind, choice, promise, resources)
    if refusal:
        return refusal
    earliest = state.earliest(job)
    if isinstance(earliest, Blocked):
        return earliest.detail
    start = max(promise.start, state.now)
    if start < earliest:
        return f"it must not start before the next {show(earliest - state.now)} are over"
    if job.deadline is not None and start + choice.walltime > job.deadline:
        return "it would not be over by its deadline"
    place = Placement(job.job_id, choice.moldable_id, start, start + choice.walltime, resources)
    return "" if keep_place(state, job, place, kind, earliest) else _why_taken(state, kind, place)


def _wrong_resources(state: PassState, kind: OccupancyKind, choice: Choice, promise: Promise, resources: int) -> str:
    """Describe what is wrong with the resources themselves, whoever has them."""
    if len(set(promise.resources)) < len(promise.resources):
        return "a resource is named twice"
    if missing := set(promise.resources) - set(state.layout.ids_of(resources)):
        return f"there is no resource {_numbers(missing)}"
    usable = state.available.existing if kind.permissive else state.available.plannable
    if away := without(resources, usable):
        return f"resource {_numbers(state.layout.ids_of(away))} is not Alive"
    fit, own = state.fit(choice.shape), without(resources, state.available.always)
    units = state.units(fit, own)
    if not own or not fit.fits(units):
        return "its resources do not match the request"
    half = any(level.count == BESTHALF for group in state.shapes[choice.shape].groups for level in group.levels)
    if not half and fit.take(units) != own:
        return "it has more resources than the request asks for"
    return ""


def _why_taken(state: PassState, kind: OccupancyKind, place: Placement) -> str:
    """Describe why a place that is right in itself cannot be had."""
    stop = place.start + state.duration(kind, place.stop - place.start)
    resources = without(place.resources, state.available.always)
    occupation = Occupation(place.start, stop, resources)
    occupancy = state.occupancies.occupancy(kind)
    if occupancy.has_free(occupation):
        return "a quota or a maintenance does not allow it"
    taken = without(resources, occupancy.free_resources(place.start, stop))
    return f"resource {_numbers(state.layout.ids_of(taken))} is not free for its whole walltime"


def _numbers(ids: Sequence[int] | set[int]) -> str:
    shown = sorted(ids)[:_SHOWN]
    return ", ".join(map(str, shown)) + (", …" if len(ids) > _SHOWN else "")
