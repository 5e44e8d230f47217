"""A virtual cluster: the real steps and the real scheduler on virtual nodes, driven by a virtual clock.

It does what the server does, without waiting: news in one transaction, then a plan, then time goes to the next thing
that happens. `crash_after` stops the server after so many transactions, before their instructions are carried out.
"""

from collections.abc import Callable, Sequence
from typing import Any

from oarlock.config import Config
from oarlock.job import follow, health, kill, launch, nodes, recover, schedule, suspend, watch
from oarlock.job.answer import Answer, Answered
from oarlock.job.finish import Over
from oarlock.job.instructions import (
    Check,
    Checkpoint,
    Expect,
    Forget,
    GiveBack,
    Instruction,
    Kill,
    LookAgain,
    Notify,
    Reach,
    Resume,
    Run,
    RunEpilogue,
    Signal,
    Sleep,
    Suspend,
    Wake,
)
from oarlock.job.ledger import Site
from oarlock.job.news import Checked, Hello, Missing, News, NotLaunched, ScriptEnded, Signalled, Stopped, WentOn, Woken
from oarlock.lang import request as requests
from oarlock.model.errors import NodeRefused, NodeUnreachable, OarlockError
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, Job, JobState
from oarlock.model.resource import NextState
from oarlock.node.messages import SEEN, UNKNOWN
from oarlock.store import accounting, attempts, events, jobs, properties, resources
from oarlock.store.database import Database
from oarlock.store.tx import Tx
from tests.scenarios.nodes import VirtualNode

BEGIN = 1_000_000


class Crash(Exception):
    """The server is gone."""


