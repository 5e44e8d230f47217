"""Explanations: why a job does not run yet, in a sentence with numbers; and when a request could start.

Jobs with the same request and walltime share most of the explanation, so it is computed once for them.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from oarlock.lang.duration import show as show_duration
from oarlock.lang.request import show_alternative
from oarlock.lang.where import show
from oarlock.model.condition import And, Column, Compare, Condition, Literal
from oarlock.model.errors import OarlockError
from oarlock.model.plan import Obstacle, Placement, Unplaced, WaitReason, union
from oarlock.model.snapshot import Choice, PlacedJob, Shape, WaitingJob
from oarlock.model.submission import ALL, BEST, BESTHALF, Alternative, Level, ResourceGroup
from oarlock.plan import obstacles
from oarlock.plan.fit.fit import Fit
from oarlock.plan.obstacles import HeldBack, ending_at, held_back
from oarlock.plan.pass_state import PassState
from oarlock.plan.policies import by_priority, find_policy
from oarlock.plan.priority import PriorityCalculator
from oarlock.plan.site_plan import decided_by
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupation
from oarlock.plan.timeline.timeline import FreeFromNow, FreeWindow

SHORTEST = 60
"""Seconds: nobody is told to ask for less."""

Instant = Callable[[int], str]
"""How an instant is written; the caller knows the reader's time zone."""

_NAMES = {"network_address": "node", "resource_id": "resource"}
_PLURALS = {"switch": "switches"}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ORDINARY = frozenset(
    Compare("=", Column(name), Literal(value))
    for name, value in (("type", "default"), ("desktop_computing", "NO"), ("drain", "NO"), ("besteffort", "YES"))
)
"""Tests that the shipped admission rules add to every request; users need not read them."""


class RequestSituation(NamedTuple):
    """What is free now for a request of a certain length; the same for all jobs with this request."""

    asks: str
    numbers: str
    last: str  # what it waits for: "the fourth", where units can be counted
    idle: int = 0  # the resources that are free now, but not for long enough


