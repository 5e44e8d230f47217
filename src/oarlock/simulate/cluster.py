"""A simulated cluster: the real steps and the real scheduler on simulated nodes, driven by a simulated clock.

It does what the server does, without waiting: what happens at one instant is applied in one transaction, then planned;
then the clock advances to the next event. It is deterministic: the same calls always give the same history.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from oarlock.config import Config
from oarlock.job.cluster import node_states
from oarlock.job.plan_cache import CachedPlanner
from oarlock.job.run import dispatch, launch, recover, schedule, watch
from oarlock.job.run.action_result import ActionOutcome, ActionResult
from oarlock.job.run.effects import Effect
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import IncomingReport
from oarlock.job.run.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.job import FINAL, Job
from oarlock.model.resource import NextState
from oarlock.simulate.clock import SimulatedClock
from oarlock.simulate.effects import SimulatedEffects
from oarlock.simulate.nodes import SimulatedNode
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, new_jobs, resources
from oarlock.store.queries.new_jobs import NewJob

T = TypeVar("T")

BEGIN = 1_000_000
"""The instant at which time begins, unless said otherwise."""

FRONTEND = "127.0.0.1"
_SERVER = ""  # whom the clock calls when the scheduler has to look again; no node has this name
_MOST_ROUNDS = 200


class SimulationDatabase(Protocol):
    """A database, on disk or in memory."""

    def read(self) -> AbstractContextManager[Tx]:
        """Open a transaction that only reads."""
        ...

    def write(self, change: Callable[[Tx], T]) -> T:
        """Run a change."""
        ...


class ServerCrash(Exception):
    """Raised when the simulated server crashes."""


class NeverSettles(Exception):
    """Raised when one effect causes the next for ever without time passing."""


class SimulatedCluster:
    """A server, its database and its nodes. `crash_after`: the server crashes after so many transactions.

    `beat`: the server acts every so many seconds only, and what came meanwhile shares its transactions, as on a busy
    one. By default nothing waits. `decided` is called with every decision, `written` after every transaction.
    """

    def __init__(
        self,
        database: SimulationDatabase,
        names: Sequence[str],
        config: Config,
        *,
        begin: int = BEGIN,
        beat: int = 1,
        decided: Callable[[Decision], None] = lambda _decision: None,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self.database, self.config = database, config
        self.context = StepContext(config, b"key")
        self.clock = SimulatedClock(begin)
        self.nodes = {name: SimulatedNode(name, self.clock) for name in names}
        self.frontend = SimulatedNode(FRONTEND, self.clock)
        self._all: Mapping[str, SimulatedNode] = {**self.nodes, FRONTEND: self.frontend}
        self.effects = SimulatedEffects(
            self._all, self.clock, report=self._report, schedule_again=self._schedule_again, reached=self._reached
        )
        self.crash_after: int | None = None
        self.transactions = 0
        self._watched = begin
        self._beat, self._decided, self._written = beat, decided, written
        self._forget_everything()

    def _forget_everything(self) -> None:
        self.finished, self.unreachable = FinishedAttempts(), dict[str, float]()
        self._reports: list[IncomingReport] = []
        self._plan = False
        self._next_start: int | None = None
        self._keeper = CachedPlanner(schedule.plan_settings(self.config), karma_window=self.config.karma_window)

    @property
    def now(self) -> int:
        """What the clock shows."""
        return self.clock.now

    # What people do.

    def submit_jobs(self, new: Sequence[NewJob]) -> list[Job]:
        """Submit jobs together; what follows happens when time passes, or at `settle`."""
        self._plan = True
        return self.write(lambda tx: new_jobs.add(tx, new))

    def act(self, step: Callable[[Tx], ActionOutcome]) -> list[ActionResult]:
        """Run an action of a user, carry its effects out, and return its results."""
        outcome = self.write(step)
        self.effects.carry_out(outcome.effects)
        self.settle()
        return list(outcome.answers)

    def request_pass(self) -> None:
        """Request a scheduling pass, as after a change that it was not notified of."""
        self._plan = True

    def set_state(self, node: str, state: NextState) -> None:
        """Put a node into a state, as an administrator does."""

        def ask(tx: Tx) -> None:
            ids = [resource.id for resource in resources.listed(tx) if resource.properties["network_address"] == node]
            resources.request_state(tx, ids, state)

        self.write(ask)
        self._step(lambda tx: node_states.apply(tx, self.context, now=self.now))
        self.settle()

    # What happens to nodes and clocks.

    def unplug(self, node: str) -> None:
        """Disconnect a node; what runs there goes on."""
        self.nodes[node].up = False
        self._mark_unreachable(node)

    def plug_in(self, node: str) -> None:
        """Connect a node again."""
        self.nodes[node].up = True
        self._reconnect(node)
        self.settle()

    def hang(self, node: str) -> None:
        """Make a node accept messages and not act on them."""
        self.nodes[node].hangs = True
        self._mark_unreachable(node)

    def go_on(self, node: str, *, delivered: bool) -> None:
        """End the hang of a node; messages of meanwhile are acted on now (`delivered`), or are lost."""
        self.nodes[node].go_on(delivered=delivered)
        self._reconnect(node)
        self.settle()

    def _mark_unreachable(self, node: str) -> None:
        self.unreachable.setdefault(node, self.now)
        self.effects.hosts.pop(node, None)

    def _reconnect(self, name: str) -> None:
        node = self._all[name]
        if node.up and not node.hangs:
            self.unreachable.pop(name, None)
            self._reports += node.catch_up()

    def check_nodes(self) -> None:
        """Check all nodes."""
        with self.database.read() as tx:
            effects = node_states.nodes_to_check(tx, self.config)
        self.effects.carry_out(effects)
        self.settle()

    def clock_jumps(self, seconds: int) -> None:
        """Make the clock jump; what runs on nodes lasts as long as before."""
        self.clock.jump(seconds)
        self._watched += seconds
        for node in self._all.values():
            node.clock_jumped(seconds)
        self._step(lambda tx: watch.clock_jumped(tx, self.context, now=self.now, seconds=seconds))
        self.settle()

    def receive(self, reports: Sequence[IncomingReport]) -> None:
        """Apply reports from outside."""
        self._reports += reports
        self.settle()

    # Time.

    def pass_time(self, seconds: int) -> None:
        """Advance the clock, doing everything that is due on the way."""
        self.run_to(self.now + seconds)

    def run_to(self, end: int) -> None:
        """Advance the clock to an instant."""
        self.settle()
        while (soon := self.next_event()) <= end:
            self.step(soon)
        self.clock.now = max(end, self.clock.now)

    def step(self, to: int) -> None:
        """Go to an instant, and do what is due there."""
        self.clock.now = max(self.clock.now, to)
        if self.now >= self._watched + self.config.watch_frequency:
            self._watch()
        if self._next_start is not None and self._next_start <= self.now:
            self._plan = True
        self.settle()

    def next_event(self) -> int:
        """Return when something happens next."""
        times = (self._watched + self.config.watch_frequency, self.clock.next(), self._next_start)
        soon = max(min(at for at in times if at is not None), self.now + 1)
        return -(-soon // self._beat) * self._beat

    @property
    def idle(self) -> bool:
        """Whether nothing will happen any more by itself but that the server looks around."""
        return self.clock.next() is None and self._next_start is None and not self._plan

    def all_over(self) -> bool:
        """Return whether every job has ended."""
        with self.database.read() as tx:
            return set(jobs.count(tx)) <= FINAL

    def settle(self) -> None:
        """Do everything that follows by itself at this instant."""
        for _ in range(_MOST_ROUNDS):
            self._collect_reports()
            taken, self._reports = self._reports, []
            if taken:
                self._step(lambda tx: dispatch.apply_reports(tx, self.context, taken, self.finished, now=self.now))  # noqa: B023
                self.finished.mark_written(taken, ())
            elif self._plan:
                self._plan = False
                self._schedule()
            else:
                return
        raise NeverSettles(f"at {self.now} something follows from itself for ever")

    def _collect_reports(self) -> None:
        for name in self.clock.due():
            node = self._all.get(name)
            if node is None:
                self._plan = True
                continue
            self._reports += node.reports()
            if node.cut:
                self._mark_unreachable(name)

    def _watch(self) -> None:
        self._watched = self.now
        self.effects.look_at_woken(self.config.scheduler_node_manager_wakeup_time)
        for name, node in self._all.items():
            if node.cut:
                self._reconnect(name)
        away = dict(self.unreachable)
        self._step(lambda tx: watch.check(tx, self.context, now=self.now, finished=self.finished, unreachable=away))

    def _schedule(self) -> None:
        with self.database.read() as tx:
            seen = self._keeper.read(tx, now=self.now)
        decision = self._keeper.whole(seen, now=self.now)
        self._next_start = decision.next_start
        self._decided(decision)
        hosts = dict(self.effects.hosts)
        self._step(lambda tx: schedule.apply(tx, self.context, decision, hosts, now=self.now))

    # The server.

    def write(self, change: Callable[[Tx], T]) -> T:
        """Run a change; the server may be gone after it."""
        value = self.database.write(change)
        self.transactions += 1
        self._written()
        if self.crash_after is not None and self.transactions >= self.crash_after:
            raise ServerCrash
        return value

    def restart(self) -> None:
        """Begin again with nothing but the database and the nodes."""
        self.crash_after = None
        self._forget_everything()
        self.effects.forget()
        for node in self._all.values():
            node.expected.clear()
        self._step(lambda tx: recover.begin(tx, self.context, now=self.now))
        for name in self._all:
            self._mark_unreachable(name)
            self._reconnect(name)
        self._plan = True
        self.settle()

    def _step(self, step: Callable[[Tx], list[Effect]]) -> None:
        effects = self.write(step)
        self.finished.mark_written((), effects)
        self.effects.carry_out(effects)

    def _report(self, reports: IncomingReport) -> None:
        self._reports.append(reports)

    def _schedule_again(self, at: int | None) -> None:
        if at is None:
            self._plan = True
        else:
            self.clock.call(_SERVER, at)

    def _reached(self, ids: Sequence[int]) -> None:
        hosts: dict[str, Any] = dict(self.effects.hosts)
        self.finished.boots |= {name: hello.boot for name, hello in hosts.items()}
        self._step(lambda tx: launch.begin_reached(tx, self.context, ids, hosts, now=self.now))
