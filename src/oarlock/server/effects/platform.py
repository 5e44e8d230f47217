"""The platform of effects on the server: tasks of the event loop, real nodes, accounts, and programs of the site."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from oarlock.config import Config
from oarlock.job.reactor.nodes import Flag, NodeVerbs, Ping
from oarlock.job.run.effects import Notify, RunEpilogue
from oarlock.job.run.reports import Exited, IncomingReport, NodeReport, Started
from oarlock.model.errors import DatabaseHeld, NodeRefused, NodeUnreachable
from oarlock.model.event import EventType
from oarlock.node.attempt.user.identity import UserRefused
from oarlock.node.attempt.user.notice import Notice
from oarlock.node.wire.messages import NOT_NOW, Launch
from oarlock.server.accounts import AccountLookup
from oarlock.server.effects import programs
from oarlock.server.effects.node_commands import PowerCommands, configured_checker
from oarlock.server.effects.notices import Enqueue, NoticeSender, ReportText
from oarlock.server.nodes.fleet import Fleet
from oarlock.server.staging.stage_out import StageOutStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_TRANSFERS = 16  # archives that are on their way to nodes at the same time


class _AwaitedReport(NamedTuple):
    """A place on a node whose report is awaited; the report is None once the place is ready."""

    node: str
    report: "asyncio.Future[Exited | None]"
    seconds: float

    async def ended(self) -> Exited | None:
        try:
            async with asyncio.timeout(self.seconds):
                return await self.report
        except TimeoutError:
            says = f"no place was ready within {self.seconds:.0f} s"
            raise NodeUnreachable(self.node, says, sent=True) from None


LoginHostOf = Callable[[int], Awaitable[str]]
"""Returns the login host that was proven for a job; an empty text if none was."""


class ServerPlatform:
    """Runs each effect in a task of its own."""

    def __init__(
        self,
        fleet: Fleet,
        config: Config,
        receive: Callable[[IncomingReport], None],
        *,
        archives: Path,
        stage_outs: StageOutStore,
        report: ReportText,
        enqueue: Enqueue,
        login_host: LoginHostOf,
    ) -> None:
        self._fleet, self._config, self._archives, self._stage_outs = fleet, config, archives, stage_outs
        self._login_host = login_host
        self._transfers = asyncio.Semaphore(_MOST_TRANSFERS)
        self._places: dict[tuple[int, int, str], _AwaitedReport] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts = AccountLookup()
        self._notices = NoticeSender(config, receive, self._run_notice, report, enqueue)
        self._checker = configured_checker(config)
        self._power = PowerCommands(config, receive)
        self._healing = asyncio.Lock()
        self.stopped = False

    def on_node_event(self, event: NodeReport) -> None:
        """Pass a node's event on to whoever awaits a place there."""
        match event:
            case Started():
                self._place_known((event.job, event.attempt, event.node), None)
            case Exited():
                self._place_known((event.report.job, event.report.attempt, event.node), event)
            case _:
                pass

    def stop(self) -> None:
        """Cancel all effects and start no other; the database has what they were for."""
        self.stopped = True
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Stop, and wait until every effect has ended."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._accounts.close()

    # Tasks.

    def node(self, name: str) -> NodeVerbs:
        """Return a node by its name."""
        return self._fleet.node(name)

    def start(self, effect: Coroutine[Any, Any, None]) -> None:
        """Start a task for an effect; return at once."""
        if self.stopped:
            effect.close()
            return
        task = asyncio.create_task(_guarded(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def gather(self, requests: Sequence[Awaitable[T]]) -> list[T]:
        """Await requests that are made at the same time."""
        return list(await asyncio.gather(*requests))

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def flag(self) -> Flag:
        """Return a flag that is not set."""
        return asyncio.Event()

    async def wait(self, flag: Flag, seconds: float) -> bool:
        """Wait for a flag, not longer than some seconds; return whether it was set."""
        try:
            async with asyncio.timeout(seconds):
                await flag.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def place(self, job: int, attempt: int, node: str, *, seconds: float) -> Iterator[_AwaitedReport]:
        """Await the report of a place on a node."""
        report = asyncio.get_running_loop().create_future()
        place = self._places[job, attempt, node] = _AwaitedReport(node, report, seconds)
        try:
            yield place
        finally:
            self._places.pop((job, attempt, node), None)

    def _place_known(self, key: tuple[int, int, str], ended: Exited | None) -> None:
        place = self._places.get(key)
        if place is not None and not place.report.done():
            place.report.set_result(ended)

    async def stage_in(self, node: str, launch: Launch, killed: Flag) -> None:
        """Bring the archive of a job to a node; one that is killed meanwhile waits no longer."""
        sending = asyncio.ensure_future(self._send_archive(node, launch))
        ending = asyncio.ensure_future(killed.wait())
        try:
            await asyncio.wait({sending, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise NodeRefused(node, NOT_NOW, "it was killed before it began")
            await sending
        finally:
            for task in (sending, ending):
                task.cancel()
            await asyncio.gather(sending, ending, return_exceptions=True)

    async def _send_archive(self, node: str, launch: Launch) -> None:
        async with self._transfers:
            await self._fleet.node(node).put_file(self._archives / launch.stage_in, launch.stage_in_size)

    async def stage_out(self, epilogue: RunEpilogue) -> str:
        """Fetch what a job wrote from its desktop."""
        return await self._stage_outs.fetch(epilogue, self._fleet.node)

    # The site.

    async def uid(self, user: str) -> int:
        """Return the number of a user."""
        return await self._accounts.uid(user)

    async def prologue(self, job: int) -> tuple[EventType | None, str]:
        """Run the server's prologue, if there is one."""
        return await self._script(self._config.server_prologue_exec_file, job, programs.PROLOGUE)

    async def epilogue(self, job: int) -> tuple[EventType | None, str]:
        """Run the server's epilogue, if there is one."""
        return await self._script(self._config.server_epilogue_exec_file, job, programs.EPILOGUE)

    async def _script(
        self, path: Path | None, job: int, events: tuple[EventType, EventType, EventType]
    ) -> tuple[EventType | None, str]:
        if path is None:
            return None, ""
        result = await programs.run([str(path), str(job)], seconds=self._config.server_prologue_epilogue_timeout)
        return programs.problem(result, events), result.says

    async def after_suspend(self, job: int) -> str:
        """Run the site's program for a suspended job."""
        return await self._pause_script(self._config.just_after_suspend_exec_file, job)

    async def before_resume(self, job: int) -> str:
        """Run the site's program for a job that is to be resumed."""
        return await self._pause_script(self._config.just_before_resume_exec_file, job)

    async def _pause_script(self, path: Path | None, job: int) -> str:
        if path is None:
            return ""
        result = await programs.run([str(path), str(job)], seconds=self._config.suspend_resume_script_timeout)
        return "" if result.status == 0 else result.says

    async def check(self, nodes: Sequence[str], ping: Ping) -> dict[str, str] | None:
        """Check nodes with the program that the settings name, else by pinging them."""
        return await (self._checker.silent if self._checker else ping)(nodes)

    async def wake(self, nodes: Sequence[str], ping: Ping) -> None:
        """Wake nodes with the site's command, and wait for them."""
        await self._power.wake(nodes, ping)

    async def sleep(self, nodes: Sequence[str]) -> None:
        """Put nodes to sleep with the site's command."""
        await self._power.sleep(nodes)

    async def heal(self, resources: Sequence[tuple[int, str]]) -> str:
        """Run the site's healing program, one run at a time: it may restart machines."""
        lines = [f"{number} {name}" for number, name in resources]
        command = [str(self._config.suspected_healing_exec_file)]
        async with self._healing:
            result = await programs.run(command, seconds=self._config.suspected_healing_timeout, lines=lines)
        write_log = log.info if result.status == 0 else log.warning
        write_log("healing program ran", extra={"command": command[0], "nodes": lines, "says": result.says})
        return "" if result.status == 0 else result.says

    async def notify(self, notice: Notify) -> None:
        """Notify a user of a job."""
        await self._notices.send(notice)

    async def _run_notice(self, notice: Notice) -> str:
        try:
            identified = notice._replace(uid=await self._accounts.uid(notice.user))
        except UserRefused as refusal:
            return str(refusal)
        host = await self._login_host(notice.job) or self._config.notify_hostname
        return await self._fleet.node(host).notify(identified)


async def _guarded(effect: Coroutine[Any, Any, None]) -> None:
    """Run an effect to its end; an unexpected error is logged, and does not affect others."""
    try:
        await effect
    except DatabaseHeld:
        pass  # logged where it was found; the server is about to end
    except Exception:
        log.exception("effect failed", extra={"effect": getattr(effect, "__qualname__", "")})
