"""Any sequence of what users do and of what goes wrong: after each step everything that must be true is."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from oarlock.failpoints import armed
from oarlock.job.check.run import check
from oarlock.job.run import kill
from oarlock.job.run.reports import BadReport, Exited, IncomingReport, Started
from oarlock.model.errors import DatabaseHeld
from oarlock.model.job import Reservation
from oarlock.model.resource import NextState, ResourceState
from oarlock.node.wire.messages import CLEANED, EXITED, FAILED, KILLED, Report
from oarlock.simulate.cluster import ServerCrash
from oarlock.store.engine.opening import MemoryDatabase
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.usage import history
from tests.scenarios.cluster import Cluster

NODES = ("node1", "node2", "node3")
nodes = st.sampled_from(NODES)
numbers = st.integers(1, 4)


class WholeLife(RuleBasedStateMachine):
    """A cluster of three nodes. Steps are short, so that few of them get far; jobs last a minute or two."""

    def __init__(self) -> None:
        super().__init__()
        self.database = MemoryDatabase()
        self.cluster = Cluster(self.database, nodes=len(NODES), cores=2, watch_frequency=20)
        self.heard: list[IncomingReport] = []
        self._listen()
        self.copies: list[sqlite3.Connection] = []
        self.was_restored = False

    def _listen(self) -> None:
        """Keep what nodes say, to say it again later."""
        receive = self.cluster._receive

        def hear(reports: Iterable[IncomingReport]) -> None:
            said = list(reports)
            self.heard += [one for one in said if isinstance(one, Exited | Started)]
            receive(said)

        self.cluster._receive = hear  # type: ignore[method-assign]

    def teardown(self) -> None:
        self.database.close()
        for copy in self.copies:
            copy.close()

    def do(self, act: Any) -> None:
        """Do something; a server that dies of it, or finds that another one holds the database, is started again."""
        try:
            act()
        except (ServerCrash, DatabaseHeld):
            self.cluster.restart()

    # Users.

    @rule(
        asked=st.sampled_from(["/core=1", "/core=2", "/core=3", "/network_address=1", "/network_address=2/core=1"]),
        command=st.sampled_from(["sleep 5", "sleep 30", "sleep 90", "sleep 10 exit 3", "deaf sleep", "sleep 9999"]),
        kind=st.sampled_from([(), (), ("besteffort",), ("besteffort", "idempotent"), ("timesharing=*,*",), ("noop",)]),
        after=st.none() | numbers,
    )
    def submit(self, asked: str, command: str, kind: tuple[str, ...], after: int | None) -> None:
        queue = "besteffort" if "besteffort" in kind else "default"
        with self.database.read() as tx:
            there = history.read_full_history(tx).jobs
        follows = (after,) if after in there else ()
        self.do(lambda: self.cluster.submit(command, f"{asked},walltime=0:2:0", types=kind, queue=queue, after=follows))

    @rule(soon=st.integers(1, 300), asked=st.sampled_from(["/core=2", "/network_address=3"]))
    def reserve(self, soon: int, asked: str) -> None:
        when = {"reservation": Reservation.TO_SCHEDULE, "start": self.cluster.now + soon}
        self.do(lambda: self.cluster.submit("sleep 60", f"{asked},walltime=0:2:0", **when))

    @rule(job=numbers, running=st.booleans())
    def hold(self, job: int, *, running: bool) -> None:
        self.do(lambda: self.cluster.hold(job, running=running))

    @rule(job=numbers)
    def resume(self, job: int) -> None:
        self.do(lambda: self.cluster.resume(job))

    @rule(job=numbers, exterminate=st.booleans())
    def delete(self, job: int, *, exterminate: bool) -> None:
        self.do(lambda: self.cluster.kill(job, exterminate=exterminate))

    @rule(job=numbers)
    def become_best_effort(self, job: int) -> None:
        cluster = self.cluster
        self.do(
            lambda: cluster.act(
                lambda tx: kill.switch_besteffort(tx, cluster.context, [job], by="root", now=cluster.now)
            )
        )

    # Nodes.

    @rule(node=nodes)
    def pull_the_plug_or_put_it_back(self, node: str) -> None:
        there = self.cluster.nodes[node].up
        self.do(lambda: (self.cluster.unplug if there else self.cluster.plug_in)(node))

    @rule(node=nodes, delivered=st.booleans())
    def hang_or_go_on(self, node: str, *, delivered: bool) -> None:
        if self.cluster.nodes[node].hangs:
            self.do(lambda: self.cluster.go_on(node, delivered=delivered))
        elif self.cluster.nodes[node].up:
            self.cluster.hang(node)

    @rule(node=nodes)
    def reboot(self, node: str) -> None:
        def again() -> None:
            self.cluster.unplug(node)
            self.cluster.nodes[node].hangs = False
            self.cluster.nodes[node].reboot()
            self.cluster.plug_in(node)

        self.do(again)

    @rule(node=nodes, lag=st.sampled_from([0, 5, 60]))
    def answer_late(self, node: str, lag: int) -> None:
        self.cluster.nodes[node].lag = lag

    @rule(node=nodes, words=st.integers(1, 3))
    def lose_words(self, node: str, words: int) -> None:
        self.cluster.nodes[node].loses = words

    @rule(node=nodes, event=st.sampled_from(["", "PROLOGUE_ERROR", "CPUSET_ERROR", "SSH_TRANSFER_TIMEOUT"]))
    def fail_launches(self, node: str, event: str) -> None:
        self.cluster.nodes[node].fails = event

    @rule(node=nodes, state=st.sampled_from(list(NextState)))
    def set_state(self, node: str, state: NextState) -> None:
        self.do(lambda: self.cluster.set_state(node, state))

    @rule()
    def trust_suspected_nodes_again(self) -> None:
        def forgive(tx: Any) -> None:
            away = [one.id for one in resources.listed(tx) if one.properties["state"] == ResourceState.SUSPECTED]
            if away:
                resources.set_state(tx, away, ResourceState.ALIVE, at=self.cluster.now)

        self.do(lambda: self.cluster.write(forgive))
        self.cluster.request_pass()

    # Reports that are doubled, late, out of order, or forged.

    @rule(places=st.lists(st.integers(0, 200), min_size=1, max_size=4))
    def hear_again(self, places: list[int]) -> None:
        again = [self.heard[place % len(self.heard)] for place in places if self.heard]
        self.do(lambda: self.cluster.receive(again))

    @rule(
        node=nodes,
        job=st.integers(1, 20),
        attempt=st.integers(1, 3),
        outcome=st.sampled_from([EXITED, KILLED, CLEANED, FAILED]),
        kind=st.sampled_from(["exited", "started", "bad"]),
    )
    def hear_what_is_not_true(self, node: str, job: int, attempt: int, outcome: str, kind: str) -> None:
        """A node says something of an attempt that it was never given: its server awaits nothing of the kind."""
        run = self.cluster.nodes[node].runs.get((job, attempt))
        if kind != "bad" and run is not None:
            return
        report = Report(job, attempt, node, f"{node}-1", outcome, 0, "", "", (), started=1.0, ended=2.0)
        said: dict[str, IncomingReport] = {
            "exited": Exited(node, report),
            "started": Started(node, job, attempt, 1.0),
            "bad": BadReport(node, job, attempt, "it is not signed"),
        }
        with self.database.read() as tx:
            tries = history.read_full_history(tx).attempts.get(job, [])
        if kind == "bad" or not any(
            node in {place.name for place in one.nodes} for one in tries if one.number == attempt
        ):
            self.do(lambda: self.cluster.receive([said[kind]]))

    # Clocks, servers, databases.

    @rule(seconds=st.integers(1, 150))
    def pass_time(self, seconds: int) -> None:
        self.do(lambda: self.cluster.pass_time(seconds))

    @rule(seconds=st.sampled_from([-86400, -3600, -60, 60, 3600, 86400]))
    def the_clock_jumps(self, seconds: int) -> None:
        self.do(lambda: self.cluster.clock_jumps(seconds))

    @rule(transactions=st.integers(1, 6))
    def die_soon(self, transactions: int) -> None:
        self.cluster.crash_after = self.cluster.transactions + transactions

    @rule()
    def start_again(self) -> None:
        self.cluster.restart()

    @rule()
    def lose_the_lock(self) -> None:
        """Another server takes over between two transactions: this one writes nothing any more."""

        def taken(point: str, _node: str) -> None:
            if point == "commit":
                raise DatabaseHeld("Another server holds the database.", hint="It is the active one now.")

        with armed(taken):
            try:
                self.cluster.submit("sleep 5")
            except DatabaseHeld:
                pass
            else:
                raise AssertionError("a server wrote without the lock")
        self.cluster.restart()

    @rule(seconds=st.integers(1, 60))
    def the_disk_is_full_for_a_while(self, seconds: int) -> None:
        self.cluster.database_away = True
        self.do(lambda: self.cluster.pass_time(seconds))
        self.cluster.database_away = False

    @precondition(lambda self: len(self.copies) < 2)
    @rule()
    def make_a_backup(self) -> None:
        self.copies.append(self.database.copy())

    @precondition(lambda self: self.copies)
    @rule()
    def put_an_older_database_back(self) -> None:
        self.was_restored = True
        self.database.put_back(self.copies[0])
        self.cluster.restart(restored=True)

    # What must be true.

    @invariant()
    def nothing_is_wrong(self) -> None:
        with self.database.read() as tx:
            assert [finding.sentence for finding in check(tx, self.cluster.config, now=self.cluster.now)] == []

    @invariant()
    def no_core_is_used_twice_and_no_command_begins_twice(self) -> None:
        for node in self.cluster.nodes.values():
            taken: dict[int, tuple[int, int]] = {}
            for key, run in node.runs.items():
                if not run.lives or "timesharing=*,*" in run.launch.environment.get("OAR_JOB_TYPES", ""):
                    continue
                for one in run.launch.resources:
                    if one["network_address"] == node.name:
                        other = taken.setdefault(one["resource_id"], key)
                        assert other == key, f"{other} and {key} run on resource {one['resource_id']}"
        if not self.was_restored:
            began = [job for node in self.cluster.nodes.values() for job, _ in node.ran]
            assert len(began) == len(set(began)), began


_FEW = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


def test_whatever_happens_in_whatever_order_all_that_must_be_true_is():
    run_state_machine_as_test(WholeLife, settings=settings(_FEW, max_examples=8, stateful_step_count=25))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_it_is_true_of_thousands_of_lives():
    many = settings(_FEW, derandomize=False, max_examples=1500, stateful_step_count=60, print_blob=True)
    run_state_machine_as_test(WholeLife, settings=many)
