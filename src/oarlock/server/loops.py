"""The loops of the server: reports, planning, deadlines, node checks. Each survives a failing step."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from oarlock.job.run.reports import IncomingReport
from oarlock.model.errors import DatabaseHeld
from oarlock.server.core import ServerCore

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]

_LONGEST_PAUSE = 60.0  # between two passes when nothing happens
_SHARE = 2.0  # a quick pass is followed by a pause this many times as long as the CPU time it took
_BUSY_SHARE = 3.0  # ... or this many, when more jobs wait than it looked at: nobody notices a small delay
_LONGEST_BUSY = 0.1
_WHOLE_SHARE = 10.0
_LEAST_WHOLE = 1.0
_FEW = 4
_GATHERING = 3.0  # under load, reports are gathered this many times as long as the last transaction took
_LONGEST_GATHERING = 0.03


async def every(period: float, wakeup: asyncio.Event, step: Step) -> None:
    """Run `step` each `period` seconds, or sooner when `wakeup` is set.

    A step that fails is logged and tried again at the next period: one bad job must not stop the cluster.
    """
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(period):
                await wakeup.wait()
        wakeup.clear()
        await run_safely(step)


async def run_safely(step: Step) -> bool:
    """Run a step; log what it raises, so that the calling loop goes on. Return whether it succeeded."""
    try:
        await step()
    except DatabaseHeld:
        return False  # logged where it was found; the server is about to end
    except Exception:
        log.exception("step failed", extra={"step": getattr(step, "__qualname__", repr(step))})
        return False
    return True


async def process_reports(core: ServerCore) -> None:
    """Process reports as they arrive; those that arrive during a transaction share the next one."""
    while True:
        await core.has_reports.wait()
        reports, began = list(core.reports), core.clock.steady()
        if not await run_safely(core.process_reports):
            await _apart(core, reports)
        elif len(reports) > _FEW:
            # Under load, waiting a little makes the next transaction carry more.
            await asyncio.sleep(min(_LONGEST_GATHERING, _GATHERING * (core.clock.steady() - began)))


async def _apart(core: ServerCore, reports: list[IncomingReport]) -> None:
    """Process reports one by one after a batch failed, so that a bad one does not block the others."""
    for report in reports:
        core.reports.insert(0, report)
        rest, core.reports = core.reports[1:], core.reports[:1]
        await run_safely(core.process_reports)
        core.reports += rest
    if core.reports:
        core.has_reports.set()


class Scheduler:
    """Runs passes when something changed: quick ones at once, whole ones now and then while there is more to plan.

    With a long queue, the planning process computes often who starts now, and seldom the dates of all jobs.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._next_start: int | None = None
        self._look_at: float | None = None  # when jobs behind the first ones are due to be looked at
        self._whole_at = self._dates_at = self._pausing = 0.0
        self._dated = False
        self._looking = 0.0  # seconds that it took last to see who starts
        self._whole: asyncio.Task[None] | None = None
        self._whole_again = False  # something changed since the whole pass under way began

    async def run(self) -> None:
        """Plan until cancelled; a whole pass that is still to come, or under way, ends then as well."""
        try:
            while True:
                await self._turn()
        finally:
            if self._whole is not None:
                self._whole.cancel()

    async def _turn(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause()):
                await self._core.to_plan.wait()
        self._core.to_plan.clear()
        await run_safely(self.quick)
        # Under load, what happens meanwhile is looked at together.
        await asyncio.sleep(self._pausing)

    def _pause(self) -> float:
        """Return how long nothing has to be planned, if nothing happens before: until the next start, or look."""
        clock = self._core.clock
        pauses = [_LONGEST_PAUSE]
        if self._next_start is not None:
            pauses.append(max(self._next_start - clock.now(), 0.05))
        if self._look_at is not None:
            pauses.append(max(self._look_at - clock.steady(), 0.0))
        return min(pauses)

    async def quick(self) -> None:
        """Plan the first jobs of every queue and start what can start."""
        core = self._core
        decision, cost, all_start, look_in = await core.planning.quick(int(core.clock.now()))
        self._pausing = _SHARE * cost
        if decision.left:
            self._pausing = max(self._pausing, min(_BUSY_SHARE * cost, _LONGEST_BUSY))
        await core.apply(decision)
        self._next_start = decision.next_start
        self._look_at = None if look_in is None else core.clock.steady() + look_in
        if decision.left:
            self._plan_all_later()
            if all_start:
                core.to_plan.set()  # those behind may fit, too

    def _plan_all_later(self) -> None:
        if self._whole is None or self._whole.done():
            self._whole = asyncio.create_task(self._plan_all())
        else:
            self._whole_again = True

    async def _plan_all(self) -> None:
        """Plan all jobs in the planning process until all have dates; each kind takes at most 1/11 of the time."""
        clock = self._core.clock
        while True:
            await asyncio.sleep(max(0.0, self._whole_at - clock.steady()))
            began, self._whole_again = clock.steady(), False
            dates = began >= self._dates_at
            self._dated = False
            well = await run_safely(self._see_dates if dates else self._see_starts)
            took = clock.steady() - began
            if dates or self._dated:
                self._dates_at = clock.steady() + _WHOLE_SHARE * took
            else:
                self._looking = took
            self._whole_at = clock.steady() + max(_LEAST_WHOLE, _WHOLE_SHARE * self._looking)
            if (dates or self._dated or not well) and not self._whole_again:
                return

    async def _see_dates(self) -> None:
        core = self._core
        await core.apply(await core.planning.whole(int(core.clock.now())))

    async def _see_starts(self) -> None:
        core = self._core
        decision = await core.planning.whole(int(core.clock.now()), dates=False)
        self._dated = decision.whole  # where nothing can be kept, all are looked at
        await core.apply(decision)
