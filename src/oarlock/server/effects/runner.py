"""The effect runner: carries effects of the job steps out on real nodes; results return as reports.

An effect whose result is unknown (the connection broke) reports nothing: the node is queried when it is reachable.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from oarlock.config import Config
from oarlock.job.run.effects import (
    AwaitReport,
    ChangeWalltime,
    CheckNodes,
    Checkpoint,
    DiscardAttempt,
    Effect,
    EndUnknown,
    ForgetAttempts,
    Kill,
    LaunchAttempt,
    Notify,
    ReachNodes,
    ReleaseNodes,
    Resume,
    RunEpilogue,
    ScheduleAgain,
    Signal,
    SleepNodes,
    SurveyNodes,
    Suspend,
    WakeNodes,
)
from oarlock.job.run.reports import (
    AttemptMissing,
    CheckpointSignalled,
    EpilogueEnded,
    Exited,
    Hello,
    IncomingReport,
    LaunchDelayed,
    NodeReport,
    NodesChecked,
    NotLaunched,
    Started,
)
from oarlock.model.errors import DatabaseHeld, NodeRefused, NodeUnreachable, OarlockError
from oarlock.model.event import EventType
from oarlock.node.attempt.identity import UserMissing, UserRefused
from oarlock.node.attempt.notice import Notice
from oarlock.node.wire.messages import BAD, NOT_NOW, REBOOTED, SEEN, TAKEN, UNKNOWN, UNUSABLE, Launch
from oarlock.server.accounts import AccountLookup
from oarlock.server.effects import programs
from oarlock.server.effects.node_check import configured_checker
from oarlock.server.effects.notices import NoticeSender
from oarlock.server.effects.pause import PauseCommands
from oarlock.server.effects.power import PowerCommands
from oarlock.server.nodes.fleet import NodeVerbs

log = logging.getLogger(__name__)

Key = tuple[int, int]
_FORGET_AFTER = 0.5  # seconds to gather attempts that a node may delete
_PLACE_SECONDS = 60.0
_TAKEN_SECONDS = 1.0  # between two tries to launch a job whose number is taken on a node


class NodeDirectory(Protocol):
    """Looks nodes up by name."""

    def node(self, name: str) -> NodeVerbs:
        """Return a node by its name."""
        ...


class EffectRunner:
    """Runs effects, each in a task of its own, so that a slow node delays nothing but its own effects."""

    def __init__(
        self,
        fleet: NodeDirectory,
        config: Config,
        *,
        queue_report: Callable[[IncomingReport], None],
        look_again: Callable[[int | None], None],
        reached: Callable[[Sequence[int]], Awaitable[None]],
    ) -> None:
        self._fleet, self._config = fleet, config
        self._queue_report, self._look_again, self._reached = queue_report, look_again, reached
        self.hosts: dict[str, Hello] = {}
        self._launching: dict[Key, asyncio.Task[None]] = {}
        self._held_up: dict[Key, asyncio.Event] = {}  # launches that wait for their number; set: killed
        self._places: dict[tuple[int, int, str], asyncio.Future[Exited | None]] = {}
        self._forgotten: defaultdict[str, list[Key]] = defaultdict(list)
        self._flushing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts = AccountLookup()
        self._pausing = PauseCommands(config, self._each, queue_report)
        self._notices = NoticeSender(config, queue_report, self._notify)
        self._checker = configured_checker(config)
        self._power = PowerCommands(config, self._silent, queue_report)
        self._stopped = False

    def run_effects(self, effects: Iterable[Effect]) -> None:
        """Start a task for each effect; return at once."""
        if self._stopped:
            return
        for effect in effects:
            match effect:
                case ScheduleAgain(at=at):
                    self._look_again(at)
                case LaunchAttempt():
                    key = (effect.first[1].job, effect.first[1].attempt)
                    self._launching[key] = self._begin(self._run(effect))
                    self._launching[key].add_done_callback(partial(self._launched, key))
                case ForgetAttempts():
                    self._forgotten[effect.node] += effect.attempts
                    self._flush_soon()
                case AwaitReport():
                    self._fleet.node(effect.node).expect(effect.job, effect.attempt, effect.secret)
                case _:
                    self._begin(self._run_effect(effect))

    def _launched(self, key: Key, _: "asyncio.Task[None]") -> None:
        self._launching.pop(key, None)
        self._held_up.pop(key, None)

    def on_node_event(self, event: NodeReport) -> bool:
        """Inspect a node's event before it is queued; return False if it is to be dropped."""
        match event:
            case Started():
                self._place_known((event.job, event.attempt, event.node), None)
            case Exited():
                self._place_known((event.report.job, event.report.attempt, event.node), event)
            case AttemptMissing():
                # The launch is still under way: the node lists its attempts before it has received it.
                return (event.job, event.attempt) not in self._launching
            case _:
                pass
        return True

    def stop(self) -> None:
        """Cancel all effects and start no other; the database has what they were for."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Stop, and wait until every effect has ended."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._accounts.close()

    def _begin(self, effect: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, effect: Coroutine[Any, Any, None]) -> None:
        """Run an effect to its end; an unexpected error is logged, and does not affect others."""
        try:
            await effect
        except DatabaseHeld:
            pass  # logged where it was found; the server is about to end
        except Exception:
            log.exception("effect failed", extra={"effect": getattr(effect, "__qualname__", "")})

    async def _run_effect(self, effect: Effect) -> None:
        match effect:
            case ReachNodes():
                await self._reach(effect)
            case Kill():
                await self._kill(effect)
            case ReleaseNodes():
                await self._each(effect.nodes, lambda node: node.end(effect.job, effect.attempt))
            case Signal():
                await self._send(
                    effect.node, self._fleet.node(effect.node).signal(effect.job, effect.attempt, effect.number)
                )
            case Checkpoint():
                problem = await self._send(
                    effect.node, self._fleet.node(effect.node).checkpoint(effect.job, effect.attempt)
                )
                self._queue_report(CheckpointSignalled(effect.job, effect.attempt, problem))
            case Suspend():
                await self._pausing.suspend(effect)
            case Resume():
                await self._pausing.resume(effect)
            case RunEpilogue():
                await self._epilogue(effect)
            case _:
                await self._run_rare_effect(effect)

    async def _run_rare_effect(self, effect: Effect) -> None:
        match effect:
            case WakeNodes():
                await self._power.wake(effect.nodes)
            case SleepNodes():
                await self._power.sleep(effect.nodes)
            case Notify():
                await self._notices.send(effect)
            case ChangeWalltime():
                # A node that is away gets it again with the next watch.
                await self._each(effect.nodes, lambda node: node.walltime(effect.job, effect.attempt, effect.seconds))
            case CheckNodes():
                await self._check(effect)
            case SurveyNodes():
                await self._silent(effect.nodes)
            case DiscardAttempt():
                await self._send(
                    effect.node, self._fleet.node(effect.node).discard(effect.job, effect.attempt, effect.tag)
                )
            case EndUnknown():
                await self._send(
                    effect.node, self._fleet.node(effect.node).end_unknown(effect.job, effect.attempt, effect.tag)
                )
            case _:
                raise AssertionError(f"no handler for effect {effect}")

    # Launching.

    async def _reach(self, reach: ReachNodes) -> None:
        problems = await asyncio.gather(*(self._greet(name) for name in reach.nodes))
        silent = {name: problem for name, problem in zip(reach.nodes, problems, strict=True) if problem}
        if not silent:
            await self._reached(reach.jobs)
            return
        says = "; ".join(silent.values())
        for job in reach.jobs:
            self._queue_report(NotLaunched(job, 0, EventType.PING_CHECKER_NODE_SUSPECTED, says, tuple(silent)))

    async def _greet(self, name: str) -> str:
        """Connect to a node; return the reason if that fails, else an empty text."""
        try:
            self.hosts[name] = await self._fleet.node(name).hello()
        except OarlockError as error:
            self.hosts.pop(name, None)
            return str(error)
        return ""

    async def _run(self, run: LaunchAttempt) -> None:
        name, launch = run.first
        try:
            uid = await self._accounts.uid(launch.user)
        except UserRefused as refusal:
            missing = isinstance(refusal, UserMissing)
            event = EventType.USER_UNKNOWN if missing else EventType.USER_LOOKUP_ERROR
            self._queue_report(NotLaunched(launch.job, launch.attempt, event, str(refusal), ()))
            return
        if launch.uid not in {None, uid}:
            says = f"the account `{launch.user}` is another one now: its number was {launch.uid} and is {uid}"
            self._queue_report(NotLaunched(launch.job, launch.attempt, EventType.USER_SHELL, says, ()))
            return
        failed = await self._prepare(run) if run.others else {}
        if failed:
            first = next(iter(failed.values()))
            event, says = _why_not(first), "; ".join(str(error) for error in failed.values())
            await self._not_launched(run, event, says, tuple(failed), cause=_cause(first))
            return
        if self._config.server_prologue_exec_file:
            result = await self._script(str(self._config.server_prologue_exec_file), launch.job)
            if bad := programs.problem(result, programs.PROLOGUE):
                await self._not_launched(run, bad, result.says, ())
                return
        try:
            await self._launch_on(name, launch._replace(uid=uid))
        except NodeUnreachable as error:
            self.hosts.pop(name, None)
            if not error.sent:
                await self._not_launched(run, EventType.PING_CHECKER_NODE_SUSPECTED, str(error), (name,))
        except NodeRefused as error:
            if error.word == REBOOTED:
                self.hosts.pop(name, None)
            if error.word != SEEN:
                # NOT_NOW: it was withdrawn before its turn came, which is no fault of the node.
                hosts = () if error.word in {REBOOTED, NOT_NOW} else (name,)
                await self._not_launched(run, _why_not(error), str(error), hosts, cause=_cause(error))

    async def _launch_on(self, name: str, launch: Launch) -> None:
        """Start an attempt on a node; while an unknown job of its number is there, wait for the end of that."""
        key = (launch.job, launch.attempt)
        while True:
            try:
                return await self._fleet.node(name).launch(launch)
            except NodeRefused as error:
                if error.word != TAKEN:
                    raise
                if key not in self._held_up:
                    self._held_up[key] = asyncio.Event()
                    self._queue_report(LaunchDelayed(name, launch.job, launch.attempt, str(error)))
                await self._wait_for_number(name, key)

    async def _wait_for_number(self, name: str, key: Key) -> None:
        try:
            async with asyncio.timeout(_TAKEN_SECONDS):
                await self._held_up[key].wait()
        except TimeoutError:
            return
        raise NodeRefused(name, NOT_NOW, "it was killed before it began")

    async def _prepare(self, run: LaunchAttempt) -> dict[str, OarlockError]:
        """Prepare a place on each of the other nodes; return the errors of those where that failed."""
        key = (run.first[1].job, run.first[1].attempt)
        loop = asyncio.get_running_loop()
        ready = {name: loop.create_future() for name, _ in run.others}
        self._places |= {(*key, name): future for name, future in ready.items()}
        try:
            answers = await asyncio.gather(
                *(self._prepare_one(name, self._launch_on(name, launch), ready[name]) for name, launch in run.others)
            )
        finally:
            for name in ready:
                self._places.pop((*key, name), None)
        return {name: error for (name, _), error in zip(run.others, answers, strict=True) if error is not None}

    async def _prepare_one(
        self, name: str, launching: Awaitable[None], ready: "asyncio.Future[Exited | None]"
    ) -> OarlockError | None:
        try:
            await launching
            async with asyncio.timeout(_PLACE_SECONDS):
                ended = await ready
        except TimeoutError:
            return NodeUnreachable(name, f"no place was ready within {_PLACE_SECONDS:.0f} s", sent=True)
        except OarlockError as error:
            return error
        if ended is not None:
            report = ended.report
            return NodeRefused(name, report.event, report.says, cause=report.causes.get(report.event, ""))
        return None

    def _place_known(self, place: tuple[int, int, str], ended: Exited | None) -> None:
        waiting = self._places.get(place)
        if waiting is not None and not waiting.done():
            waiting.set_result(ended)

    async def _not_launched(
        self, run: LaunchAttempt, event: EventType, says: str, hosts: tuple[str, ...], *, cause: str = ""
    ) -> None:
        launch = run.first[1]
        others = tuple(name for name, _ in run.others if name not in hosts)
        await self._each(others, lambda node: node.end(launch.job, launch.attempt))
        self._queue_report(NotLaunched(launch.job, launch.attempt, event, says, hosts, cause))

    # Ending.

    async def _kill(self, kill: Kill) -> None:
        launching = self._launching.get((kill.job, kill.attempt))
        if (held_up := self._held_up.get((kill.job, kill.attempt))) is not None:
            held_up.set()
        if launching is not None:
            await asyncio.wait([launching])
        try:
            await self._fleet.node(kill.node).kill(kill.job, kill.attempt, grace=kill.grace)
        except NodeRefused as error:
            if error.word == UNKNOWN:
                self._queue_report(AttemptMissing(kill.node, kill.job, kill.attempt))
        except NodeUnreachable as error:
            log.warning(
                "node does not on_node_event a kill", extra={"node": kill.node, "job": kill.job, "why": error.why}
            )

    async def _epilogue(self, effect: RunEpilogue) -> None:
        result = await self._script(str(self._config.server_epilogue_exec_file), effect.job)
        self._queue_report(
            EpilogueEnded(effect.job, effect.attempt, programs.problem(result, programs.EPILOGUE), result.says)
        )

    async def _script(self, path: str, job: int) -> programs.ProgramResult:
        return await programs.run([path, str(job)], seconds=self._config.server_prologue_epilogue_timeout)

    async def _notify(self, notice: Notice) -> str:
        try:
            identified = notice._replace(uid=await self._accounts.uid(notice.user))
        except UserRefused as refusal:
            return str(refusal)
        return await self._fleet.node(self._config.notify_hostname).notify(identified)

    def _flush_soon(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = self._begin(self._flush())

    async def _flush(self) -> None:
        await asyncio.sleep(_FORGET_AFTER)
        gathered, self._forgotten = self._forgotten, defaultdict(list)
        for name, keys in gathered.items():
            await self._send(name, self._fleet.node(name).forget(keys))

    # Others.

    async def _silent(self, nodes: Sequence[str]) -> dict[str, str]:
        """Ping nodes; return the reasons of those that do not answer."""
        return await self._each(nodes, lambda node: node.ping())

    async def _check(self, check: CheckNodes) -> None:
        silent = await (self._checker.silent if self._checker else self._silent)(check.nodes)
        if silent is not None:
            self._queue_report(NodesChecked(frozenset(check.nodes) - silent.keys(), silent))

    async def _each(self, names: Sequence[str], verb: Callable[[NodeVerbs], Awaitable[None]]) -> dict[str, str]:
        """Send a request to several nodes at once; return the reasons of those that failed."""
        problems = await asyncio.gather(*(self._send(name, verb(self._fleet.node(name))) for name in names))
        return {name: problem for name, problem in zip(names, problems, strict=True) if problem}

    async def _send(self, name: str, request: Awaitable[None]) -> str:
        """Await a request; return why it failed, else an empty text. A node that forgot the attempt counts as done."""
        try:
            await request
        except NodeRefused as error:
            return "" if error.word in {UNKNOWN, NOT_NOW} else str(error)
        except OarlockError as error:
            log.info("node did not carry out a request", extra={"node": name, "why": str(error)})
            return str(error)
        return ""


_WORDS = {
    BAD: EventType.BAD_HASHTABLE_DUMP,
    REBOOTED: EventType.PING_CHECKER_NODE_SUSPECTED,
    UNUSABLE: EventType.PROLOGUE_ERROR,  # or another program of the site; the sentence names it
}


def _cause(error: OarlockError) -> str:
    """Return why a program of the site failed, where that kept a node from a launch."""
    if not isinstance(error, NodeRefused):
        return ""
    return UNUSABLE if error.word == UNUSABLE else error.cause


def _why_not(error: OarlockError) -> EventType:
    """Return the manual's event for a launch that failed."""
    if isinstance(error, NodeRefused):
        if error.word in EventType.__members__:
            return EventType[error.word]
        return _WORDS.get(error.word, EventType.CPUSET_ERROR)
    return EventType.PING_CHECKER_NODE_SUSPECTED