class Cluster:
    """Nodes `node1`…, two cores each unless said otherwise."""

    def __init__(self, database: Database, *, nodes: int = 2, cores: int = 2, **settings: Any) -> None:
        self.database = database
        self.config = Config(**settings)
        self.site = Site(self.config, b"key")
        self.now = BEGIN
        self.nodes = {f"node{n}": VirtualNode(f"node{n}") for n in range(1, nodes + 1)}
        self.frontend = VirtualNode("127.0.0.1")
        self.crash_after: int | None = None
        self.woken: list[tuple[str, ...]] = []
        self.told: list[tuple[int, str, str]] = []
        self.slept: list[tuple[str, ...]] = []
        self.scripts: dict[str, EventType] = {}
        self._wrote = 0
        self._watched = BEGIN
        self._forget_everything()
        database.write(lambda tx: self._add(tx, cores))

    def _forget_everything(self) -> None:
        self.over, self.hosts, self.unreachable = Over(), dict[str, Hello](), dict[str, float]()
        self._news: list[News] = []
        self._plan = False
        self._next_start: int | None = None
        self._later: list[int] = []
        self._waking: dict[str, int] = {}

    def _add(self, tx: Tx, cores: int) -> None:
        properties.add(tx, "core", int)
        places = [(name, core) for name in self.nodes for core in range(cores)]
        rows = [{"network_address": name, "cpuset": core, "core": n} for n, (name, core) in enumerate(places)]
        resources.add(tx, rows, at=self.now)

    # What people do.

    def submit(self, command: str = "sleep 10", asked: str = "/core=1,walltime=1", **fields: Any) -> int:
        after = fields.pop("after", ())
        given = {"state": JobState.WAITING, "user": "ada", "queue": "default", "submitted": self.now, **fields}
        new = jobs.New(Job(id=0, command=command, **given), requests.parse([asked]), after)
        [job] = self.write(lambda tx: jobs.add(tx, [new]))
        self._plan = True
        self.settle()
        return job.id

    def kill(self, *ids: int, **more: Any) -> list[Answer]:
        return self._wish(lambda tx: kill.ask(tx, self.site, ids, by="ada", now=self.now, **more))

    def hold(self, *ids: int, running: bool = False) -> list[Answer]:
        return self._wish(lambda tx: suspend.hold(tx, self.site, ids, by="ada", now=self.now, running=running))

    def resume(self, *ids: int) -> list[Answer]:
        return self._wish(lambda tx: suspend.resume(tx, self.site, ids, by="ada", now=self.now))

    def signal(self, number: int, *ids: int) -> list[Answer]:
        return self._wish(lambda tx: kill.signal(tx, self.site, ids, number, by="ada", now=self.now))

    def set_state(self, node: str, state: NextState) -> None:
        ids = [one["resource_id"] for one in self.resources() if one["network_address"] == node]
        self.write(lambda tx: resources.ask_state(tx, ids, state))
        self._step(lambda tx: nodes.apply(tx, self.site, now=self.now))
        self.settle()

    def unplug(self, node: str) -> None:
        self.nodes[node].up = False
        self.unreachable[node] = self.now
        self.hosts.pop(node, None)

    def plug_in(self, node: str) -> None:
        self.nodes[node].up = True
        self.unreachable.pop(node, None)
        self.hear(self.nodes[node].catch_up())

    def check_nodes(self) -> None:
        with self.database.read() as tx:
            self._carry_out(health.due(tx, self.config))
        self.settle()

    def clock_jumps(self, seconds: int) -> None:
        """Let the clock show another time; what runs on nodes lasts as long as before."""
        self.now, self._watched = self.now + seconds, self._watched + seconds
        for node in self.nodes.values():
            node.clock_jumps(seconds)
        self._step(lambda tx: watch.clock_jumped(tx, self.site, now=self.now, seconds=seconds))
        self.settle()

    def hear(self, news: Sequence[News]) -> None:
        self._news += news
        self.settle()

    # What is seen.

    def job(self, job_id: int) -> Job:
        with self.database.read() as tx:
            return jobs.get(tx, job_id)

    def story(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            return [str(state) for state, *_ in jobs.story(tx, job_id)]

    def story_why(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            return [why for *_, why in jobs.story(tx, job_id)]

    def events(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            return [str(noted.event.type) for noted in events.of_jobs(tx, [job_id])]

    def resources(self) -> list[Any]:
        with self.database.read() as tx:
            return [one.properties for one in resources.listed(tx)]

    def states(self) -> dict[str, set[str]]:
        seen: dict[str, set[str]] = {}
        for one in self.resources():
            seen.setdefault(one["network_address"], set()).add(one["state"])
        return seen

    def used(self) -> int:
        with self.database.read() as tx:
            return sum(row.consumption for row in accounting.listed(tx) if row.kind == "USED")

    def attempts(self, job_id: int) -> list[attempts.Attempt]:
        with self.database.read() as tx:
            return attempts.of_jobs(tx, [job_id])

    def placed(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            given = jobs.resources_of(tx, [job_id]).get(job_id, [])
            return sorted({str(one.properties["network_address"]) for one in resources.listed(tx, given)})

    # Time.

    def pass_time(self, seconds: int) -> None:
        """Let time pass, doing everything that is due on the way."""
        end = self.now + seconds
        while (soon := self._next()) <= end:
            self.now = max(self.now, soon)
            if self.now >= self._watched + self.config.watch_frequency:
                self._watched = self.now
                self._look_at_woken()
                away = dict(self.unreachable)
                self._step(
                    lambda tx: watch.look(tx, self.site, now=self.now, over=self.over, unreachable=away)  # noqa: B023
                )
            due = [at for at in self._times() if at <= self.now]
            self._plan = self._plan or bool(due)
            self._later = [at for at in self._later if at > self.now]
            self.settle()
        self.now = end

    def _look_at_woken(self) -> None:
        begun = self.now - self.config.scheduler_node_manager_wakeup_time
        up = frozenset(name for name in self._waking if self.nodes[name].up)
        late = {name: "unplugged" for name, since in self._waking.items() if since <= begun and name not in up}
        self._waking = {name: since for name, since in self._waking.items() if name not in up | late.keys()}
        self._news += [Woken(up, late)] if up or late else []

    def run_until(self, job_id: int, state: JobState, *, within: int = 10_000) -> None:
        end = self.now + within
        while self.job(job_id).state is not state:
            assert self.now < end, f"job {job_id} is {self.story(job_id)}, {self.events(job_id)}"
            self.pass_time(max(self._next() - self.now, 1))

    def finish(self, within: int = 10_000) -> None:
        """Run until every job is over."""
        end = self.now + within
        while not self.all_over():
            assert self.now < end, "some job is never over"
            self.pass_time(max(self._next() - self.now, 1))

    def all_over(self) -> bool:
        with self.database.read() as tx:
            return set(jobs.count(tx)) <= FINAL

    def _next(self) -> int:
        times = [self._watched + self.config.watch_frequency]
        times += [soon for node in (*self.nodes.values(), self.frontend) if (soon := node.next_event()) is not None]
        times += self._times()
        return max(min(times), self.now + 1)

    def _times(self) -> list[int]:
        """Say when the scheduler has to look again."""
        return [*self._later, *([] if self._next_start is None else [self._next_start])]

    def settle(self) -> None:
        """Do everything that follows by itself at this instant."""
        for _ in range(100):
            for node in (*self.nodes.values(), self.frontend):
                self._news += node.news(self.now)
            taken, self._news = self._news, []
            if taken:
                self._follow(taken)
            if self._plan:
                self._plan = False
                self._schedule()
            elif not taken:
                return
        raise AssertionError("it never settles")

    def _follow(self, taken: list[News]) -> None:
        self._step(lambda tx: follow.follow(tx, self.site, taken, self.over, now=self.now))

    def _schedule(self) -> None:
        how = schedule.settings(self.config)
        with self.database.read() as tx:
            seen = schedule.read(tx, how, karma_window=self.config.karma_window, now=self.now)
        decision = schedule.decide(seen, how, now=self.now)
        self._next_start = decision.next_start
        self._step(lambda tx: schedule.apply(tx, self.site, decision, dict(self.hosts), now=self.now))

    # The server.

    def write(self, change: Callable[[Tx], Any]) -> Any:
        value = self.database.write(change)
        self._wrote += 1
        if self.crash_after is not None and self._wrote >= self.crash_after:
            raise Crash
        return value

    def restart(self) -> None:
        """Begin again with nothing but the database and the nodes."""
        self.crash_after = None
        self._forget_everything()
        for node in (*self.nodes.values(), self.frontend):
            node.expected.clear()
        self._step(lambda tx: recover.begin(tx, self.site, now=self.now))
        for node in (*self.nodes.values(), self.frontend):
            if node.up:
                self._news += node.catch_up()
        self._plan = True
        self.settle()

    def _step(self, step: Callable[[Tx], list[Instruction]]) -> None:
        self._carry_out(self.write(step))

    def _wish(self, step: Callable[[Tx], Answered]) -> list[Answer]:
        answered = self.write(step)
        self._carry_out(answered.instructions)
        self.settle()
        return list(answered.answers)

    # Errands.

    def _node(self, name: str) -> VirtualNode:
        return self.frontend if name == self.frontend.name else self.nodes[name]

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for one in instructions:
            self._do(one)

    def _do(self, one: Instruction) -> None:
        match one:
            case LookAgain(at=None):
                self._plan = True
            case LookAgain(at=int(at)):
                self._later.append(at)
            case Reach():
                self._reach(one)
            case Run():
                self._run(one)
            case Expect():
                self._node(one.node).expected.add((one.job, one.attempt))
            case Kill():
                self._kill(one)
            case Suspend() | Resume() | Checkpoint():
                self._tell_running(one)
            case Forget():
                self._each((one.node,), lambda node: node.forget(one.attempts))
            case GiveBack():
                self._each(one.nodes, lambda node: node.end(one.job, one.attempt, self.now))
            case _:
                self._do_rare(one)

    def _tell_running(self, one: Suspend | Resume | Checkpoint) -> None:
        key = (one.job, one.attempt)
        match one:
            case Checkpoint():
                failed = self._each((one.node,), lambda node: node.checkpoint(*key, self.now))
                self._news.append(Signalled(*key, "; ".join(failed.values())))
            case Suspend():
                failed = self._each(one.nodes, lambda node: node.suspend(*key, self.now))
                self._news.append(Stopped(*key, tuple(failed), "; ".join(failed.values())))
            case Resume():
                failed = self._each(one.nodes, lambda node: node.resume(*key, self.now))
                self._news.append(WentOn(*key, tuple(failed), "; ".join(failed.values())))

    def _kill(self, one: Kill) -> None:
        try:
            self._node(one.node).kill(one.job, one.attempt, self.now)
        except NodeRefused as error:
            if error.word == UNKNOWN:
                self._news.append(Missing(one.node, one.job, one.attempt))
        except NodeUnreachable:
            pass

    def _do_rare(self, one: Instruction) -> None:
        match one:
            case RunEpilogue():
                self._news.append(ScriptEnded(one.job, one.attempt, self.scripts.get("epilogue"), "on purpose"))
            case Check():
                silent = self._each(one.nodes, lambda node: node.ping())
                self._news.append(Checked(frozenset(one.nodes) - silent.keys(), silent))
            case Wake():
                self.woken.append(one.nodes)
                self._waking |= {name: self._waking.get(name, self.now) for name in one.nodes}
            case Sleep():
                self.slept.append(one.nodes)
                for name in one.nodes:
                    self.nodes[name].up = False
            case Notify():
                self.told.append((one.job, one.tag, one.how))
            case Signal():
                pass

    def _each(self, names: Sequence[str], verb: Callable[[VirtualNode], None]) -> dict[str, str]:
        failed = {}
        for name in names:
            try:
                verb(self._node(name))
            except NodeRefused as error:
                if error.word.isupper():
                    failed[name] = str(error)
            except OarlockError as error:
                failed[name] = str(error)
        return failed

    def _reach(self, one: Reach) -> None:
        silent = {}
        for name in one.nodes:
            try:
                self.hosts[name] = self._node(name).hello()
                self.over.boots[name] = self.hosts[name].boot
            except NodeUnreachable as error:
                silent[name] = str(error)
        if silent:
            event = EventType.PING_CHECKER_NODE_SUSPECTED
            self._news += [NotLaunched(job, 0, event, "; ".join(silent.values()), tuple(silent)) for job in one.jobs]
        else:
            self._step(lambda tx: launch.go_on(tx, self.site, one.jobs, dict(self.hosts), now=self.now))

    def _run(self, run: Run) -> None:
        bad = self.scripts.get("prologue")
        failed = {}
        if bad is None:
            failed = self._launch([*run.others, run.first])
        key = (run.first[1].job, run.first[1].attempt)
        if bad is not None or failed:
            event = bad or next(iter(failed.values()))
            self._each([name for name, _ in run.others], lambda node: node.end(*key, self.now))
            self._news.append(NotLaunched(*key, event, "on purpose", tuple(failed)))

    def _launch(self, places: Sequence[Any]) -> dict[str, EventType]:
        for name, told in places:
            try:
                self._node(name).launch(told, self.now)
            except NodeUnreachable:
                return {name: EventType.PING_CHECKER_NODE_SUSPECTED}
            except NodeRefused as error:
                self.hosts.pop(name, None)
                return {} if error.word == SEEN else {name: EventType.PING_CHECKER_NODE_SUSPECTED}
        return {}
