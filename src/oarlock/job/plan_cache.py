"""Plan pass after pass from the database, and cache in memory what did not change between two passes.

Where anything is in doubt nothing is cached and the pass starts from scratch: the first one, other resources or queues,
a failure. Now and then both plans are made and compared; a difference is logged, and the cached plan is dropped.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import structs

from oarlock.job.run.starting import schedule
from oarlock.job.run.starting.schedule import Decision
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.job_type import JobType, JobTypes, parse_types
from oarlock.model.plan import Plan
from oarlock.model.resource import Value
from oarlock.model.snapshot import ResourceTable, SitePlan, Snapshot
from oarlock.plan.incremental.plan_cache import PlanCache, find_starts, is_cacheable
from oarlock.plan.planner import OutOfTime, make_plan, never
from oarlock.plan.settings import PlanSettings
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.planning import snapshot

log = logging.getLogger(__name__)

_SHARING = frozenset({JobType.BESTEFFORT.value, JobType.TIMESHARING.value})
_TRUSTED_SECONDS = 600  # how long a cached plan is used without a comparison


SharingJob = tuple[JobTypes, tuple[int, ...]]
"""The types of a best-effort or timesharing job, and its resources."""


class CachedPlanner:
    """Plans one database from pass to pass, with a cache of what did not change."""

    def __init__(self, settings: PlanSettings, *, karma_window: int) -> None:
        self._settings, self._karma_window = settings, karma_window
        self._since = 0
        self._counted: tuple[ResourceTable | None, dict[int, SharingJob], dict[int, int]] = None, {}, {}
        self._clear()

    def _clear(self) -> None:
        self._snapshots, self._cache = snapshot.SnapshotCache(), PlanCache(self._settings)

    def read(self, tx: Tx, *, now: int, site_plans: Mapping[str, SitePlan] | None = None) -> snapshot.SnapshotRead:
        """Read a snapshot of everything."""
        return schedule.read(
            tx,
            self._settings,
            karma_window=self._karma_window,
            now=now,
            memory=self._snapshots,
            site_plans=site_plans,
        )

    def starts(self, seen: snapshot.SnapshotRead, *, now: int, out_of_time: OutOfTime = never) -> Decision:
        """Return which jobs start now, as a full pass would, or some of them where the queue is very long.

        Where nothing is cached it is a full pass.
        """
        plan = find_starts(seen.snapshot, now=now, settings=self._settings)
        if plan is None:
            plan = self._from_cache(lambda: self._cache.starts(seen.snapshot, now=now), seen, now)
        if plan is None:
            return self._with_priorities(
                schedule.decide(seen, self._settings, now=now, out_of_time=out_of_time), seen.snapshot
            )
        return self._with_priorities(schedule.decision(plan, seen, self._settings, whole=False), seen.snapshot)

    def whole(self, seen: snapshot.SnapshotRead, *, now: int, out_of_time: OutOfTime = never) -> Decision:
        """Plan all jobs, so that every date is current."""
        plan = self._from_cache(lambda: self._cache.whole(seen.snapshot, now=now, out_of_time=out_of_time), seen, now)
        if plan is None:
            return self._with_priorities(
                schedule.decide(seen, self._settings, now=now, out_of_time=out_of_time), seen.snapshot
            )
        if not self._since <= now < self._since + _TRUSTED_SECONDS and not plan.unfinished:
            plan = self._compare(plan, seen, now)
        return self._with_priorities(schedule.decision(plan, seen, self._settings), seen.snapshot)

    def _with_priorities(self, decision: Decision, shot: Snapshot) -> Decision:
        """Add the `scheduler_priority` of all resources to a decision, if it is not what the database has."""
        if not self._settings.hierarchy:
            return decision
        sharing = _sharing_jobs(shot, {start.job_id: start.resources for start in decision.starts})
        if self._counted[0] is not shot.resources or self._counted[1] != sharing:
            counted = resource_priorities(shot.resources, self._settings.hierarchy, sharing.values())
            self._counted = shot.resources, sharing, counted
        if self._counted[2] == self._snapshots.table.priorities:
            return decision
        return structs.replace(decision, priorities=tuple(sorted(self._counted[2].items())))

    def _from_cache(self, make: Callable[[], Plan], seen: snapshot.SnapshotRead, now: int) -> Plan | None:
        """Make a plan from the cache; None, and an empty cache, where that is not possible or failed."""
        if not is_cacheable(seen.snapshot, self._settings):
            self._cache.forget()
            return None
        if self._cache.empty:
            self._since = now
        try:
            return make()
        except Exception:
            log.exception("a cached plan failed, the pass starts from scratch")
            self._clear()
            return None

    def _compare(self, plan: Plan, seen: snapshot.SnapshotRead, now: int) -> Plan:
        """Return a plan from scratch, log where the cached one differs, and start a new cache."""
        fresh = make_plan(seen.snapshot, now=now, settings=self._settings)
        other = [number for number, place in fresh.placements.items() if plan.placements.get(number) != place]
        if other or plan.placements.keys() != fresh.placements.keys() or set(plan.start) != set(fresh.start):
            log.error(
                "a cached plan differs from one made from scratch", extra={"jobs": other[:10], "count": len(other)}
            )
        self._clear()
        return fresh


_POINTS = 2
_SHARED_ONLY = 10  # times as much for a job that shares its resources and is not killed for others


def _sharing_jobs(shot: Snapshot, starts: Mapping[int, tuple[int, ...]]) -> dict[int, SharingJob]:
    """Return the best-effort and timesharing jobs that hold resources, or start now."""
    held = [(job.job_id, job.types, job.resources) for job in shot.placed if job.state in HOLDS_RESOURCES]
    if starts:
        held += [(job.job_id, job.types, starts[job.job_id]) for job in shot.waiting if job.job_id in starts]
        held += [(job.job_id, job.types, job.resources) for job in shot.placed if job.job_id in starts]
    return {number: (types, ids) for number, texts, ids in held if (types := parse_types(texts)).words & _SHARING}


def resource_priorities(
    table: ResourceTable, hierarchy: Sequence[str], sharing: Collection[SharingJob]
) -> dict[int, int]:
    """Count `scheduler_priority` as OAR 2.5 does: resources with best-effort or timesharing jobs come last.

    Each such job adds points to all resources that have, for a level of the hierarchy, a value in common with one of
    its own; the second level counts twice, and so on. A level that is not a property counts nothing.
    """
    counted = Counter[int]()
    row_of = {number: row for row, number in enumerate(table.ids)} if sharing else {}
    for level, name in enumerate(hierarchy if sharing else (), 1):
        column = table.ids if name == "resource_id" else table.columns.get(name)
        if column is not None:
            points = _points(sharing, column, row_of)
            for number, value in zip(table.ids, column, strict=True):
                counted[number] += level * points.get(value, 0)
    return {number: value for number, value in counted.items() if value}


def _points(sharing: Iterable[SharingJob], column: Sequence[Value], row_of: Mapping[int, int]) -> Counter[Value]:
    """Return the points of each value of a column: every job counts once for each value that it has."""
    points: Counter[Value] = Counter()
    for types, ids in sharing:
        for value in {column[row_of[number]] for number in ids if number in row_of} - {None, ""}:
            points[value] += _POINTS * (1 if types.besteffort else _SHARED_ONLY)
    return points
