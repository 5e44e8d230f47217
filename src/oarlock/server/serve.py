"""Serve: open the state directory, take its lock, carry out what the reactor decides until a signal stops it."""

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from oarlock.config import Config
from oarlock.job import notices
from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Periodic, QuickPass, Step, WholePass
from oarlock.model.errors import DatabaseAway, DatabaseHeld, DatabaseRefused, OarlockError
from oarlock.node import trust
from oarlock.server import logs
from oarlock.server.accounts import warn_of_unknown_admins
from oarlock.server.clock import RealClock
from oarlock.server.core import ServerCore, mark_file
from oarlock.server.effects.alerts import AlertSender
from oarlock.server.http.listen import serve_http
from oarlock.server.planning.client import PlanningProcess, fork
from oarlock.server.reserves import raise_limit
from oarlock.settings.kinds import DbType
from oarlock.store.engine import facts
from oarlock.store.engine.database import Database
from oarlock.store.engine.generation import GenerationMarks
from oarlock.store.engine.opening import open_database

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
        if isinstance(error, DatabaseAway) and isinstance(step, ApplyReports | BeginLaunches):
            log.warning("the database accepts nothing; reports are kept", extra={"why": str(error)})
        else:
            log.exception("step failed", extra={"step": step if isinstance(step, Periodic) else type(step).__name__})
        core.reactor.failed(step, error, core.moment)
    core.changed.set()


log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
"""The switch interval of the interpreter lock. A step releases the lock at every SQL statement and must get it back:
with Python's default of 5 ms, one busy reader makes each of these statements 5 ms longer."""

Listener = Callable[[ServerCore], Awaitable[None]]


def serve(state_dir: Path, config: Config) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run go on without a server."""
    planner = fork()
    raise_limit()
    sys.setswitchinterval(_SWITCH_SECONDS)
    filters = logs.install_filters()
    with open_instance(state_dir, config, announce=True) as database:
        asyncio.run(_serve(state_dir, config, database, planner))
    for repeat_filter in filters:
        repeat_filter.flush(final=True)


@contextlib.contextmanager
def open_instance(state_dir: Path, config: Config, *, announce: bool = False) -> Iterator[Database]:
    """Open the database of a state directory as its one server; a fresh directory gets a new one.

    `announce`: log that it is new, since a mistyped name makes a new one as well.
    """
    prepare_state_dir(state_dir)
    marker = state_dir / "oarlock.db.created"
    fresh = not marker.exists()
    with open_database(database_address(state_dir, config), create=fresh, marker=marker) as database:
        now = int(RealClock().now())
        database.lock(now=now)
        _grant_reader(database, config)
        marks = GenerationMarks(database, mark_file(state_dir))
        if marks.check(now=now) and announce:
            log.warning("%s held no instance: a new one begins there, without nodes and without jobs", state_dir)
        yield database
        with contextlib.suppress(OarlockError):  # another server may hold the database by now
            marks.renew()


def _grant_reader(database: Database, config: Config) -> None:
    """Create or update the read-only account if its password is set; if that fails, log it and go on."""
    if config.db_type is not DbType.POSTGRESQL or config.db_base_passwd_ro is None:
        return
    from oarlock.store.engine import engines  # late: a server on SQLite starts without psycopg

    role, password = config.db_base_login_ro, config.db_base_passwd_ro.value
    try:
        database.write(lambda tx: engines.grant_reader(tx, role, password=password))
    except DatabaseRefused as refused:
        log.warning("no read-only account", extra={"user": role, "why": str(refused), "hint": refused.hint})


def default_state() -> Path:
    """Return the default state directory: the system's for root, one in the home directory for others."""
    if os.geteuid() == 0:
        return Path("/var/lib/oarlock")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "oarlock"


def state_of_commands() -> Path:
    """Return the state directory of the instance that commands speak to: the one of a socket in OARLOCK_SERVER."""
    server = os.environ.get("OARLOCK_SERVER", "")
    return Path(server).parent if server.startswith("/") else default_state()


def prepare_state_dir(state_dir: Path) -> None:
    """Create the directories of an instance; others may pass through, to the socket and to their jobs' files."""
    try:
        for path, mode in ((state_dir, 0o755), (state_dir / "spool", 0o700), (state_dir / "run", 0o755)):
            trust.make(str(path), mode)
            trust.check(str(path))
        trust.prepare(str(state_dir / "spool"), 0o700)
    except trust.UnsafeDirectory as unsafe:
        raise DatabaseRefused(
            f"The state directory {state_dir} is not safe: {unsafe}.",
            hint="What lies there is believed, so nobody but root and the server's user may write it or a directory "
            "above it. Name another with --state, or give it to that user and take the right to write from others.",
        ) from unsafe
    except OSError as error:
        raise DatabaseRefused(
            f"The state directory {state_dir} cannot be used: {error.strerror}.", hint="Name another with --state."
        ) from error


def database_address(state_dir: Path, config: Config) -> str | Path:
    """Return the path (SQLite) or the address (PostgreSQL) of the database."""
    if config.db_type is DbType.SQLITE:
        return state_dir / "oarlock.db"
    from urllib.parse import quote

    password = f":{quote(config.db_base_passwd.value, safe='')}" if config.db_base_passwd else ""
    who = f"{quote(config.db_base_login, safe='')}{password}"
    host = config.db_hostname
    if host.startswith("/"):
        return f"postgresql://{who}@/{config.db_base_name}?host={quote(host, safe='')}&port={config.db_port}"
    return f"postgresql://{who}@{host}:{config.db_port}/{config.db_base_name}"


def attempt_key(database: Database) -> bytes:
    """Return the key from which the secrets of attempts are made; made once in the life of a database."""
    return bytes.fromhex(database.write(lambda tx: facts.get_or_set(tx, "attempt key", secrets.token_hex(32))))


async def _serve(state_dir: Path, config: Config, database: Database, planner: PlanningProcess) -> None:
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
    try:
        await run(core, serve_http)
    except BaseExceptionGroup as group:
        raise _refusal(group) or group from None
    finally:
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
