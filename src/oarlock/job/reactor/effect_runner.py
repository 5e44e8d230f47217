"""The effect runner: carries effects of the job steps out on nodes; results return as reports.

An effect whose result is unknown (the connection broke) reports nothing: the node is queried when it is reachable.
Everything is a coroutine, and what it waits for is the platform's business: an event loop, or a simulated cluster,
where nothing waits.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from oarlock.failpoints import failpoint
from oarlock.job.reactor.nodes import EffectPlatform, Flag, NodeVerbs
from oarlock.job.reactor.reactor import Reactor
from oarlock.job.run.effects import (
    AwaitReport,
    ChangeWalltime,
    CheckNodes,
    Checkpoint,
    DiscardAttempt,
    Effect,
    EndUnknown,
    ForgetAttempts,
    HealNodes,
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
    IncomingReport,
    JobResumed,
    JobSuspended,
    LaunchDelayed,
    NodesChecked,
    NodesHealed,
    NotLaunched,
)
from oarlock.model.errors import NodeRefused, NodeUnreachable, OarlockError
from oarlock.model.event import EventType
from oarlock.node.attempt.user.identity import UserMissing, UserRefused
from oarlock.node.wire.messages import BAD, NOT_NOW, REBOOTED, SEEN, TAKEN, UNKNOWN, UNUSABLE, Launch

log = logging.getLogger(__name__)

Key = tuple[int, int]
_FORGET_AFTER = 0.5  # seconds to gather attempts that a node may delete
PLACE_SECONDS = 60.0
"""How long a place on another node than the first may take."""

_TAKEN_SECONDS = 1.0  # between two tries to launch a job whose number is taken on a node


class EffectRunner:
    """Carries effects out, each by itself, so that a slow node delays nothing but its own effects."""

    def __init__(self, platform: EffectPlatform, reactor: Reactor) -> None:
        self._platform, self._reactor = platform, reactor
        self._launching: dict[Key, Flag] = {}  # launches under way; set: ended
        self._held_up: dict[Key, Flag] = {}  # launches that wait for their number; set: killed
        self._staging: dict[Key, Flag] = {}  # launches whose archives are on their way; set: killed
        self._pausing: set[Suspend | Resume] = set()  # under way
        self._forgotten: defaultdict[str, list[Key]] = defaultdict(list)
        self._flushing = False
        self._being_checked: set[str] = set()  # nodes: a check of thousands may take longer than its period

    def run_effects(self, effects: Iterable[Effect]) -> None:
        """Start each effect; on a platform that does not wait, they are done when this returns."""
        for effect in effects:
            failpoint(type(effect).__name__)
            match effect:
                case ScheduleAgain(at=at):
                    self._reactor.request_pass(at)
                case LaunchAttempt():
                    key = (effect.first[1].job, effect.first[1].attempt)
                    self._launching[key] = self._platform.flag()
                    self._platform.start(self._launch(effect, key))
                case ForgetAttempts():
                    self._forget(effect)
                case AwaitReport():
                    self._platform.node(effect.node).expect(effect.job, effect.attempt, effect.secret)
                case _:
                    self._platform.start(self._run_effect(effect))

    def is_expected(self, report: IncomingReport) -> bool:
        """Return whether a report means something; not if a node misses an attempt whose launch is under way.

        The node lists its attempts before it has received it.
        """
        return not (isinstance(report, AttemptMissing) and (report.job, report.attempt) in self._launching)

    async def _run_effect(self, effect: Effect) -> None:
        match effect:
            case ReachNodes():
                await self._reach(effect)
            case Kill():
                await self._kill(effect)
            case ReleaseNodes():
                await self._each(effect.nodes, lambda node: node.end(effect.job, effect.attempt))
            case Checkpoint():
                problem = await self._send(effect.node, lambda node: node.checkpoint(effect.job, effect.attempt))
                self._reactor.receive(CheckpointSignalled(effect.job, effect.attempt, problem))
            case Suspend() | Resume():
                await self._pause(effect)
            case RunEpilogue():
                lost = await self._platform.stage_out(effect) if effect.stage_out is not None else ""
                failpoint("epilogue")
                event, says = await self._platform.epilogue(effect.job)
                failpoint("epilogue ran")
                self._reactor.receive(EpilogueEnded(effect.job, effect.attempt, event, says, lost))
            case CheckNodes():
                await self._check(effect)
            case _:
                await self._run_rare_effect(effect)

    async def _run_rare_effect(self, effect: Effect) -> None:
        match effect:
            case Signal():
                await self._send(effect.node, lambda node: node.signal(effect.job, effect.attempt, effect.number))
            case WakeNodes():
                await self._platform.wake(effect.nodes, self._silent)
            case SleepNodes():
                await self._platform.sleep(effect.nodes)
            case HealNodes():
                problem = await self._platform.heal(effect.resources)
                nodes = tuple(dict.fromkeys(name for _, name in effect.resources))
                self._reactor.receive(NodesHealed(nodes, problem))
            case Notify():
                await self._platform.notify(effect)
                failpoint("notified")
            case ChangeWalltime():
                # A node that is away gets it again with the next watch.
                await self._each(effect.nodes, lambda node: node.walltime(effect.job, effect.attempt, effect.seconds))
            case SurveyNodes():
                await self._silent(effect.nodes)
            case DiscardAttempt():
                await self._send(effect.node, lambda node: node.discard(effect.job, effect.attempt, effect.tag))
            case EndUnknown():
                await self._send(effect.node, lambda node: node.end_unknown(effect.job, effect.attempt, effect.tag))
            case _:
                raise AssertionError(f"no handler for effect {effect}")

    # Launching.

    async def _reach(self, reach: ReachNodes) -> None:
        problems = await self._platform.gather([self._greet(name) for name in reach.nodes])
        silent = {name: problem for name, problem in zip(reach.nodes, problems, strict=True) if problem}
        if not silent:
            self._reactor.nodes_reached(reach.jobs)
            return
        says = "; ".join(silent.values())
        for job in reach.jobs:
            self._reactor.receive(NotLaunched(job, 0, EventType.PING_CHECKER_NODE_SUSPECTED, says, tuple(silent)))

    async def _greet(self, name: str) -> str:
        """Connect to a node; return the reason if that fails, else an empty text."""
        try:
            failpoint("hello", name)
            self._reactor.hosts[name] = await self._platform.node(name).hello()
        except OarlockError as error:
            self._reactor.hosts.pop(name, None)
            return str(error)
        return ""

    async def _launch(self, run: LaunchAttempt, key: Key) -> None:
        try:
            await self._launch_with(run, await self._uid(run.first[1]))
        except _NotLaunchable as problem:
            self._reactor.receive(NotLaunched(*key, problem.event, str(problem), ()))
        finally:
            self._held_up.pop(key, None)
            self._launching.pop(key).set()

    async def _uid(self, launch: Launch) -> int | None:
        try:
            uid = await self._platform.uid(launch.user)
        except UserRefused as refusal:
            missing = isinstance(refusal, UserMissing)
            event = EventType.USER_UNKNOWN if missing else EventType.USER_LOOKUP_ERROR
            raise _NotLaunchable(event, str(refusal)) from refusal
        if uid is not None and launch.uid not in {None, uid}:
            says = f"the account `{launch.user}` is another one now: its number was {launch.uid} and is {uid}"
            raise _NotLaunchable(EventType.USER_SHELL, says)
        return uid

    async def _launch_with(self, run: LaunchAttempt, uid: int | None) -> None:
        name, launch = run.first
        failed = await self._stage_in(run) if launch.stage_in else {}
        if not failed and run.others:
            failed = await self._prepare(run)
        if failed:
            first = next(iter(failed.values()))
            event, says = launch_failure(first), "; ".join(str(error) for error in failed.values())
            blamed = tuple(name for name, error in failed.items() if not _is_withdrawn(error))
            await self._not_launched(run, event, says, blamed, cause=_cause(first))
            return
        failpoint("prologue")
        bad, says = await self._platform.prologue(launch.job)
        failpoint("prologue ran")
        if bad is not None:
            await self._not_launched(run, bad, says, ())
            return
        try:
            await self._launch_on(name, launch if uid is None else launch._replace(uid=uid))
        except NodeUnreachable as error:
            self._reactor.hosts.pop(name, None)
            if not error.sent:
                await self._not_launched(run, EventType.PING_CHECKER_NODE_SUSPECTED, str(error), (name,))
        except NodeRefused as error:
            if error.word == REBOOTED:
                self._reactor.hosts.pop(name, None)
            if error.word != SEEN:
                # NOT_NOW: it was withdrawn before its turn came, which is no fault of the node.
                hosts = () if error.word in {REBOOTED, NOT_NOW} else (name,)
                await self._not_launched(run, launch_failure(error), str(error), hosts, cause=_cause(error))

    async def _launch_on(self, name: str, launch: Launch) -> None:
        """Start an attempt on a node; while an unknown job of its number is there, wait for the end of that."""
        key = (launch.job, launch.attempt)
        while True:
            try:
                failpoint("launch", name)
                await self._platform.node(name).launch(launch)
                return failpoint("launched", name)
            except NodeRefused as error:
                if error.word != TAKEN:
                    raise
                if key not in self._held_up:
                    self._held_up[key] = self._platform.flag()
                    self._reactor.receive(LaunchDelayed(name, launch.job, launch.attempt, str(error)))
            if await self._platform.wait(self._held_up[key], _TAKEN_SECONDS):
                raise NodeRefused(name, NOT_NOW, "it was killed before it began")

    async def _stage_in(self, run: LaunchAttempt) -> dict[str, OarlockError]:
        """Bring the archive of a job to all its nodes; return the errors of those where that failed."""
        launch = run.first[1]
        names = [run.first[0], *(name for name, _ in run.others)]
        killed = self._staging[launch.job, launch.attempt] = self._platform.flag()
        try:
            errors = await self._platform.gather([self._stage_in_on(name, launch, killed) for name in names])
        finally:
            del self._staging[launch.job, launch.attempt]
        return {name: error for name, error in zip(names, errors, strict=True) if error is not None}

    async def _stage_in_on(self, name: str, launch: Launch, killed: Flag) -> OarlockError | None:
        try:
            await self._platform.stage_in(name, launch, killed)
        except OarlockError as error:
            return error
        return None

    async def _prepare(self, run: LaunchAttempt) -> dict[str, OarlockError]:
        """Prepare a place on each of the other nodes; return the errors of those where that failed."""
        errors = await self._platform.gather([self._prepare_place(name, launch) for name, launch in run.others])
        return {name: error for (name, _), error in zip(run.others, errors, strict=True) if error is not None}

    async def _prepare_place(self, name: str, launch: Launch) -> OarlockError | None:
        try:
            seconds = PLACE_SECONDS + (launch.stage_in_timeout if launch.stage_in else 0)
            with self._platform.place(launch.job, launch.attempt, name, seconds=seconds) as place:
                await self._launch_on(name, launch)
                ended = await place.ended()
        except OarlockError as error:
            return error
        if ended is None:
            return None
        report = ended.report
        return NodeRefused(name, report.event, report.says, cause=report.causes.get(report.event, ""))

    async def _not_launched(
        self, run: LaunchAttempt, event: EventType, says: str, hosts: tuple[str, ...], *, cause: str = ""
    ) -> None:
        launch = run.first[1]
        others = tuple(name for name, _ in run.others if name not in hosts)
        await self._each(others, lambda node: node.end(launch.job, launch.attempt))
        self._reactor.receive(NotLaunched(launch.job, launch.attempt, event, says, hosts, cause))

    # Running and ending.

    async def _pause(self, effect: Suspend | Resume) -> None:
        """Suspend or resume a job, with the site's program; a request repeated while it is under way is not done twice.

        The failure of a program is reported without a node. Where nodes do not answer, nothing is reported: the watch
        repeats the request.
        """
        if effect in self._pausing:
            return
        self._pausing.add(effect)
        try:
            report = await (self._suspend(effect) if isinstance(effect, Suspend) else self._resume(effect))
        finally:
            self._pausing.discard(effect)
        if report is not None:
            self._reactor.receive(report)

    async def _suspend(self, effect: Suspend) -> JobSuspended | None:
        errors = await self._errors(effect.nodes, lambda node: node.suspend(effect.job, effect.attempt))
        failed = _refusals(errors)
        if errors and not failed:
            return None  # asked again when the nodes answer
        says = "; ".join(failed.values()) or await self._platform.after_suspend(effect.job)
        return JobSuspended(effect.job, effect.attempt, tuple(failed), says)

    async def _resume(self, effect: Resume) -> JobResumed | None:
        says = await self._platform.before_resume(effect.job)
        if says:
            return JobResumed(effect.job, effect.attempt, (), says)
        errors = await self._errors(effect.nodes, lambda node: node.resume(effect.job, effect.attempt))
        failed = _refusals(errors)
        if errors and not failed:
            return None
        return JobResumed(effect.job, effect.attempt, tuple(failed), "; ".join(failed.values()))

    async def _kill(self, kill: Kill) -> None:
        launching = self._launching.get((kill.job, kill.attempt))
        for waiting in (self._held_up, self._staging):
            if (killed := waiting.get((kill.job, kill.attempt))) is not None:
                killed.set()
        if launching is not None:
            await launching.wait()
        try:
            failpoint("kill", kill.node)
            await self._platform.node(kill.node).kill(kill.job, kill.attempt, grace=kill.grace)
            failpoint("killed", kill.node)
        except NodeRefused as error:
            if error.word == UNKNOWN:
                self._reactor.receive(AttemptMissing(kill.node, kill.job, kill.attempt))
        except NodeUnreachable as error:
            # It is sent again when the node is back.
            log.warning("node did not receive a kill", extra={"node": kill.node, "job": kill.job, "why": error.why})

    def _forget(self, effect: ForgetAttempts) -> None:
        self._forgotten[effect.node] += effect.attempts
        if not self._flushing:
            self._flushing = True
            self._platform.start(self._flush())

    async def _flush(self) -> None:
        try:
            await self._platform.pause(_FORGET_AFTER)
        finally:
            self._flushing = False
        gathered, self._forgotten = self._forgotten, defaultdict(list)
        for name, keys in gathered.items():
            await self._send(name, lambda node: node.forget(keys))  # noqa: B023 - called before the next turn

    # Several nodes.

    async def _silent(self, nodes: Sequence[str]) -> dict[str, str]:
        """Ping nodes; return the reasons of those that do not answer."""
        return await self._each(nodes, lambda node: node.ping())

    async def _check(self, check: CheckNodes) -> None:
        nodes = [name for name in check.nodes if name not in self._being_checked]
        if not nodes:
            return
        self._being_checked.update(nodes)
        try:
            silent = await self._platform.check(nodes, self._silent)
        finally:
            self._being_checked.difference_update(nodes)
        if silent is not None:
            self._reactor.receive(NodesChecked(frozenset(nodes) - silent.keys(), silent))

    async def _each(self, names: Sequence[str], verb: Callable[[NodeVerbs], Awaitable[None]]) -> dict[str, str]:
        """Send a request to several nodes at once; return the reasons of those that failed."""
        return {name: str(error) for name, error in (await self._errors(names, verb)).items()}

    async def _errors(
        self, names: Sequence[str], verb: Callable[[NodeVerbs], Awaitable[None]]
    ) -> dict[str, OarlockError]:
        errors = await self._platform.gather([self._request(name, verb) for name in names])
        return {name: error for name, error in zip(names, errors, strict=True) if error is not None}

    async def _send(self, name: str, verb: Callable[[NodeVerbs], Awaitable[None]]) -> str:
        """Send a request; return why it failed, else an empty text."""
        error = await self._request(name, verb)
        return "" if error is None else str(error)

    async def _request(self, name: str, verb: Callable[[NodeVerbs], Awaitable[None]]) -> OarlockError | None:
        """Send a request; return its error. A node that forgot the attempt counts as done."""
        try:
            failpoint("request", name)
            await verb(self._platform.node(name))
            failpoint("requested", name)
        except NodeRefused as error:
            return None if error.word in {UNKNOWN, NOT_NOW} else error
        except OarlockError as error:
            log.info("node did not carry out a request", extra={"node": name, "why": str(error)})
            return error
        return None


class _NotLaunchable(Exception):
    """Raised when nothing of an attempt was sent to a node, for a reason of the account."""

    def __init__(self, event: EventType, says: str) -> None:
        super().__init__(says)
        self.event = event


_WORDS = {
    BAD: EventType.BAD_HASHTABLE_DUMP,
    REBOOTED: EventType.PING_CHECKER_NODE_SUSPECTED,
    UNUSABLE: EventType.PROLOGUE_ERROR,  # or another program of the site; the sentence names it
}


def _is_withdrawn(error: OarlockError) -> bool:
    """Return whether a launch ended because the job was killed, which is no fault of the node."""
    return isinstance(error, NodeRefused) and error.word == NOT_NOW


def _refusals(errors: Mapping[str, OarlockError]) -> dict[str, str]:
    """Return the reasons of nodes that answered; of one that did not it is not known what it did."""
    return {name: str(error) for name, error in errors.items() if not isinstance(error, NodeUnreachable)}


def _cause(error: OarlockError) -> str:
    """Return why a program of the site failed, where that kept a node from a launch."""
    if not isinstance(error, NodeRefused):
        return ""
    return UNUSABLE if error.word == UNUSABLE else error.cause


def launch_failure(error: OarlockError) -> EventType:
    """Return the manual's event for a launch that failed."""
    if isinstance(error, NodeRefused):
        if error.word in EventType.__members__:
            return EventType[error.word]
        return _WORDS.get(error.word, EventType.CPUSET_ERROR)
    return EventType.PING_CHECKER_NODE_SUSPECTED
