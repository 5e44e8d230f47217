"""Serve: open the state directory, take its lock, carry out what the reactor decides until a signal stops it.

A standby server waits until the active one of its PostgreSQL database is gone, and takes its place.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from oarlock.config import Config
from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Periodic, QuickPass, Step, WholePass
from oarlock.job.run import notices
from oarlock.model.errors import ConfigRefused, DatabaseAway, DatabaseHeld, OarlockError
from oarlock.server.accounts import warn_of_unknown_admins
from oarlock.server.core import ServerCore
from oarlock.server.http.listen import serve_http
from oarlock.server.instance import attempt_key, database_address, open_instance, prepare_state_dir
from oarlock.server.mailing.digests import DigestSender
from oarlock.server.mailing.idle_jobs import IdleJobActions
from oarlock.server.mailing.mail_queue import AlertSender, MailQueue
from oarlock.server.planning.client import PlanningProcess, fork
from oarlock.server.process import logs
from oarlock.server.process.clock import RealClock
from oarlock.server.process.reserves import raise_limit, return_large_blocks
from oarlock.server.process.service_manager import ServiceManager
from oarlock.settings.kinds import NodeTransport
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import parse_address
from oarlock.store.engine.server_lock import LOOK_SECONDS, StandbyWatch

PeriodicSteps = Mapping[Periodic, Callable[[], Awaitable[None]]]


async def run_reactor(core: ServerCore, periodic: PeriodicSteps) -> None:
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
        name = step if isinstance(step, Periodic) else type(step).__name__
        if not isinstance(error, DatabaseAway):
            log.exception("step failed", extra={"step": name})
        elif isinstance(step, ApplyReports | BeginLaunches):
            log.warning("the database accepts nothing; reports are kept", extra={"why": str(error)})
        else:
            log.warning("the database is away; the step is tried again", extra={"step": name, "why": str(error)})
        core.reactor.failed(step, error, core.moment)
    core.changed.set()


log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
"""The switch interval of the interpreter lock. A step releases the lock at every SQL statement and must get it back:
with Python's default of 5 ms, one busy reader makes each of these statements 5 ms longer."""

Listener = Callable[[ServerCore], Awaitable[None]]


def serve(state_dir: Path, config: Config, *, standby: bool = False) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run go on without a server. `standby`: wait for one's turn first."""
    _check_account(config)
    manager = ServiceManager.of_environment()
    planner = fork()
    raise_limit()
    return_large_blocks()
    sys.setswitchinterval(_SWITCH_SECONDS)
    filters = logs.install_filters()
    with contextlib.ExitStack() as stack:
        database = _open_in_turn(stack, state_dir, config, manager, standby=standby)
        asyncio.run(_serve(state_dir, config, database, planner, manager))
    for repeat_filter in filters:
        repeat_filter.flush(final=True)


def _check_account(config: Config) -> None:
    """Refuse settings that a server cannot follow that is not root's and serves everybody."""
    if os.geteuid() == 0 or not config.serve_everybody or config.node_transport is not NodeTransport.LOCAL:
        return
    raise ConfigRefused(
        "NODE_TRANSPORT=local and SERVE_EVERYBODY=yes: pretended nodes that run jobs of all users need "
        "a server of root's.",
        hint="Leave NODE_TRANSPORT out: this host is reached by LOCAL_NODE_CMD, others by ssh.",
    )


def _open_in_turn(
    stack: contextlib.ExitStack, state_dir: Path, config: Config, manager: ServiceManager, *, standby: bool
) -> Database:
    """Open the database of an instance; as a standby server, once the active one is gone."""
    while standby:
        prepare_state_dir(state_dir)  # refused now rather than when the active server has died
        wait_for_turn(database_address(state_dir, config), manager.standing_by)
        try:
            return stack.enter_context(open_instance(state_dir, config))
        except DatabaseHeld as held:  # another standby server was faster
            log.info("still standing by", extra={"why": str(held)})
    return stack.enter_context(open_instance(state_dir, config, announce=True))


async def _serve(
    state_dir: Path, config: Config, database: Database, planner: PlanningProcess, manager: ServiceManager
) -> None:
    core = ServerCore(
        state_dir, config, database, RealClock(), await asyncio.to_thread(attempt_key, database), helper=planner
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, core.stopping.set)

    def give_way(held: DatabaseHeld) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(core.give_way, held)

    database.call_on_loss(give_way)
    gc.freeze()  # objects made at start live as long as the server: the collector need not scan them again
    beating = loop.create_task(manager.beat())
    try:
        await run(core, partial(serve_http, ready=manager.serving))
    except BaseExceptionGroup as group:
        raise _refusal(group) or group from None
    finally:
        manager.stopping()
        beating.cancel()
        await core.close()
    if core.lost is not None:
        raise core.lost
    log.info("stopped; jobs go on")


async def run(core: ServerCore, listen: Listener | None = None) -> None:
    """Run all loops until `core.stopping` is set."""
    await core.recover()
    await core.check_programs()
    core.collector.begin()
    await core.agents.begin()
    log.info("serving", extra={"state": str(core.state_dir), "pid": os.getpid()})
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(warn_of_unknown_admins(core.config.admins))
            if core.config.mail_recipient:
                await core.write(notices.begin_alerts)
            core.reactor.request(Periodic.FORGET_REQUESTS)
            group.create_task(run_reactor(core, _periodic_steps(core)))
            group.create_task(core.schedulers.run())
            group.create_task(core.measure_idle())
            if listen is not None:
                group.create_task(_listening(listen, core))
            group.create_task(_until_stopped(core))
    except* _Stop:
        pass


def _periodic_steps(core: ServerCore) -> PeriodicSteps:
    return {
        Periodic.WATCH: core.watch,
        Periodic.CHECK_NODES: core.check,
        Periodic.FORGET_REQUESTS: core.forget_requests,
        Periodic.SEND_ALERTS: AlertSender(core).send_due,
        Periodic.SEND_MAILS: MailQueue(core).send_due,
        Periodic.SEND_DIGESTS: DigestSender(core).store_due,
        Periodic.ACT_ON_FINDINGS: IdleJobActions(core).act_due,
        Periodic.BOOK_USAGE: core.book_usage,
    }


def _refusal(group: BaseExceptionGroup[BaseException]) -> OarlockError | None:
    """Return the refusal that ended the loops (a port that is taken), if nothing else did."""
    refusals, others = group.split(OarlockError)
    error: BaseException | None = refusals if others is None else None
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, OarlockError) else None


class _Stop(Exception):
    """Ends the task group."""


async def _until_stopped(core: ServerCore) -> None:
    await core.stopping.wait()
    raise _Stop


async def _listening(listen: Listener, core: ServerCore) -> None:
    await listen(core)


def wait_for_turn(address: str | Path, alive: Callable[[], None]) -> None:
    """Return once no other server holds the database; a database that is away is waited for as well.

    `alive` is called at every look.
    """
    with contextlib.closing(StandbyWatch.of(parse_address(address))) as watch:
        log.info("standing by", extra={"database": watch.address})
        alive()
        while not _is_free(watch):
            alive()
            time.sleep(LOOK_SECONDS)
    log.info("taking over: no other server holds the database")


def _is_free(watch: StandbyWatch) -> bool:
    try:
        return watch.look()
    except DatabaseAway as error:
        log.warning("still standing by", extra={"why": str(error)})
        return False
