"""A simulated cluster: the real steps and the real scheduler on simulated nodes, driven by a simulated clock.

It carries out what the server's reactor decides, without waiting: what happens at one instant is applied in one
transaction, then planned; then the clock advances to the next event. It is deterministic: the same calls always give
the same history.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from oarlock.config import Config
from oarlock.job.cluster import node_states
from oarlock.job.plan_cache import CachedPlanner
from oarlock.job.reactor import watch
from oarlock.job.reactor.effect_runner import EffectRunner
from oarlock.job.reactor.passes import PassSchedule
from oarlock.job.reactor.reactor import Change, Reactor
from oarlock.job.reactor.steps import Periodic, QuickPass, Step, WholePass
from oarlock.job.run import recover
from oarlock.job.run.effects import ActionOutcome, ActionResult
from oarlock.job.run.reports import IncomingReport
from oarlock.job.run.starting import schedule
from oarlock.job.run.starting.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.errors import DatabaseAway
from oarlock.model.job import FINAL, Job
from oarlock.model.resource import NextState
from oarlock.simulate.effects import SimulatedPlatform
from oarlock.simulate.nodes import SimulatedClock, SimulatedNode
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.job.new_jobs import NewJob
from oarlock.store.queries.site import generation

T = TypeVar("T")

BEGIN = 1_000_000
"""The instant at which time begins, unless said otherwise."""

FRONTEND = "127.0.0.1"
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
    `depths`: least and most jobs of a queue that a quick pass looks at; by default every pass looks at all.
    `work`: seconds (a part of one) that a transaction or a pass takes.
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
        depths: tuple[int, int] | None = None,
        work: float = 0.0,
    ) -> None:
        self.database, self.config = database, config
        self.context = StepContext(config, b"key")
        self.clock = SimulatedClock(begin)
        self.nodes = {name: SimulatedNode(name, self.clock, self._connect) for name in names}
        self.frontend = SimulatedNode(FRONTEND, self.clock, self._connect)
        self._all: Mapping[str, SimulatedNode] = {**self.nodes, FRONTEND: self.frontend}
        self.crash_after: int | None = None
        self.database_away = False
        """Whether the database accepts nothing, as while its disk is full."""
        self.survives: tuple[type[Exception], ...] = (DatabaseAway,)
        """Errors that end a step and not the simulation; a server survives any."""
        self.transactions = 0
        self._watched = self.clock.moment.steady
        self._beat, self._decided, self._written = beat, decided, written
        self._depths, self._work = depths, work
        self.reactor = self._new_reactor()
        self.platform = SimulatedPlatform(self._all, self.clock, self.reactor)
        self.effects = EffectRunner(self.platform, self.reactor)
        database.write(lambda tx: recover.begin(tx, self.context, now=begin))
        with database.read() as tx:
            for node in self._all.values():
                node.instance = facts.get(tx, "identity") or ""

    def _new_reactor(self) -> Reactor:
        self._settings = schedule.plan_settings(self.config)
        self._keeper = CachedPlanner(self._settings, karma_window=self.config.karma_window)
        passes = PassSchedule(self._depths or (1, 1), longest_pause=None)
        periods = {Periodic.WATCH: float(self.config.watch_frequency)}
        return Reactor(self.context, periods, began=self._watched, passes=passes)

    @property
    def now(self) -> int:
        """What the clock shows."""
        return self.clock.now

    # What people do.

    def submit_jobs(self, new: Sequence[NewJob]) -> list[Job]:
        """Submit jobs together; what follows happens when time passes, or at `settle`."""
        self.reactor.request_pass()
        return self.write(lambda tx: new_jobs.add(tx, new))

    def act(self, step: Callable[[Tx], ActionOutcome]) -> list[ActionResult]:
        """Run an action of a user, carry its effects out, and return its results."""
        outcome = self.write(step)
        self.effects.run_effects(outcome.effects)
        self.settle()
        return list(outcome.answers)

    def request_pass(self) -> None:
        """Request a scheduling pass, as after a change that it was not notified of."""
        self.reactor.request_pass()

    def set_state(self, node: str, state: NextState) -> None:
        """Put a node into a state, as an administrator does."""

        def ask(tx: Tx) -> None:
            ids = [resource.id for resource in resources.listed(tx) if resource.properties["network_address"] == node]
            resources.request_state(tx, ids, state)

        self.write(ask)
        self._change([lambda tx: node_states.apply(tx, self.context, now=self.now)])
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

    def _mark_unreachable(self, name: str) -> None:
        self._all[name].connected = False
        self.reactor.connection_lost(name, now=self.now)

    def _reconnect(self, name: str) -> None:
        node = self._all[name]
        if node.up and not node.hangs:
            self._connect(node)

    def _connect(self, node: SimulatedNode) -> None:
        node.connected = True
        self.reactor.connection_made(node.name, node.greeting())
        self._receive(node.catch_up())

    def _receive(self, reports: Iterable[IncomingReport]) -> None:
        for report in reports:
            if self.effects.is_expected(report):
                self.reactor.receive(report)

    def check_nodes(self) -> None:
        """Check all nodes."""
        with self.database.read() as tx:
            effects = node_states.nodes_to_check(tx, self.config)
        self.effects.run_effects(effects)
        self.settle()

    def clock_jumps(self, seconds: int) -> None:
        """Make the clock jump; what runs on nodes lasts as long as before."""
        self.clock.jump(seconds)
        for node in self._all.values():
            node.clock_jumped(seconds)
        self._change([lambda tx: watch.clock_jumped(tx, self.context, now=self.now, seconds=seconds)])
        self.settle()

    def receive(self, reports: Sequence[IncomingReport]) -> None:
        """Apply reports from outside."""
        self._receive(reports)
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
        self.clock.go_to(end)

    def step(self, to: int) -> None:
        """Go to an instant, and do what is due there."""
        self.clock.go_to(to)
        self._run_due()
        self.settle()

    def _run_due(self) -> None:
        for step in self.reactor.due(self.clock.moment):
            self._run(step)

    def next_event(self) -> int:
        """Return when something happens next."""
        soon = [self.now + math.ceil(self.reactor.wake_in(self.clock.moment) or 0)]
        if (call := self.clock.next()) is not None:
            soon.append(call)
        return -(-max(min(soon), self.now + 1) // self._beat) * self._beat

    @property
    def idle(self) -> bool:
        """Whether nothing will happen any more by itself but that the server looks around."""
        return self.clock.next() is None and self.reactor.passes.idle

    def all_over(self) -> bool:
        """Return whether every job has ended."""
        with self.database.read() as tx:
            return set(jobs.count(tx)) <= FINAL

    def settle(self) -> None:
        """Do everything that follows by itself at this instant, or within what is left of its second."""
        for _ in range(_MOST_ROUNDS):
            self._collect_reports()
            at = self.clock.moment
            step = self.reactor.next_step(at)
            if step is not None:
                self._run(step)
            elif self._work and self.clock.spend(self.reactor.wake_in(at) or 0.0):
                self._run_due()
            else:
                return
        raise NeverSettles(f"at {self.now} something follows from itself for ever")

    def _collect_reports(self) -> None:
        for name in self.clock.due():
            node = self._all[name]
            self._receive(node.reports())
            if node.cut:
                self._mark_unreachable(name)

    def _run(self, step: Step | Periodic) -> None:
        """Carry a step out, and note how it ended, as the server's loops do."""
        try:
            if isinstance(step, QuickPass | WholePass):
                decision = self._plan(step)
                self._change(self.reactor.apply_decision(decision, lambda: self.now))
                self.reactor.planned(step, decision, self.clock.moment, cost=self._work)
            else:
                if step is Periodic.WATCH:
                    self._look_around()
                self._change(self.reactor.changes(step, lambda: self.now))
                self.reactor.ended(step, self.clock.moment)
        except self.survives as error:
            self.reactor.failed(step, error, self.clock.moment)

    def _look_around(self) -> None:
        self._watched = self.clock.moment.steady
        self.platform.look_at_woken(self.config)
        for name, node in self._all.items():
            if node.cut:
                self._reconnect(name)

    def _plan(self, step: QuickPass | WholePass) -> Decision:
        self.clock.spend(self._work)
        if isinstance(step, QuickPass) and self._depths is not None:
            decision = self._plan_first(step)
        else:
            with self.database.read() as tx:
                seen = self._keeper.read(tx, now=self.now)
            make = self._keeper.starts if isinstance(step, WholePass) and not step.dates else self._keeper.whole
            decision = make(seen, now=self.now)
        self._decided(decision)
        return decision

    def _plan_first(self, step: QuickPass) -> Decision:
        window = self.config.karma_window
        with self.database.read() as tx:
            seen = schedule.read(
                tx, self._settings, karma_window=window, now=self.now, depth=step.depth, arrays=step.arrays
            )
        return schedule.decide(seen, self._settings, now=self.now)

    # The server.

    def write(self, change: Callable[[Tx], T]) -> T:
        """Run a change; the server may be gone after it."""
        if self.database_away:
            raise DatabaseAway("The disk of the database is full.", hint="Make room.")
        self.clock.spend(self._work)
        value = self.database.write(change)
        self.transactions += 1
        self._written()
        if self.crash_after is not None and self.transactions >= self.crash_after:
            raise ServerCrash
        return value

    def restart(self, *, restored: bool = False) -> None:
        """Begin again with nothing but the database and the nodes. `restored`: an older state of it was put back."""
        self.crash_after = None
        if restored:
            self.write(lambda tx: generation.begin(tx, "the database was restored", now=self.now))
        self.reactor = self._new_reactor()
        self.platform.restart(self.reactor)
        self.effects = EffectRunner(self.platform, self.reactor)
        for node in self._all.values():
            node.expected.clear()
        self._change([lambda tx: recover.begin(tx, self.context, now=self.now)])
        for name in self._all:
            self._mark_unreachable(name)
            self._reconnect(name)
        self.reactor.request_pass()
        self.settle()

    def _change(self, changes: Iterable[Change]) -> None:
        """Run transactions, each followed by its effects."""
        for change in changes:
            effects = self.write(change)
            self.reactor.written(effects)
            self.effects.run_effects(effects)
