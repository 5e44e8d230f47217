"""Scenarios: days of a cluster on which everything goes wrong that can, each made from one number, its seed.

The same seed always gives the same day, to the last event; so a failure is one number to write down.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oarlock.config import Config
from oarlock.job.check.run import check
from oarlock.job.run import kill, suspend
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState, Reservation
from oarlock.model.job_type import JobType
from oarlock.model.resource import ResourceState, Value
from oarlock.model.submission import ResourceRequest
from oarlock.simulate import invariants
from oarlock.simulate.cluster import ServerCrash, SimulatedCluster
from oarlock.store.engine.opening import MemoryDatabase
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.planning import plans
from oarlock.store.queries.usage import history

_FAILURES = ("PROLOGUE_ERROR", "CPUSET_ERROR", "CANNOT_CREATE_TMP_DIRECTORY", "SSH_TRANSFER_TIMEOUT")
_LONGEST = 1000  # beats after the last arrival within which everything must be over


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    """How large the cluster is, how much arrives, and how likely something goes wrong in a beat (`beat` seconds).

    `troubles` befall a node: it is cut off, hangs, is started again, answers late, loses words, fails every launch.
    `wishes` are users who kill, hold or resume. `jumps` are of the clock, `crashes` of the server. `reservations` is
    how likely a job asks for a date. `outages` are beats in which the database accepts nothing. `depths` and `work` are
    the cluster's: with them a server has more to do than it can do at once. `checked`: what `oarlock
    check` looks at is looked at in the end, too.
    """

    jobs: int = 60
    nodes: int = 4
    cores: int = 4
    arrivals: int = 3
    beat: int = 10
    troubles: float = 0.3
    wishes: float = 0.2
    jumps: float = 0.02
    crashes: float = 0.05
    reservations: float = 0.0
    outages: float = 0.0
    depths: tuple[int, int] | None = None
    work: float = 0.0
    checked: bool = True


LARGE_CLUSTER = ScenarioSettings(
    jobs=4000,
    nodes=32,
    cores=16,
    arrivals=200,
    beat=60,
    troubles=0.1,
    wishes=0.2,
    jumps=0,
    crashes=0,
    checked=False,
)
"""A large cluster on a day on which little goes wrong."""


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """What a seed gave: how many jobs lived, all that happened, and what should not have."""

    seed: int
    lives: int
    trace: tuple[str, ...]
    problems: tuple[str, ...]

    def summary(self) -> str:
        """Return how to reproduce a failure."""
        return f"seed {self.seed}: " + "; ".join(self.problems[:5])


def run(seed: int, settings: ScenarioSettings = ScenarioSettings()) -> ScenarioOutcome:
    """Run one scenario."""
    with MemoryDatabase() as database:
        return _Scenario(database, seed, settings).pass_by()


@dataclass(slots=True)
class _Scenario:
    """One scenario under way."""

    database: MemoryDatabase
    seed: int
    settings: ScenarioSettings
    chance: random.Random = field(init=False)
    dates: random.Random = field(init=False)  # apart from `chance`, so that days without reservations stay as they were
    cluster: SimulatedCluster = field(init=False)
    broken: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    submitted: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        self.chance = random.Random(self.seed)  # noqa: S311  (not a secret: a seed)
        self.dates = random.Random(~self.seed)  # noqa: S311
        names = [f"node{n}" for n in range(1, settings.nodes + 1)]
        config = Config(watch_frequency=settings.beat)
        self.cluster = SimulatedCluster(
            self.database,
            names,
            config,
            beat=settings.beat,
            written=self._look_at_promises,
            depths=settings.depths,
            work=settings.work,
        )
        self.database.write(self._add_nodes)

    def _add_nodes(self, tx: Tx) -> None:
        properties.add(tx, "core", int)
        places = [(name, core) for name in self.cluster.nodes for core in range(self.settings.cores)]
        rows: list[dict[str, Value]] = [
            {"network_address": name, "cpuset": core, "core": n} for n, (name, core) in enumerate(places)
        ]
        resources.add(tx, rows, at=self.cluster.now)

    def _look_at_promises(self) -> None:
        if self.settings.reservations:
            with self.database.read() as tx:
                self.broken += invariants.overlapping(plans.reserved_places(tx))

    def pass_by(self) -> ScenarioOutcome:
        problems = self.broken
        while self.submitted < self.settings.jobs:
            self._safely(self._arrive)
            self._befall()
            self._pass_beat()
        self._heal()
        for _ in range(_LONGEST):
            if self.cluster.all_over():
                break
            self._safely(lambda: self.cluster.pass_time(self.settings.beat))
            self._heal()
        else:
            problems.append("some jobs are never over")
        # What was left on nodes by launches that nobody waited for ends with its walltime.
        self._safely(lambda: self.cluster.pass_time(400))
        with self.database.read() as tx:
            all_of_it = history.read_full_history(tx)
            problems += (
                [finding.sentence for finding in check(tx, self.cluster.config)] if self.settings.checked else []
            )
        problems += invariants.broken(all_of_it, self.cluster.nodes.values())
        if len(all_of_it.jobs) < self.submitted:
            problems.append(f"{self.submitted - len(all_of_it.jobs)} jobs were lost")
        trace = (*self.trace, *_job_histories(all_of_it))
        return ScenarioOutcome(self.seed, len(all_of_it.jobs), trace, tuple(problems))

    def _pass_beat(self) -> None:
        if self.settings.outages and self.dates.random() < self.settings.outages:
            self._note("the database accepts nothing")
            self.cluster.database_away = True
        self._safely(lambda: self.cluster.pass_time(self.settings.beat))
        self.cluster.database_away = False

    def _safely(self, act: Callable[[], object]) -> None:
        """Do something; a server that dies of it is started again."""
        try:
            act()
        except ServerCrash:
            self._note("the server is started again")
            self.cluster.restart()

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.cluster.now} {what}")

    def _happens(self, probability: float) -> bool:
        return self.chance.random() < probability

    # What arrives.

    def _arrive(self) -> None:
        count = self.chance.randint(0, 2 * self.settings.arrivals)
        new = [self._job() for _ in range(count)]
        self.submitted += count
        if new:
            self.cluster.submit_jobs(new)

    def _job(self) -> new_jobs.NewJob:
        pick = self.chance
        lasts = pick.randint(1, 120)
        walltime = lasts + 60 if pick.random() < 0.9 else max(1, lasts - 10)
        command = f"sleep {lasts}" + (f" exit {pick.randint(1, 9)}" if pick.random() < 0.1 else "")
        types = (str(JobType.BESTEFFORT),) if pick.random() < 0.1 else ()
        request = pick.choice(("/core=1", "/core=1", "/core=2", "/core=3", "/network_address=2/core=1"))
        after = (pick.randint(1, self.submitted),) if self.submitted and pick.random() < 0.05 else ()
        job = Job(
            id=0,
            state=JobState.WAITING,
            user=f"user{pick.randint(1, 5)}",
            queue=str(JobType.BESTEFFORT) if types else "default",
            submitted=self.cluster.now,
            command=command,
            types=types,
            **self._date(walltime),
        )
        return new_jobs.NewJob(job, _request(request, walltime), after)

    def _date(self, walltime: int) -> dict[str, Any]:
        """Choose a date for a job, seldom; users hold and resume it as any other."""
        if not self.settings.reservations or self.dates.random() >= self.settings.reservations:
            return {}
        start = self.cluster.now + self.dates.randint(1, 4 * walltime)
        return {"reservation": Reservation.TO_SCHEDULE, "start": start}

    # What goes wrong.

    def _befall(self) -> None:
        settings, cluster = self.settings, self.cluster
        if self._happens(settings.crashes):
            cluster.crash_after = cluster.transactions + self.chance.randint(1, 10)
            self._note(f"the server dies after {cluster.crash_after} transactions")
        if self._happens(settings.troubles):
            node = self.chance.choice(sorted(cluster.nodes))
            trouble = self.chance.choice((self._cut_off, self._hang, self._reboot, self._lag, self._lose, self._fail))
            self._safely(lambda: trouble(node))
        if self._happens(settings.wishes):
            self._safely(self._wish)
        if self._happens(settings.jumps):
            seconds = self.chance.choice((-3600, -60, 60, 3600))
            self._note(f"the clock jumps by {seconds:+d}")
            self._safely(lambda: cluster.clock_jumps(seconds))

    def _cut_off(self, node: str) -> None:
        there = self.cluster.nodes[node].up
        self._note(f"{node} is {'cut off' if there else 'back'}")
        (self.cluster.unplug if there else self.cluster.plug_in)(node)

    def _hang(self, node: str) -> None:
        if not self.cluster.nodes[node].up:
            return
        if self.cluster.nodes[node].hangs:
            delivered = self._happens(0.5)
            self._note(f"{node} goes on, {'having heard' if delivered else 'deaf to'} what it was told")
            self.cluster.go_on(node, delivered=delivered)
        else:
            self._note(f"{node} hangs")
            self.cluster.hang(node)

    def _reboot(self, node: str) -> None:
        self._note(f"{node} is started again")
        self.cluster.unplug(node)
        self.cluster.nodes[node].hangs = False
        self.cluster.nodes[node].reboot()
        self.cluster.plug_in(node)

    def _lag(self, node: str) -> None:
        self.cluster.nodes[node].lag = self.chance.choice((0, 5, 60))
        self._note(f"{node} answers {self.cluster.nodes[node].lag} s late")

    def _lose(self, node: str) -> None:
        self.cluster.nodes[node].loses = self.chance.randint(1, 3)
        self._note(f"{node} loses its next words")

    def _fail(self, node: str) -> None:
        target = self.cluster.nodes[node]
        target.fails = "" if target.fails else self.chance.choice(_FAILURES)
        self._note(f"launches on {node} fail with {target.fails or 'nothing any more'}")

    def _wish(self) -> None:
        cluster, who = self.cluster, "user1"
        ids = [self.chance.randint(1, max(self.submitted, 1))]
        what = self.chance.choice(("kill", "hold", "suspend", "resume"))
        self._note(f"{who} wants to {what} {ids}")
        if what == "kill":
            cluster.act(lambda tx: kill.request(tx, cluster.context, ids, by=who, now=cluster.now))
        elif what == "resume":
            cluster.act(lambda tx: suspend.resume(tx, cluster.context, ids, by=who, now=cluster.now))
        else:
            running = what == "suspend"
            cluster.act(lambda tx: suspend.hold(tx, cluster.context, ids, by=who, now=cluster.now, running=running))

    def _heal(self) -> None:
        """Repair everything, so that every job can end."""
        for name, node in self.cluster.nodes.items():
            node.fails, node.lag, node.loses = "", 0, 0
            if node.hangs:
                self._safely(lambda: self.cluster.go_on(name, delivered=True))  # noqa: B023
            if not node.up:
                self._safely(lambda: self.cluster.plug_in(name))  # noqa: B023
        self._safely(self._forgive)

    def _forgive(self) -> None:
        """Do what administrators do: use suspected nodes again, let stopped jobs go on, remove what waits in vain."""
        cluster = self.cluster
        held, hopeless = cluster.write(self._mend)
        cluster.act(lambda tx: suspend.resume(tx, cluster.context, held, by="root", now=cluster.now))
        cluster.act(lambda tx: kill.request(tx, cluster.context, hopeless, by="root", now=cluster.now))
        cluster.request_pass()

    def _mend(self, tx: Tx) -> tuple[list[int], list[int]]:
        away = [
            resource.id for resource in resources.listed(tx) if resource.properties["state"] == ResourceState.SUSPECTED
        ]
        if away:
            resources.set_state(tx, away, ResourceState.ALIVE, at=self.cluster.now)
        required = jobs.dependencies(tx, jobs.numbers_in(tx, [JobState.WAITING]))
        failed = {job.id for job in jobs.in_states(tx, [JobState.TERMINATED]) if job.exit_code}
        hopeless = [number for number, others in required.items() if not failed.isdisjoint(others)]
        return sorted(jobs.numbers_in(tx, [JobState.HOLD, JobState.SUSPENDED])), sorted(hopeless)


def _request(request: str, walltime: int) -> ResourceRequest:
    return requests.parse([f"{request},walltime=0:0:{walltime}"])


def _job_histories(everything: history.FullHistory) -> list[str]:
    """Write down what became of every job."""
    return [
        f"job {number}: " + ", ".join(f"{stay.state} {stay.start}" for stay in everything.stays[number])
        for number in sorted(everything.jobs)
    ]
