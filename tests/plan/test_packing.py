"""Where jobs go among as good places: onto nodes that are awake, and, if the site packs, onto nodes at work."""

import pytest

from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import NOW, asks, cluster, licences, node, places, planned, reserved, runs, snapshot, table

BE = {"queue": "besteffort", "types": ("besteffort",)}


def sleeping(*names, cores=2):
    """Draw a cluster of which the nodes in capitals sleep."""
    asleep = {"state": "Absent", "cm_availability": NOW + 9999}
    rows = [node(name.lower(), cores, **(asleep if name.isupper() else {})) for name in names]
    return table(*(row for of_node in rows for row in of_node))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("core=2", (0, (3, 4))),  # awake, though the others come first
        ("nodes=1", (0, (3, 4))),
        ("nodes=1/core=1", (0, (3,))),
        ("core=3", (0, (1, 2, 3))),  # not enough of them: one has to be woken
        ("nodes=BEST", (0, (1, 2, 3, 4))),  # who asks for the most there is gets that
    ],
)
def test_nodes_that_are_awake_are_taken_first(asked, expected):
    assert places(planned(sleeping("A", "b"), asks(1, asked), wake_up=True)) == {1: expected}


@pytest.mark.parametrize(
    ("asked", "pack", "expected"),
    [
        ("core=1", False, (1,)),
        ("core=1", True, (4,)),
        ("nodes=1/core=1", True, (4,)),
        ("core=2", True, (1, 2)),  # the node at work has not enough
        ("nodes=1", True, (1, 2)),
    ],
)
def test_a_site_that_packs_fills_nodes_at_work_first(asked, pack, expected):
    plan = planned(cluster(3, 2), runs(9, [3], NOW + 900), asks(1, asked), pack=pack)
    assert places(plan) == {1: (0, expected)}


def test_what_is_on_no_node_is_taken_wherever_a_job_packs():
    both = table(*node("a", 2), *node("b", 2), *licences(1))
    asked = asks(1, "nodes=1/core=1+{type = 'licence'}/resource_id=1")
    assert places(planned(both, runs(9, [3], NOW + 900), asked, pack=True)) == {1: (0, (4, 5))}


def test_an_accepted_reservation_to_come_makes_no_node_a_node_at_work():
    plan = planned(cluster(2, 2), reserved(9, [3], NOW + 500, NOW + 600), asks(1, "core=1"), pack=True)
    assert places(plan) == {1: (0, (1,))}


def test_no_best_effort_job_dies_for_packing():
    jobs = (runs(8, [1], NOW + 900, **BE), runs(9, [3], NOW + 900), asks(1, "core=2"))
    plan = planned(cluster(3, 2), *jobs, pack=True)
    assert (places(plan), plan.kill) == ({1: (0, (2, 4))}, ())


def test_waking_a_node_comes_last():
    shot = snapshot(sleeping("A", "b", "c"), runs(9, [5], NOW + 900), *(asks(n, "core=1") for n in range(1, 6)))
    plan = make_plan(shot, now=NOW, settings=PlanSettings(security_time=0, wake_up=True, pack=True))
    assert [where for _, (_, where) in sorted(places(plan).items())] == [(6,), (3,), (4,), (1,), (2,)]
    assert plan.wake == ("a",)
