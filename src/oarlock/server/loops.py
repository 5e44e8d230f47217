"""The loop of the server: carries out what the reactor decides, and waits while nothing is due."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Periodic, QuickPass, Step, WholePass
from oarlock.model.errors import DatabaseAway, DatabaseHeld
from oarlock.server.core import ServerCore

log = logging.getLogger(__name__)

PeriodicSteps = Mapping[Periodic, Callable[[], Awaitable[None]]]


async def run(core: ServerCore, periodic: PeriodicSteps) -> None:
    """Carry out steps, each in a task of its own, until cancelled; steps that are under way end then as well."""
    reactor = core.reactor
    async with asyncio.TaskGroup() as group:
        while True:
            core.changed.clear()
            at = core.moment
            for due in reactor.due(at):
                group.create_task(_carry_out(core, due, periodic))
            while (step := reactor.next_step(at)) is not None:
                group.create_task(_carry_out(core, step, periodic))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(reactor.wake_in(at)):
                    await core.changed.wait()


async def _carry_out(core: ServerCore, step: Step | Periodic, periodic: PeriodicSteps) -> None:
    """Carry out a step; what it raises is logged, and the reactor decides what follows: one bad job stops nothing."""
    try:
        match step:
            case QuickPass() | WholePass():
                await core.plan(step)
            case ApplyReports() | BeginLaunches():
                await core.write_reports(step)
            case _:
                await periodic[step]()
                core.reactor.ended(step, core.moment)
    except DatabaseHeld as held:
        core.reactor.failed(step, held, core.moment)  # logged where it was found; the server is about to end
    except Exception as error:
        if isinstance(error, DatabaseAway) and isinstance(step, ApplyReports | BeginLaunches):
            log.warning("the database accepts nothing; reports are kept", extra={"why": str(error)})
        else:
            log.exception("step failed", extra={"step": step if isinstance(step, Periodic) else type(step).__name__})
        core.reactor.failed(step, error, core.moment)
    core.changed.set()