class Explainer:
    """Explains a finished plan; after any change a new explainer is needed."""

    def __init__(self, state: PassState, *, at: Instant | None = None) -> None:
        self._state = state
        self._at = at or self._from_now
        policies = ((queue.name, find_policy(queue.policy)) for queue in state.queues)
        self._ordered_queues = {name for name, policy in policies if policy and policy.order is by_priority}
        self._ready = {False: state.available.ready, True: state.fitter.whole_nodes(state.available.ready)}
        self._situations: dict[tuple[OccupancyKind, int, int], RequestSituation] = {}
        self._suggestions: dict[tuple[OccupancyKind, int, int], str | None] = {}
        self._free: dict[tuple[OccupancyKind, bool], FreeFromNow] = {}
        self._leaving: dict[int, list[tuple[int, Occupation]]] = {}
        for job_id, settled in state.occupancies.settled.items():
            self._leaving.setdefault(settled.occupation.stop, []).append((job_id, settled.occupation))
        occupations = ((settled.occupation, job_id) for job_id, settled in state.occupancies.settled.items())
        self._coming = sorted(
            (occupation.start, job_id, occupation) for occupation, job_id in occupations if occupation.start > state.now
        )

    def why(self, job_id: int) -> WaitReason:
        """Explain why a waiting job does not run now; with its priority where the queue is ordered by it."""
        reason = self._why(job_id)
        job = self._state.waiting[job_id]
        if job.queue not in self._ordered_queues:
            return reason
        return replace(reason, priority=PriorityCalculator(self._state, job.queue).of(job))

    def _why(self, job_id: int) -> WaitReason:
        job = self._state.waiting[job_id]
        placement = self._state.placements.get(job_id)
        if placement is None:
            return self._without_place(job, self._state.unplaced[job_id])
        choice = next(choice for choice in job.choices if choice.moldable_id == placement.moldable_id)
        kind = self._state.kind(job)
        held = self._held_back(job, kind, choice, placement)
        if held is not None:
            says = f"needs {self._asks(choice)}; {held.says}"
            return WaitReason(job_id, held.obstacle, says, placement.start)
        if placement.start <= self._state.now:
            return WaitReason(job_id, Obstacle.BUSY, self._about_to_start(placement), placement.start)
        if site_plan := self._state.site_plans.get(job.queue):
            planned = f"{decided_by(site_plan)} planned it to start {self._at(placement.start)}"
            says = f"needs {self._asks(choice)}; {planned}"
            return WaitReason(job_id, Obstacle.SITE_SCHEDULER, says, placement.start)
        situation = self._situation(kind, choice)
        cause = self._cause(job, placement, situation)
        kept = self._kept_for(job_id, situation.idle) if situation.idle else ""
        says = f"needs {situation.asks}; {situation.numbers}{kept}{cause}"
        # A job that waits for a dependency does not start sooner with a smaller request.
        smaller = None if self._required(job) else self._smaller(job_id, kind, choice)
        return WaitReason(job_id, Obstacle.BUSY, says, placement.start, smaller)

    def when(self, shape: Shape, walltime: int, *, kind: OccupancyKind | None = None) -> FreeWindow | None:
        """Return the earliest window of a request submitted now, after all other jobs; None if there is none."""
        kind = kind or OccupancyKind()
        fit = self._state.fitter.compile(shape)
        return self._state.occupancies.occupancy(kind).find(fit, self._state.hole_length(kind, walltime))

    def _held_back(self, job: WaitingJob, kind: OccupancyKind, choice: Choice, placement: Placement) -> HeldBack | None:
        starts = placement.start <= self._state.now
        if kind.container is None and (starts or not (job.not_before or self._state.limits)):
            return None
        fit, stop = (
            self._state.fit(choice.shape),
            self._state.now + self._state.hole_length(kind, choice.walltime),
        )
        free = self._from_now_on(kind, fit).until(stop) | self._own(job.job_id, kind, fit, stop)
        return held_back(self._state, job, kind, choice, placement, free, self._at)

    def _asks(self, choice: Choice) -> str:
        return f"{describe_shape(self._state.shapes[choice.shape])} for {show_duration(choice.walltime)}"

    def _from_now(self, instant: int) -> str:
        return f"in {show_duration(max(instant - self._state.now, 1))}"

    def _without_place(self, job: WaitingJob, unplaced: Unplaced) -> WaitReason:
        says = unplaced.detail
        if unplaced.obstacle == Obstacle.FAR_BACK:
            return self._without_date(job, unplaced)
        if unplaced.obstacle in {Obstacle.TOO_BIG, Obstacle.UNAVAILABLE}:
            return self._out_of_reach(job, unplaced)
        return WaitReason(job.job_id, unplaced.obstacle, says, unplaced.earliest)

    def _out_of_reach(self, job: WaitingJob, unplaced: Unplaced) -> WaitReason:
        """Explain how many such units exist, how many can be used, and why the others cannot."""
        shape = self._state.shapes[job.choices[0].shape]
        level, obstacle = _counting(shape), unplaced.obstacle
        if level is None:
            absent = obstacles.unavailable_nodes(self._state)
            counted = f"{unplaced.detail} ({absent})" if absent else unplaced.detail
        else:
            exist, usable = obstacles.count_units(self._state, shape)
            counted = f"there {_are(exist)} only {exist} such {unit(level, exist)} in all"
            if exist >= level.count:
                obstacle = Obstacle.UNAVAILABLE
                absent = obstacles.unusable_units(self._state, shape)
                why = f" ({absent})" if absent else ""
                counted = f"only {usable} of {exist} such {unit(level, exist)} can be used now{why}"
        return WaitReason(job.job_id, obstacle, f"needs {describe_shape(shape)}; {counted}", unplaced.earliest)

    def _without_date(self, job: WaitingJob, unplaced: Unplaced) -> WaitReason:
        """Explain why a job without a promised date waits, and suggest a request that would start at once."""
        try:
            kind, choice = self._state.kind(job), job.choices[0]
            situation = self._situation(kind, choice)
        except OarlockError:  # it was not planned, so its error did not appear before
            return WaitReason(job.job_id, unplaced.obstacle, unplaced.detail)
        may_backfill = self._state.may_backfill(job) and self._state.fit(choice.shape).monotone
        kept = self._kept_for(job.job_id, situation.idle) if situation.idle else ""
        says = f"needs {situation.asks}; {situation.numbers}{kept}; {unplaced.detail}"
        return WaitReason(
            job.job_id, unplaced.obstacle, says, None, self._suggested(kind, choice) if may_backfill else None
        )

    def _about_to_start(self, placement: Placement) -> str:
        asleep = placement.resources & union(bits for _, bits in self._state.available.asleep)
        if asleep:
            return f"starts as soon as {', '.join(self._state.layout.nodes_of(asleep))} is awake"
        return "is about to start"

    def _situation(self, kind: OccupancyKind, choice: Choice) -> RequestSituation:
        key = kind, choice.shape, choice.walltime
        cached = self._situations.get(key)
        if cached is None:
            cached = self._situations[key] = self._look(kind, choice)
        return cached

    def _look(self, kind: OccupancyKind, choice: Choice) -> RequestSituation:
        shape, fit = self._state.shapes[choice.shape], self._state.fit(choice.shape)
        now, stop = self._state.now, self._state.now + self._state.hole_length(kind, choice.walltime)
        free = self._from_now_on(kind, fit)
        asks = self._asks(choice)
        level = _counting(shape)
        if level is None:
            return RequestSituation(asks, "that much is not free now", "it is")
        idle, long = fit.offers(free.until(now + 1)), fit.offers(free.until(stop))
        if idle < level.count:
            absent = obstacles.unusable_units(self._state, shape)
            why = f" ({absent})" if absent else ""
            return RequestSituation(asks, f"{idle} {_are(idle)} free now{why}", f"the {ordinal(level.count)}")
        if long < level.count:
            numbers = f"{idle} {_are(idle)} free now, but {f'only {long}' if long else 'none'} for that long"
            idle_now = free.until(now + 1)
            resources = self._state.fitter.resources_of(idle_now) if fit.of_nodes else idle_now
            return RequestSituation(asks, numbers, "enough are", resources)
        return RequestSituation(asks, f"{long} {_are(long)} free now", "enough are")

    def _from_now_on(self, kind: OccupancyKind, fit: Fit) -> FreeFromNow:
        key = kind, fit.of_nodes
        cached = self._free.get(key)
        if cached is None:
            cached = self._free[key] = self._state.occupancies.occupancy(kind).from_now(of_nodes=fit.of_nodes)
        return cached

    def _kept_for(self, job_id: int, idle: int) -> str:
        """Name the first other job that will take some of what is idle."""
        for start, other, occupation in self._coming:
            if occupation.resources & idle and other != job_id:
                return f" (job {other} comes first, {self._at(start)})"
        return ""

    def _cause(self, job: WaitingJob, placement: Placement, situation: RequestSituation) -> str:
        """Describe what has to happen before the job starts: an occupation ends, or a dependency, or maintenance."""
        leaving = [
            job_id
            for job_id, occupation in self._leaving.get(placement.start, ())
            if job_id > 0 and occupation.resources & placement.resources
        ]
        if leaving:
            ends = self._at(self._state.ends.get(min(leaving), placement.start))
            return f", {situation.last} when job {min(leaving)} ends {ends}"
        if required := self._required(job):
            first = f"job {max(required)}, which it depends on, has to end first"
            return f", but {first}; it starts {self._at(placement.start)}"
        if windows := ending_at(self._state, placement):
            return f"; it starts when {windows} ends, {self._at(placement.start)}"
        return f"; it starts {self._at(placement.start)}"

    def overdue(self, job: PlacedJob) -> str:
        """Describe what an accepted reservation waits for after its date has come."""
        return obstacles.overdue_reservation(self._state, job, self._at)

    def _required(self, job: WaitingJob) -> list[int]:
        """Return the jobs that have to end first."""
        return [needed.job_id for needed in job.after if needed.job_id in self._state.ends]

    def _smaller(self, job_id: int, kind: OccupancyKind, choice: Choice) -> str | None:
        """Return a smaller request that would start at once instead of this one; cached for jobs with the same request.

        A job's own planned occupation does not block it: what is free until then counts as free now.
        """
        fit = self._state.fit(choice.shape)
        if not fit.monotone:
            return None
        stop = self._state.now + self._state.hole_length(kind, choice.walltime)
        own = self._own(job_id, kind, fit, stop)
        return self._fitting(kind, choice, fit, own) if own else self._suggested(kind, choice)

    def _suggested(self, kind: OccupancyKind, choice: Choice) -> str | None:
        key = kind, choice.shape, choice.walltime
        if key not in self._suggestions:
            self._suggestions[key] = self._fitting(kind, choice, self._state.fit(choice.shape), 0)
        return self._suggestions[key]

    def _own(self, job_id: int, kind: OccupancyKind, fit: Fit, stop: int) -> int:
        occupation = self._state.occupancies.settled[job_id].occupation
        if not occupation.start < stop <= occupation.stop:
            return 0
        units = self._state.fitter.touched_nodes(occupation.resources) if fit.of_nodes else occupation.resources
        return units & self._from_now_on(kind, fit).until(occupation.start)

    def _fitting(self, kind: OccupancyKind, choice: Choice, fit: Fit, own: int) -> str | None:
        """Try fewer units for as long, then as many for less time."""
        shape, free, ready = self._state.shapes[choice.shape], self._from_now_on(kind, fit), self._ready[fit.of_nodes]
        now, level = self._state.now, _counting(shape)
        stop = now + self._state.hole_length(kind, choice.walltime)
        fewer = fit.offers((free.until(stop) | own) & ready) if level is not None else 0
        if level is not None and 0 < fewer < level.count:
            return _request_text(shape, choice.walltime, fewer)
        if kind.besteffort or not fit.fits(free.until(now + 1) & ready):
            return None
        until = free.longest(fit)
        hole = self._state.hole_length(kind, choice.walltime) if until is None else until - now
        walltime = min(hole - self._state.settings.security_time, choice.walltime - 1)
        if walltime < SHORTEST or hole < self._state.settings.minimum_hole:
            return None
        return _request_text(shape, walltime, None)


