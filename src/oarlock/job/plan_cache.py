"""Keeping: passes that follow each other, each from the database as it is, with what did not change kept in memory.

Where anything is in doubt nothing is kept, and the pass is one from scratch: the first one, other resources or queues,
a failure. Now and then both are made and compared; if they differ that is logged, and what was kept is not used.
"""

import logging
from collections.abc import Callable

from oarlock.job.run import schedule
from oarlock.job.run.schedule import Decision
from oarlock.model.plan import Plan
from oarlock.plan.incremental.plan_cache import PlanCache, is_cacheable
from oarlock.plan.planner import OutOfTime, make_plan, never
from oarlock.plan.settings import PlanSettings
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import snapshot

log = logging.getLogger(__name__)

_TRUSTED = 600  # seconds for which a kept plan is believed without a comparison


class CachedPlanner:
    """Plans one database from pass to pass."""

    def __init__(self, how: PlanSettings, *, karma_window: int) -> None:
        self._how, self._karma_window = how, karma_window
        self._since = 0
        self._forget()

    def _forget(self) -> None:
        self._memory, self._kept = snapshot.SnapshotCache(), PlanCache(self._how)

    def read(self, tx: Tx, *, now: int) -> snapshot.SnapshotRead:
        """Read a snapshot of everything."""
        return schedule.read(tx, self._how, karma_window=self._karma_window, now=now, memory=self._memory)

    def starts(self, seen: snapshot.SnapshotRead, *, now: int, out_of_time: OutOfTime = never) -> Decision:
        """Say who starts now, as a whole pass would; where nothing can be kept it is one."""
        plan = self._tried(lambda: self._kept.starts(seen.snapshot, now=now), seen, now)
        if plan is None:
            return schedule.decide(seen, self._how, now=now, out_of_time=out_of_time)
        return schedule.decision(plan, seen, self._how, whole=False)

    def whole(self, seen: snapshot.SnapshotRead, *, now: int, out_of_time: OutOfTime = never) -> Decision:
        """Plan everything, so that every date is today's."""
        plan = self._tried(lambda: self._kept.whole(seen.snapshot, now=now, out_of_time=out_of_time), seen, now)
        if plan is None:
            return schedule.decide(seen, self._how, now=now, out_of_time=out_of_time)
        if not self._since <= now < self._since + _TRUSTED and not plan.unfinished:
            plan = self._compared(plan, seen, now)
        return schedule.decision(plan, seen, self._how)

    def _tried(self, make: Callable[[], Plan], seen: snapshot.SnapshotRead, now: int) -> Plan | None:
        """Make a plan with what is kept; None, and nothing is kept, where it cannot be, or if that failed."""
        if not is_cacheable(seen.snapshot, self._how):
            self._kept.forget()
            return None
        if self._kept.empty:
            self._since = now
        try:
            return make()
        except Exception:
            log.exception("a kept plan failed, the pass is made from scratch")
            self._forget()
            return None

    def _compared(self, plan: Plan, seen: snapshot.SnapshotRead, now: int) -> Plan:
        """Give a plan from scratch, log where the kept one differs, and begin to keep anew."""
        fresh = make_plan(seen.snapshot, now=now, settings=self._how)
        other = [number for number, place in fresh.placements.items() if plan.placements.get(number) != place]
        if other or plan.placements.keys() != fresh.placements.keys() or set(plan.start) != set(fresh.start):
            log.error("a kept plan differs from one from scratch", extra={"jobs": other[:10], "count": len(other)})
        self._forget()
        return fresh
