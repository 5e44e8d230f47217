"""Effects on simulated nodes: carried out at once; their results come back as reports."""

from collections.abc import Callable, Mapping, Sequence

from oarlock.job.run import effects as job_effects
from oarlock.job.run import reports
from oarlock.model.errors import NodeRefused, NodeUnreachable, OarlockError
from oarlock.model.event import EventType, event_type
from oarlock.node.wire.messages import FAILED, NOT_NOW, REBOOTED, SEEN, UNKNOWN, Launch
from oarlock.simulate.clock import SimulatedClock
from oarlock.simulate.nodes import SimulatedNode

Jobs = Sequence[int]


class SimulatedEffects:
    """What a server's effect runner does, without waiting. `scripts`: which of the server's scripts fail, and how.

    `accounts` are users whom the server does not find, with the event that says why.
    `slept`, `woken` and `notified` record what was asked for; nodes that are put to sleep are down at once, and come up
    when a test says so.
    """

    def __init__(
        self,
        nodes: Mapping[str, SimulatedNode],
        clock: SimulatedClock,
        *,
        report: Callable[[reports.IncomingReport], None],
        schedule_again: Callable[[int | None], None],
        reached: Callable[[Jobs], None],
    ) -> None:
        self._nodes, self._clock = nodes, clock
        self._report, self._schedule_again, self._reached = report, schedule_again, reached
        self.hosts: dict[str, reports.Hello] = {}
        self.scripts: dict[str, EventType] = {}
        self.accounts: dict[str, EventType] = {}
        self.woken: list[tuple[str, ...]] = []
        self.slept: list[tuple[str, ...]] = []
        self.notified: list[tuple[int, str, str]] = []
        self._waking: dict[str, int] = {}

    def carry_out(self, effects: Sequence[job_effects.Effect]) -> None:
        """Carry effects out, in their order."""
        for effect in effects:
            self._do(effect)

    def forget(self) -> None:
        """Clear all memory, as after a restart."""
        self.hosts.clear()
        self._waking.clear()

    def look_at_woken(self, patience: int) -> None:
        """Report nodes that were woken: those that answer, and those whose time is over."""
        up = frozenset(name for name in self._waking if self._nodes[name].up)
        begun = self._clock.now - patience
        late = {name: "unplugged" for name, since in self._waking.items() if since <= begun and name not in up}
        self._waking = {name: since for name, since in self._waking.items() if name not in up | late.keys()}
        if up or late:
            self._report(reports.NodesWoken(up, late))

    def _do(self, effect: job_effects.Effect) -> None:
        match effect:
            case job_effects.ScheduleAgain(at=at):
                self._schedule_again(at)
            case job_effects.ReachNodes():
                self._reach(effect)
            case job_effects.LaunchAttempt():
                self._run(effect)
            case job_effects.AwaitReport():
                self._nodes[effect.node].expected.add((effect.job, effect.attempt))
            case job_effects.Kill():
                self._kill(effect)
            case job_effects.ForgetAttempts():
                self._each((effect.node,), lambda node: node.forget(effect.attempts))
            case job_effects.ReleaseNodes():
                self._each(effect.nodes, lambda node: node.end(effect.job, effect.attempt))
            case job_effects.Suspend() | job_effects.Resume() | job_effects.Checkpoint():
                self._act_on_running(effect)
            case _:
                self._do_rare(effect)

    def _act_on_running(self, effect: job_effects.Suspend | job_effects.Resume | job_effects.Checkpoint) -> None:
        key = (effect.job, effect.attempt)
        match effect:
            case job_effects.Checkpoint():
                failed = self._each((effect.node,), lambda node: node.checkpoint(*key))
                self._report(reports.CheckpointSignalled(*key, "; ".join(failed.values())))
            case job_effects.Suspend():
                failed = self._each(effect.nodes, lambda node: node.suspend(*key))
                self._report(reports.JobSuspended(*key, tuple(failed), "; ".join(failed.values())))
            case job_effects.Resume():
                failed = self._each(effect.nodes, lambda node: node.resume(*key))
                self._report(reports.JobResumed(*key, tuple(failed), "; ".join(failed.values())))

    def _do_rare(self, effect: job_effects.Effect) -> None:
        match effect:
            case job_effects.RunEpilogue():
                self._report(
                    reports.EpilogueEnded(effect.job, effect.attempt, self.scripts.get("epilogue"), "on purpose")
                )
            case job_effects.CheckNodes():
                silent = self._each(effect.nodes, SimulatedNode.ping)
                self._report(reports.NodesChecked(frozenset(effect.nodes) - silent.keys(), silent))
            case job_effects.WakeNodes():
                self.woken.append(effect.nodes)
                self._waking |= {name: self._waking.get(name, self._clock.now) for name in effect.nodes}
            case job_effects.SleepNodes():
                self.slept.append(effect.nodes)
                for name in effect.nodes:
                    self._nodes[name].up = False
            case job_effects.Notify():
                self.notified.append((effect.job, effect.tag, effect.how))
                self._report(reports.NotificationSent(effect.number))
            case job_effects.ChangeWalltime(seconds=seconds):
                self._each(effect.nodes, lambda node: node.walltime(effect.job, effect.attempt, seconds))
            case job_effects.Signal():
                pass  # virtual commands mind no signals
            case _:
                raise AssertionError(f"no handler for the effect {effect}")

    def _kill(self, effect: job_effects.Kill) -> None:
        try:
            self._nodes[effect.node].kill(effect.job, effect.attempt)
        except NodeRefused as error:
            if error.word == UNKNOWN:
                self._report(reports.AttemptMissing(effect.node, effect.job, effect.attempt))
        except NodeUnreachable:
            pass  # it is sent again when the node is back

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

    def _reach(self, effect: job_effects.ReachNodes) -> None:
        silent = {}
        for name in effect.nodes:
            try:
                self.hosts[name] = self._nodes[name].hello()
            except NodeUnreachable as error:
                self.hosts.pop(name, None)
                silent[name] = str(error)
        if not silent:
            self._reached(effect.jobs)
            return
        event, says = EventType.PING_CHECKER_NODE_SUSPECTED, "; ".join(silent.values())
        for job in effect.jobs:
            self._report(reports.NotLaunched(job, 0, event, says, tuple(silent)))

    def _run(self, run: job_effects.LaunchAttempt) -> None:
        launch = run.first[1]
        if event := self.accounts.get(launch.user):
            says = f"the server does not find {launch.user}"
            self._report(reports.NotLaunched(launch.job, launch.attempt, event, says, ()))
            return
        failed = self._prepare(run)
        if failed:
            self._not_launched(run, next(iter(failed.values())), tuple(failed))
        elif bad := self.scripts.get("prologue"):
            self._not_launched(run, bad, ())
        else:
            self._start(run)

    def _prepare(self, run: job_effects.LaunchAttempt) -> dict[str, EventType]:
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

    def _start(self, run: job_effects.LaunchAttempt) -> None:
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

    def _not_launched(self, run: job_effects.LaunchAttempt, event: EventType, hosts: tuple[str, ...]) -> None:
        launch = run.first[1]
        others = [name for name, _ in run.others if name not in hosts]
        self._each(others, lambda node: node.end(launch.job, launch.attempt))
        self._report(reports.NotLaunched(launch.job, launch.attempt, event, "on purpose", hosts))
