"""The reactor's own rules in a simulated cluster: gathering, pausing, trying again, and applying one by one."""

from itertools import pairwise

import pytest

from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, QuickPass, WholePass
from oarlock.job.run.reports import Started
from oarlock.model.job import JobState
from oarlock.simulate.cluster import BEGIN
from oarlock.store.engine.opening import MemoryDatabase
from tests.scenarios.cluster import Cluster


class Recorded(Cluster):
    """A cluster that records its steps; `settings` are those of the cluster as well as of the site."""

    def __init__(self, database, *, depths=None, work=0.0, **settings):
        super().__init__(database, **settings)
        self.steps, self._depths, self._work = [], depths, work
        self.restart()
        self.steps.clear()

    def _run(self, step):
        self.steps.append((self.clock.moment.steady - BEGIN, step))
        super()._run(step)

    def of(self, kind):
        return [(round(at, 3), step) for at, step in self.steps if isinstance(step, kind)]


@pytest.fixture
def busy():
    with MemoryDatabase() as database:
        yield lambda **settings: Recorded(database, **settings)


def test_reports_are_gathered_after_a_batch_of_many(busy):
    cluster = busy(work=0.005, cores=8)
    jobs = [cluster.submit("sleep 100") for _ in range(6)]
    cluster.pass_time(2)
    cluster.steps.clear()
    began = cluster.clock.moment.steady - BEGIN
    reports = [Started("node1", job, 1, float(BEGIN)) for job in jobs]
    for report in reports:
        cluster.reactor.receive(report)
    step = cluster.reactor.next_step(cluster.clock.moment)
    cluster._run(step)
    cluster.receive(reports[:1])
    [(first, batch), (second, rest)] = cluster.of(ApplyReports)
    assert (batch.reports, rest.reports) == (tuple(reports), tuple(reports[:1]))
    assert (first, second) == (round(began, 3), pytest.approx(began + 0.005 + 3 * 0.005))


def test_whole_passes_follow_while_more_wait_than_a_quick_one_looks_at(busy):
    cluster = busy(depths=(2, 4), work=0.01)
    for _ in range(4):
        cluster.submit("sleep 100", "/network_address=2,walltime=0:2:0")
    small = cluster.submit("sleep 10", "/network_address=1/core=1,walltime=0:0:20")
    cluster.run_until(small, JobState.TERMINATED)
    quick, whole = cluster.of(QuickPass), cluster.of(WholePass)
    assert {step.depth for _, step in quick} <= {2, 4}
    assert [step.dates for _, step in whole[:2]] == [False, True]  # who starts first, dates right behind
    for dates in (False, True):
        of_a_kind = [at for at, step in whole if step.dates == dates]
        assert all(later - earlier >= 1 for earlier, later in pairwise(of_a_kind))
    cluster.finish()


def test_a_quick_pass_is_followed_by_a_pause_of_twice_what_it_took(busy):
    cluster = busy(work=0.05)
    cluster.pass_time(2)
    cluster.steps.clear()
    for _ in range(2):
        cluster.request_pass()
        cluster.settle()
    [(first, _), (second, _)] = cluster.of(QuickPass)
    assert second - first == pytest.approx(0.05 + 0.05 + 2 * 0.05)  # the pass, its transaction, the pause


def test_reports_wait_while_the_database_accepts_nothing(busy):
    cluster = busy()
    job = cluster.submit("sleep 5")
    cluster.database_away = True
    cluster.pass_time(20)
    assert cluster.job(job).state is JobState.RUNNING
    tries = [at for at, _ in cluster.of(ApplyReports) if at >= 5]
    assert tries == [5 + 2 * n for n in range(8)]
    cluster.database_away = False
    cluster.pass_time(2)
    assert (cluster.story(job)[-1], cluster.job(job).exit_code) == ("Terminated", 0)


def test_launches_wait_while_the_database_accepts_nothing(busy):
    cluster = busy(nodes=1)
    node = cluster.nodes["node1"]
    cluster.reactor.hosts.clear()
    node.connected, connect = False, node.on_connect

    def fill_the_disk(node):
        cluster.database_away = True
        connect(node)

    node.on_connect = fill_the_disk
    job = cluster.submit("sleep 5")
    assert cluster.job(job).state is JobState.TO_LAUNCH
    cluster.database_away = False
    cluster.finish()
    assert (cluster.story(job)[-1], node.ran) == ("Terminated", [(job, 1)])
    assert [step for _, step in cluster.of(BeginLaunches)] == [BeginLaunches((job,))]


def test_a_bad_report_costs_no_other_of_its_batch(busy):
    cluster = busy()
    cluster.survives = (*cluster.survives, ValueError)
    for node in cluster.nodes.values():
        node.lag = 5
    good, bad = cluster.submit("sleep 100"), cluster.submit("sleep 100")
    reports = [Started("node1", bad, 1, float("nan")), Started("node1", good, 1, float(BEGIN))]
    cluster.steps.clear()
    cluster.receive(reports)
    assert [step for _, step in cluster.of(ApplyReports)] == [
        ApplyReports(tuple(reports)),
        ApplyReports((reports[0],), retry=True),
        ApplyReports((reports[1],), retry=True),
    ]
    assert (cluster.job(good).state, cluster.job(bad).state) == (JobState.RUNNING, JobState.LAUNCHING)


def test_an_error_that_nobody_expects_ends_the_simulation(cluster):
    for node in cluster.nodes.values():
        node.lag = 5
    report = Started("node1", cluster.submit("sleep 100"), 1, float("nan"))
    with pytest.raises(ValueError, match="NaN"):
        cluster.receive([report])
