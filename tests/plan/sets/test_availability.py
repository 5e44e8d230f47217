"""Which resources can be used: those that are there, those that can be woken, those that may be back."""

import pytest

from oarlock.plan.sets.selection import availability
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import (
    NOW,
    asks,
    cluster,
    laid,
    node,
    obstacles,
    places,
    planned,
    reserved,
    reserves,
    runs,
    table,
)

ASLEEP = {"state": "Absent", "cm_availability": NOW + 500}


def seen(*rows, **settings):
    """Give what is available, in ids."""
    layout = laid(table(*rows))
    found = availability(layout, PlanSettings(**settings), NOW)
    return {
        "ready": layout.ids_of(found.ready),
        "asleep": [(until - NOW, layout.ids_of(bits)) for until, bits in found.asleep],
        "plannable": layout.ids_of(found.plannable),
        "existing": layout.ids_of(found.existing),
        "always": layout.ids_of(found.always),
        "missing": layout.ids_of(found.missing_always),
    }


def test_only_resources_that_are_alive_and_stay_so_are_ready():
    states = [("Alive", "UnChanged"), ("Alive", "Absent"), ("Absent", "Alive"), ("Suspected", "UnChanged"),
              ("Alive", "Alive"), ("Alive", "Dead"), ("Alive", "Suspected"), ("Dead", "UnChanged")]  # fmt: skip
    rows = [row for state, following in states for row in node("a", 1, state=state, next_state=following)]
    assert seen(*rows) == {
        "ready": (1, 5),
        "asleep": [],
        "plannable": (1, 5),
        "existing": (1, 2, 3, 4, 5, 6, 7),
        "always": (),
        "missing": (),
    }


def test_absent_resources_can_be_woken_until_their_date():
    rows = [*node("a", 1), *node("b", 1, **ASLEEP), *node("c", 1, state="Absent", cm_availability=NOW + 90),
            *node("d", 1, state="Absent", cm_availability=NOW), *node("e", 1, state="Absent"),
            *node("f", 1, **ASLEEP, next_state="Dead")]  # fmt: skip
    found = seen(*rows, wake_up=True)
    assert found["asleep"] == [(90, (3,)), (500, (2,))]
    assert found["plannable"] == (1, 2, 3)
    assert seen(*rows)["asleep"] == []


def test_a_table_that_says_nothing_of_states_has_nothing_ready():
    bare = laid(table(*node("a", 1)))
    bare.table.columns.pop("state")
    assert availability(bare, PlanSettings(), NOW).ready == 0


@pytest.mark.manual(200)
def test_a_sleeping_node_is_woken_for_a_job():
    sleeping = table(*node("a", 2), *node("b", 2, **ASLEEP))
    plan = planned(sleeping, asks(1, "nodes=2"), wake_up=True)
    assert places(plan) == {1: (0, (1, 2, 3, 4))}
    assert plan.wake == ("b",)
    assert plan.start == ()


def test_a_sleeping_node_is_left_asleep_when_waking_is_off_or_not_due():
    sleeping = table(*node("a", 2), *node("b", 2, **ASLEEP))
    assert obstacles(planned(sleeping, asks(1, "nodes=2"))) == {1: "unavailable"}
    late = planned(sleeping, asks(1, "nodes=1", walltime=400), asks(2, "nodes=2"), wake_up=True, wake_up_notice=399)
    assert places(late)[2] == (400, (1, 2, 3, 4))
    assert late.wake == ()


def test_a_sleeping_node_is_not_planned_past_its_date():
    sleeping = table(*node("a", 2), *node("b", 2, **ASLEEP))
    assert obstacles(planned(sleeping, asks(1, "nodes=2", walltime=501), wake_up=True)) == {1: "unavailable"}
    assert places(planned(sleeping, asks(1, "nodes=2", walltime=500), wake_up=True))[1][0] == 0


def test_a_job_that_never_fits_between_dates_is_not_planned():
    sleeping = table(*node("a", 2, **ASLEEP))
    plan = planned(sleeping, *(asks(at, "nodes=1", walltime=900) for at in (1, 2)), wake_up=True)
    assert obstacles(plan) == {1: "unavailable", 2: "unavailable"}


