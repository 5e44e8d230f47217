"""Plan pass after pass from the database, and cache in memory what did not change between two passes.

Where anything is in doubt nothing is cached and the pass starts from scratch: the first one, other resources or queues,
a failure. Now and then both plans are made and compared; a difference is logged, and the cached plan is dropped.
"""

import logging
from collections.abc import Callable

from oarlock.job.run import schedule
from oarlock.job.run.schedule import Decision
from oarlock.model.plan import Plan
from oarlock.plan.incremental.plan_cache import PlanCache, is_cacheable
from oarlock.plan.planner import OutOfTime, make_plan, never
from oarlock.plan.settings import PlanSettings
from oarlock.plan.thinning import find_starts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import snapshot

log = logging.getLogger(__name__)

_TRUSTED_SECONDS = 600  # how long a cached plan is used without a comparison


class CachedPlanner:
    """Plans one database from pass to pass, with a cache of what did not change."""

    def __init__(self, settings: PlanSettings, *, karma_window: int) -> None:
        self._settings, self._karma_window = settings, karma_window
        self._since = 0
        self._clear()

    def _clear(self) -> None:
        self._snapshots, self._cache = snapshot.SnapshotCache(), PlanCache(self._settings)

    def read(self, tx: Tx, *, now: int) -> snapshot.SnapshotRead:
        """Read a snapshot of everything."""
        return schedule.read(tx, self._settings, karma_window=self._karma_window, now=now, memory=self._snapshots)

    def starts(self, seen: snapshot.SnapshotRead, *, now: int, out_of_time: OutOfTime = never) -> Decision:
        """Return which jobs start now, as a full pass would, or some of them where the queue is very long.

        Where nothing is cached it is a full pass.
        """
        plan = find_starts(seen.snapshot, now=now, settings=self._settings)
        if plan is not None:
            return schedule.decision(plan, seen, self._settings, whole=False)
        plan = self._from_cache(lambda: self._cache.starts(seen.snapshot, now=now), seen, now)
        if plan is None:
            return schedule.decide(seen, self._settings, now=now, out_of_time=out_of_time)
        return schedule.decision(plan, seen, self._settings, whole=False)

    def whole(self, seen: snapshot.SnapshotRead, *, now: int, out_of_time: OutOfTime = never) -> Decision:
        """Plan all jobs, so that every date is current."""
        plan = self._from_cache(lambda: self._cache.whole(seen.snapshot, now=now, out_of_time=out_of_time), seen, now)
        if plan is None:
            return schedule.decide(seen, self._settings, now=now, out_of_time=out_of_time)
        if not self._since <= now < self._since + _TRUSTED_SECONDS and not plan.unfinished:
            plan = self._compare(plan, seen, now)
        return schedule.decision(plan, seen, self._settings)

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
