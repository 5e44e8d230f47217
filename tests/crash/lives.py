"""Short lives of a cluster that are lived again and again, with a fault at one more failpoint each time.

Nodes and clock are simulated, the server's steps and the database are real. A life ends when all its jobs are over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oarlock.failpoints import Died, armed
from oarlock.job.admission import submit
from oarlock.job.admission.feasibility import ClusterResourcesCache
from oarlock.job.check.run import check
from oarlock.job.run import kill, suspend
from oarlock.lang import request as requests
from oarlock.lang.rules import RuleAcceptance
from oarlock.model.errors import DatabaseRefused
from oarlock.model.event import EventType
from oarlock.model.job import Job
from oarlock.model.submission import Submission
from oarlock.simulate import invariants
from oarlock.simulate.cluster import BEGIN
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.usage import history
from tests.scenarios.cluster import Cluster

LONGEST = 3000  # seconds until every job must be over
RETRIES = 20


@dataclass(frozen=True)
class Asked:
    """What a user does, and when (seconds after the beginning); what is refused is asked for again."""

    at: int
    what: Callable[["Life"], object]


@dataclass
class Life:
    """One life of a cluster with what its users do, and the numbers of the jobs that they were told."""

    cluster: Cluster
    told: dict[str, list[int]] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    deaths: int = 0

    def live(self, asked: Sequence[Asked]) -> None:
        """Let users do what they do, then wait until all jobs are over; what was left on nodes ends, too."""
        for one in asked:
            self._survive(lambda: self.cluster.run_to(BEGIN + one.at))  # noqa: B023
            self._insist(one.what)
        for _ in range(LONGEST // 10):
            if self.cluster.all_over():
                break
            self._survive(lambda: self.cluster.pass_time(10))
        else:
            raise AssertionError(f"some job is never over: {self.end()}")
        self._survive(lambda: self.cluster.pass_time(120))

    def _insist(self, what: Callable[["Life"], object]) -> None:
        """Do as a command does that gets no answer, or that is told to ask again."""
        for _ in range(RETRIES):
            try:
                what(self)
            except Died:
                self._start_again()
            except DatabaseRefused:
                self._survive(lambda: self.cluster.pass_time(1))
            else:
                return
        raise AssertionError("a user is never answered")

    def _survive(self, act: Callable[[], object]) -> None:
        """Do something, to its end; a server that dies of it is started again."""
        for _ in range(RETRIES):
            try:
                return void(act())
            except Died:
                self._start_again()
        raise AssertionError("the server dies for ever")

    def _start_again(self) -> None:
        for _ in range(RETRIES):
            self.deaths += 1
            try:
                return self.cluster.restart()
            except (Died, DatabaseRefused):
                continue
        raise AssertionError("the server cannot be started")

    # What users do.

    def submit(self, name: str, command: str, asked: str = "/core=1,walltime=0:2:0", **fields: Any) -> None:
        """Submit with a request id; a repeated request must be told the same jobs."""
        cluster = self.cluster

        def store(tx: Tx) -> list[Job]:
            submission = Submission(user="ada", uid=1001, command=command, request=requests.parse([asked]), **fields)
            there = ClusterResourcesCache(cluster.config.scheduler_resource_order).now(tx)
            accepted = RuleAcceptance(submission)
            return submit.submit(tx, accepted, cluster=there, config=cluster.config, now=cluster.now, request_id=name)

        ids = [job.id for job in cluster.write(store)]
        assert self.told.setdefault(name, ids) == ids
        cluster.request_pass()
        cluster.settle()

    def kill(self, name: str) -> None:
        """Delete the jobs of a request."""
        self._act(lambda tx: kill.request(tx, self.cluster.context, self.told[name], by="ada", now=self.cluster.now))

    def hold(self, name: str, *, running: bool = False) -> None:
        """Hold the jobs of a request."""
        ids, context = self.told[name], self.cluster.context
        self._act(lambda tx: suspend.hold(tx, context, ids, by="ada", now=self.cluster.now, running=running))

    def resume(self, name: str) -> None:
        """Resume the jobs of a request, as soon as they are suspended."""
        ids, context = self.told[name], self.cluster.context
        while self._is_suspended_later(ids):
            self.cluster.pass_time(1)
        self._act(lambda tx: suspend.resume(tx, context, ids, by="ada", now=self.cluster.now))

    def _is_suspended_later(self, ids: Sequence[int]) -> bool:
        """Whether a node has still to hear that one of these jobs is to be suspended."""
        with self.cluster.database.read() as tx:
            pending = [noted.event for noted in events.to_check(tx)]
        return any(event.type is EventType.HOLD_RUNNING_JOB and event.job in ids for event in pending)

    def _act(self, step: Callable[[Tx], Any]) -> None:
        self.cluster.act(step)

    # What came of it.

    def end(self) -> list[tuple[Any, ...]]:
        """Return how each job ended, in the order of their numbers, which may have gaps."""
        with self.cluster.database.read() as tx:
            everything = history.read_full_history(tx)
        ran = [job for node in self.cluster.nodes.values() for job, _ in node.ran]
        return [
            (str(job.state), job.exit_code, bool(job.resubmit_of), len(everything.resources.get(number, ())) > 0,
             ran.count(number))
            for number, job in sorted(everything.jobs.items())
        ]  # fmt: skip

    def problems(self) -> list[str]:
        """Return what the check and the invariants of histories find."""
        with self.cluster.database.read() as tx:
            found = [finding.sentence for finding in check(tx, self.cluster.config)]
            everything = history.read_full_history(tx)
        return [*found, *invariants.broken(everything, self.cluster.nodes.values())]


def void(_value: object) -> None:
    """Return nothing."""


WHOLE = "/network_address=2/core=2,walltime=0:2:0"
LOW = {"queue": "besteffort", "types": ("besteffort", "idempotent")}
SCENARIOS: dict[str, tuple[Asked, ...]] = {
    "batch": (
        Asked(0, lambda life: life.submit("one", "sleep 30")),
        Asked(0, lambda life: life.submit("fails", "sleep 5 exit 3")),
        Asked(5, lambda life: life.submit("wide", "sleep 20", WHOLE)),
        Asked(6, lambda life: life.submit("after", "sleep 5", after=tuple(life.told["one"]))),
    ),
    "array": (
        Asked(0, lambda life: life.submit("array", "sleep 20", array=tuple("12345"))),
        Asked(10, lambda life: life.submit("late", "sleep 5")),
    ),
    "reservation": (
        Asked(0, lambda life: life.submit("reserved", "sleep 30", WHOLE, reservation=(BEGIN + 60, None))),
        Asked(1, lambda life: life.submit("short", "sleep 10", "/core=1,walltime=0:0:40")),
        Asked(2, lambda life: life.submit("long", "sleep 10", "/core=1,walltime=0:10:0")),
    ),
    "best effort": (
        Asked(0, lambda life: life.submit("low", "sleep 60", WHOLE, **LOW)),
        Asked(35, lambda life: life.submit("high", "sleep 20", WHOLE)),
    ),
    "suspend": (
        Asked(0, lambda life: life.submit("first", "sleep 60", WHOLE)),
        Asked(10, lambda life: life.hold("first", running=True)),
        Asked(15, lambda life: life.submit("second", "sleep 20", WHOLE)),
        Asked(25, lambda life: life.resume("first")),
        Asked(100, lambda life: life.submit("third", "sleep 5")),
        Asked(100, lambda life: life.hold("third")),
        Asked(110, lambda life: life.resume("third")),
    ),
    "delete": (
        Asked(0, lambda life: life.submit("runs", "sleep 100", WHOLE)),
        Asked(1, lambda life: life.submit("waits", "sleep 10", WHOLE, array=tuple("12"))),
        Asked(10, lambda life: life.kill("waits")),
        Asked(12, lambda life: life.kill("runs")),
        Asked(13, lambda life: life.submit("next", "sleep 5")),
    ),
}  # fmt: skip


def live(database: Any, name: str, act: Callable[[Life, str, str, int], None]) -> Life:
    """Live a life; `act` is called at each failpoint with its name, the node and how many were passed."""
    cluster = Cluster(database, nodes=2, cores=2, watch_frequency=10)
    life = Life(cluster)

    def passing(point: str, node: str) -> None:
        life.passed.append(point)
        act(life, point, node, len(life.passed))

    with armed(passing):
        life.live(SCENARIOS[name])
    return life