def _counting(shape: Shape) -> Level | None:
    """Return the outermost level if the request has one group and a number at that level."""
    level = shape.groups[0].levels[0]
    return level if len(shape.groups) == 1 and level.count > 0 else None


def _request_text(shape: Shape, walltime: int, count: int | None) -> str:
    """Return a shape as the text of a request, with another number of outermost units if one is given."""
    groups = [ResourceGroup(group.levels, user_condition(group.where)) for group in shape.groups]
    if count is not None:
        outer, *inner = groups[0].levels
        groups = [ResourceGroup((Level(outer.name, count), *inner), groups[0].where)]
    return show_alternative(Alternative(tuple(groups), walltime))


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def describe_shape(shape: Shape) -> str:
    """Return a description of a shape: "4 nodes with 8 cores each of `cluster = 'a'`"."""
    groups = " and ".join(_group(group) for group in shape.groups)
    condition = user_condition(shape.where)
    return f"{groups} of `{show(condition)}`" if condition is not None else groups


def unit(level: Level, count: int) -> str:
    """Name a level's units in the right number."""
    name = _NAMES.get(level.name, level.name)
    return name if count == 1 else _PLURALS.get(name, f"{name}s")


def ordinal(number: int) -> str:
    """Write a small number as a word: the fourth; a large one in figures: the 14th."""
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in {11, 12, 13} else "th"
    return f"{number}{ending}"


def _group(group: ResourceGroup) -> str:
    text = _level(group.levels[0])
    for above, level in pairwise(group.levels):
        text += f" with {_level(level)}{'' if above.count == 1 else ' each'}"
    condition = user_condition(group.where)
    return f"{text} of `{show(condition)}`" if condition is not None else text


def _level(level: Level) -> str:
    if level.count == ALL:
        return f"all {unit(level, 2)}"
    if level.count == BEST:
        return f"any {unit(level, 2)}"
    if level.count == BESTHALF:
        return f"half of the free {unit(level, 2)}"
    return f"{level.count} {unit(level, level.count)}"


def user_condition(condition: Condition | None) -> Condition | None:
    """Return the user's part of a condition, without the tests that admission rules add to every request."""
    if condition in _ORDINARY:
        return None
    if isinstance(condition, And):
        parts = tuple(kept for part in condition.parts if (kept := user_condition(part)) is not None)
        return parts[0] if len(parts) == 1 else And(parts) if parts else None
    return condition