@pytest.mark.parametrize(("start", "woken"), [(NOW, ("b",)), (NOW + 600, ("b",)), (NOW + 601, ())])
def test_a_sleeping_node_is_woken_for_a_reservation_that_was_accepted(start, woken):
    sleeping = table(*node("a", 2), *node("b", 2, state="Absent", cm_availability=NOW + 9000))
    plan = planned(sleeping, reserved(1, [2, 3], start, start + 60), wake_up=True, wake_up_notice=600)
    assert plan.wake == woken


@pytest.mark.manual(171)
def test_what_every_job_needs_is_given_to_every_job():
    resources = table(*node("a", 2), *node("front", 1, type="frontend"))
    plan = planned(resources, asks(1, "{type='default'}/core=1"), asks(2, "{type='default'}/core=1"),
                   always_assigned=("frontend",))  # fmt: skip
    assert places(plan) == {1: (0, (1, 3)), 2: (0, (2, 3))}
    assert plan.start == (1, 2)


def test_nothing_is_planned_while_what_every_job_needs_is_away():
    front = node("front", 1, type="frontend", state="Suspected")
    plan = planned(table(*node("a", 2), *front), asks(1, "core=1"), always_assigned=("frontend",))
    assert obstacles(plan) == {1: "always assigned"}
    assert plan.unplaced[1].detail == "front, which every job needs, is not available"


def test_a_licence_that_every_job_needs_has_no_name_to_give():
    away = {"type": "licence", "state": "Absent"}
    plan = planned(table(*node("a", 2), away), asks(1, "core=1"), always_assigned=("licence",))
    assert plan.unplaced[1].detail == "a resource, which every job needs, is not available"


def test_the_cluster_may_be_gone():
    assert obstacles(planned(table(), asks(1, "resource_id=1"))) == {1: "too big"}
    assert obstacles(planned(cluster(1, 1, state="Absent"), asks(1, "nodes=1"))) == {1: "unavailable"}


PERMISSIVE = {"types": ("noop", "state=permissive")}
MIXED = table(
    *node("a", 2), *node("b", 2, state="Suspected"), *node("c", 2, state="Absent"), *node("d", 2, state="Dead")
)


def test_a_permissive_job_gets_all_but_dead_nodes_and_alive_ones_first():
    plan = planned(MIXED, asks(1, "nodes=1", **PERMISSIVE), asks(2, "nodes=2", **PERMISSIVE))
    assert places(plan) == {1: (0, (1, 2)), 2: (0, (3, 4, 5, 6))}
    assert plan.start == (1, 2)
    plan = planned(MIXED, asks(1, "nodes=BEST", **PERMISSIVE), asks(2, "nodes=1"))
    assert (places(plan), plan.start) == ({1: (0, (1, 2, 3, 4, 5, 6)), 2: (100, (1, 2))}, (1,))
    assert obstacles(planned(MIXED, asks(1, "nodes=4", **PERMISSIVE))) == {1: "too big"}


def test_a_permissive_reservation_starts_with_all_its_nodes():
    due = reserved(1, (1, 2, 3, 4), NOW, NOW + 100, **PERMISSIVE)
    assert (places(planned(MIXED, due)), planned(MIXED, due).start) == ({1: (0, (1, 2, 3, 4))}, (1,))
    two = table(*node("a", 2), *node("b", 2, state="Suspected"))
    plan = planned(two, reserves(2, "nodes=ALL", NOW + 50, **PERMISSIVE))
    assert (places(plan), plan.accept) == ({2: (50, (1, 2, 3, 4))}, (2,))


def test_permissive_and_other_jobs_do_not_share_nodes():
    plan = planned(MIXED, runs(1, (1, 2), NOW + 70), asks(2, "nodes=1", **PERMISSIVE), asks(3, "nodes=1"))
    assert places(plan) == {2: (0, (3, 4)), 3: (70, (1, 2))}
