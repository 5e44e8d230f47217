"""The site's healing program: once for each node that became Suspected, and not for ever."""

from pathlib import Path

import pytest

from oarlock.job.run.reports import NodesChecked
from oarlock.model.event import EventType
from oarlock.store.queries.cluster import events

_DAY = 86400
_PASS = 600  # days pass in these tests: looking at deadlines every ten minutes is enough


@pytest.fixture
def healed(make):
    """A cluster whose site has a healing program."""
    site = {"suspected_healing_exec_file": Path("/etc/oarlock/heal"), "finaud_frequency": 0, "watch_frequency": _PASS}
    return make(nodes=3, **site)


def _suspect(cluster, *nodes):
    cluster.receive([NodesChecked(silent=dict.fromkeys(nodes, "unplugged"))])


def _clear(cluster, *nodes):
    cluster.receive([NodesChecked(frozenset(nodes))])


def _errors(cluster):
    with cluster.database.read() as tx:
        kinds = {EventType.NODE_HEALING_ERROR}
        return [(row.event.hosts, row.event.description) for row in events.after(tx, 0, kinds, most=10)]


def test_the_program_runs_once_for_a_node_that_stays_suspected(healed):
    _suspect(healed, "node1", "node3")
    healed.pass_time(_PASS)
    assert healed.healed == [("node1", "node3")]
    healed.restart()
    healed.pass_time(2 * _DAY)
    assert healed.healed == [("node1", "node3")]
    assert _errors(healed) == []


def test_it_runs_again_when_the_node_is_suspected_again_a_few_times(healed):
    for _ in range(5):
        _suspect(healed, "node1")
        healed.pass_time(_PASS)
        _clear(healed, "node1")
        healed.pass_time(_PASS)
    assert healed.healed == [("node1",)] * 3
    _suspect(healed, "node1")
    healed.pass_time(_DAY)
    assert healed.healed == [("node1",)] * 4, "a day later once more"


def test_a_whole_cluster_is_not_healed_at_once(make):
    cluster = make(nodes=60, suspected_healing_exec_file=Path("/etc/oarlock/heal"), finaud_frequency=0)
    _suspect(cluster, *cluster.nodes)
    cluster.pass_time(60)
    assert [len(names) for names in cluster.healed] == [25, 25, 10]
    assert {name for names in cluster.healed for name in names} == set(cluster.nodes)


def test_a_program_that_fails_is_an_event_and_not_run_again(healed):
    healed.scripts["healing"] = EventType.NODE_HEALING_ERROR
    _suspect(healed, "node2")
    healed.pass_time(10 * _PASS)
    assert healed.healed == [("node2",)]
    assert _errors(healed) == [(("node2",), "on purpose")]


def test_without_a_program_nothing_is_run(make):
    cluster = make()
    _suspect(cluster, "node1")
    cluster.pass_time(300)
    assert cluster.healed == []
