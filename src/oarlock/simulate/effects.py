"""Errands on virtual nodes: instructions are carried out at once; what comes of them returns as news."""

from collections.abc import Callable, Mapping, Sequence

from oarlock.job.run import effects as asked
from oarlock.job.run import reports
from oarlock.model.errors import NodeRefused, NodeUnreachable, OarlockError
from oarlock.model.event import EventType, event_type
from oarlock.node.wire.messages import FAILED, NOT_NOW, REBOOTED, SEEN, UNKNOWN, Launch
from oarlock.simulate.clock import SimulatedClock
from oarlock.simulate.nodes import SimulatedNode

Jobs = Sequence[int]


class SimulatedEffects:
    """What a server's errands do, without waiting. `scripts` says which of the server's own scripts go wrong, and how.

    `accounts` are users whom the server does not find, with the event that says why.
    `slept`, `woken` and `told` remember what was asked for; nodes that are put to sleep are down at once, and come up
    when somebody says so.
    """

    def __init__(
        self,
        nodes: Mapping[str, SimulatedNode],
        clock: SimulatedClock,
        *,
        tell: Callable[[reports.IncomingReport], None],
        look_again: Callable[[int | None], None],
        reached: Callable[[Jobs], None],
    ) -> None:
        self._nodes, self._clock = nodes, clock
        self._tell, self._look_again, self._reached = tell, look_again, reached
        self.hosts: dict[str, reports.Hello] = {}
        self.scripts: dict[str, EventType] = {}
        self.accounts: dict[str, EventType] = {}
        self.woken: list[tuple[str, ...]] = []
        self.slept: list[tuple[str, ...]] = []
        self.told: list[tuple[int, str, str]] = []
        self._waking: dict[str, int] = {}

    def carry_out(self, instructions: Sequence[asked.Effect]) -> None:
        """Do everything."""
        for one in instructions:
            self._do(one)

    def forget(self) -> None:
        """Know nothing any more, as after a restart."""
        self.hosts.clear()
        self._waking.clear()

    def look_at_woken(self, patience: int) -> None:
        """Tell of nodes that were woken: those that answer, and those whose time is over."""
        up = frozenset(name for name in self._waking if self._nodes[name].up)
        begun = self._clock.now - patience
        late = {name: "unplugged" for name, since in self._waking.items() if since <= begun and name not in up}
        self._waking = {name: since for name, since in self._waking.items() if name not in up | late.keys()}
        if up or late:
            self._tell(reports.NodesWoken(up, late))

    def _do(self, one: asked.Effect) -> None:
        match one:
            case asked.ScheduleAgain(at=at):
                self._look_again(at)
            case asked.ReachNodes():
                self._reach(one)
            case asked.LaunchAttempt():
                self._run(one)
            case asked.AwaitReport():
                self._nodes[one.node].expected.add((one.job, one.attempt))
            case asked.Kill():
                self._kill(one)
            case asked.ForgetAttempts():
                self._each((one.node,), lambda node: node.forget(one.attempts))
            case asked.ReleaseNodes():
                self._each(one.nodes, lambda node: node.end(one.job, one.attempt))
            case asked.Suspend() | asked.Resume() | asked.Checkpoint():
                self._tell_running(one)
            case _:
                self._do_rare(one)

    def _tell_running(self, one: asked.Suspend | asked.Resume | asked.Checkpoint) -> None:
        key = (one.job, one.attempt)
        match one:
            case asked.Checkpoint():
                failed = self._each((one.node,), lambda node: node.checkpoint(*key))
                self._tell(reports.CheckpointSignalled(*key, "; ".join(failed.values())))
            case asked.Suspend():
                failed = self._each(one.nodes, lambda node: node.suspend(*key))
                self._tell(reports.JobSuspended(*key, tuple(failed), "; ".join(failed.values())))
            case asked.Resume():
                failed = self._each(one.nodes, lambda node: node.resume(*key))
                self._tell(reports.JobResumed(*key, tuple(failed), "; ".join(failed.values())))

    def _do_rare(self, one: asked.Effect) -> None:
        match one:
            case asked.RunEpilogue():
                self._tell(reports.EpilogueEnded(one.job, one.attempt, self.scripts.get("epilogue"), "on purpose"))
            case asked.CheckNodes():
                silent = self._each(one.nodes, SimulatedNode.ping)
                self._tell(reports.NodesChecked(frozenset(one.nodes) - silent.keys(), silent))
            case asked.WakeNodes():
                self.woken.append(one.nodes)
                self._waking |= {name: self._waking.get(name, self._clock.now) for name in one.nodes}
            case asked.SleepNodes():
                self.slept.append(one.nodes)
                for name in one.nodes:
                    self._nodes[name].up = False
            case asked.Notify():
                self.told.append((one.job, one.tag, one.how))
                self._tell(reports.NotificationSent(one.number))
            case asked.Signal():
                pass  # virtual commands mind no signals
            case _:
                raise AssertionError(f"nobody carries out {one}")

    def _kill(self, one: asked.Kill) -> None:
        try:
            self._nodes[one.node].kill(one.job, one.attempt)
        except NodeRefused as error:
            if error.word == UNKNOWN:
                self._tell(reports.AttemptMissing(one.node, one.job, one.attempt))
        except NodeUnreachable:
            pass  # it is told again when the node is back

    def _each(self, names: Sequence[str], verb: Callable[[SimulatedNode], None]) -> dict[str, str]:
        """Ask several nodes the same; give the reasons of those that did not do it."""
        failed = {}
        for name in names:
            try:
                verb(self._nodes[name])
            except NodeRefused as error:
                if error.word not in {UNKNOWN, NOT_NOW}:
                    failed[name] = str(error)
            except OarlockError as error:
                failed[name] = str(error)
        return failed

    # Launching.

    def _reach(self, one: asked.ReachNodes) -> None:
        silent = {}
        for name in one.nodes:
            try:
                self.hosts[name] = self._nodes[name].hello()
            except NodeUnreachable as error:
                self.hosts.pop(name, None)
                silent[name] = str(error)
        if not silent:
            self._reached(one.jobs)
            return
        event, says = EventType.PING_CHECKER_NODE_SUSPECTED, "; ".join(silent.values())
        for job in one.jobs:
            self._tell(reports.NotLaunched(job, 0, event, says, tuple(silent)))

    def _run(self, run: asked.LaunchAttempt) -> None:
        launch = run.first[1]
        if event := self.accounts.get(launch.user):
            says = f"the server does not find {launch.user}"
            self._tell(reports.NotLaunched(launch.job, launch.attempt, event, says, ()))
            return
        failed = self._prepare(run)
        if failed:
            self._not_launched(run, next(iter(failed.values())), tuple(failed))
        elif bad := self.scripts.get("prologue"):
            self._not_launched(run, bad, ())
        else:
            self._start(run)

    def _prepare(self, run: asked.LaunchAttempt) -> dict[str, EventType]:
        """Have a place made on each of the other nodes; give those where that failed."""
        failed = {}
        for name, launch in run.others:
            try:
                self._nodes[name].launch(launch)
            except OarlockError:
                failed[name] = EventType.PING_CHECKER_NODE_SUSPECTED
            else:
                if event := self._failed_at_once(name, launch):
                    failed[name] = event
        return failed

    def _failed_at_once(self, name: str, launch: Launch) -> EventType | None:
        report = self._nodes[name].runs[launch.job, launch.attempt].report
        return event_type(report.event) if report is not None and report.outcome == FAILED else None

    def _start(self, run: asked.LaunchAttempt) -> None:
        name, launch = run.first
        suspected = EventType.PING_CHECKER_NODE_SUSPECTED
        try:
            self._nodes[name].launch(launch)
        except NodeUnreachable as error:
            self.hosts.pop(name, None)
            if not error.sent:
                self._not_launched(run, suspected, (name,))
        except NodeRefused as error:
            if error.word == REBOOTED:
                self.hosts.pop(name, None)
            if error.word != SEEN:
                self._not_launched(run, suspected, () if error.word == REBOOTED else (name,))

    def _not_launched(self, run: asked.LaunchAttempt, event: EventType, hosts: tuple[str, ...]) -> None:
        launch = run.first[1]
        others = [name for name, _ in run.others if name not in hosts]
        self._each(others, lambda node: node.end(launch.job, launch.attempt))
        self._tell(reports.NotLaunched(launch.job, launch.attempt, event, "on purpose", hosts))
