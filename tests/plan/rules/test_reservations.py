"""Reservations: accepted at the asked date or not at all; at the date, started with what is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from oarlock.model.event import Event, EventType
from oarlock.model.job import Reservation
from oarlock.model.plan import Obstacle, Placement, Unplaced
from oarlock.model.snapshot import QuotaRule
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.planner import make_plan
from oarlock.plan.rules import reservations
from oarlock.plan.rules.reservations import ready_first
from tests.plan.drawing import (
    NOW,
    asks,
    cluster,
    free,
    laid,
    licences,
    node,
    obstacles,
    places,
    planned,
    reserved,
    reserves,
    runs,
    shape,
    table,
)
from tests.plan.random_snapshots import small

ONE = cluster(1, 4)


def test_a_reservation_is_accepted_at_the_asked_date():
    plan = planned(ONE, reserves(1, "core=3", NOW + 50))
    assert (places(plan), plan.accept, plan.refuse, plan.start) == ({1: (50, (1, 2, 3))}, (1,), (), ())


def test_a_reservation_whose_date_is_taken_names_another_date():
    plan = planned(ONE, reserved(1, [1, 2], NOW + 20, NOW + 90), reserves(2, "core=3", NOW + 50))
    taken = "the date is taken; it could start 0:00:40 later"
    assert plan.unplaced == {2: Unplaced(2, Obstacle.CONFLICT, taken, earliest=NOW + 90)}
    assert (plan.accept, plan.refuse) == ((), (2,))


def test_a_reservation_for_more_than_there_is_is_refused_for_good():
    plan = planned(ONE, reserves(1, "core=5", NOW + 50))
    assert plan.unplaced == {1: Unplaced(1, Obstacle.TOO_BIG, "the cluster never has what it asks for")}
    assert plan.refuse == (1,)


def test_a_date_in_the_past_is_moved_to_now_unless_it_would_all_be_over():
    plan = planned(ONE, reserves(1, "core=1", NOW - 99), reserves(2, "core=1", NOW - 100))
    assert (places(plan), obstacles(plan)) == ({1: (0, (1,))}, {2: "missed"})
    assert (plan.accept, plan.refuse) == ((1,), (2,))


def test_only_the_first_alternative_of_a_reservation_counts():
    asked = reserves(1, "core=5", NOW)
    asked.texts, asked.walltimes = ["core=5", "core=1"], [60, 60]
    assert obstacles(planned(ONE, asked)) == {1: "too big"}


def test_reservations_come_before_the_jobs_of_their_queue():
    plan = planned(ONE, asks(1, "core=4", walltime=60), reserves(2, "core=1", NOW + 10))
    assert places(plan) == {2: (10, (1,)), 1: (110, (1, 2, 3, 4))}
    plan = planned(ONE, reserves(1, "core=1", NOW + 10, queue="besteffort"), asks(2, "core=4", walltime=60))
    assert (places(plan), obstacles(plan)) == ({2: (0, (1, 2, 3, 4))}, {1: "conflict"})


def test_resources_that_are_away_today_may_be_back_at_the_date():
    away = table(*node("a", 1, state="Absent"), *node("b", 1, state="Suspected"), *licences(1))
    plan = planned(away, reserves(1, "resource_id=3", NOW + 50), asks(2, "resource_id=2"))
    assert (places(plan), obstacles(plan)) == ({1: (50, (1, 2, 3))}, {2: "unavailable"})


def test_a_reservation_keeps_the_security_time_behind_it_free():
    busy = reserved(1, [1, 2, 3, 4], NOW + 100, NOW + 200)
    assert planned(ONE, busy, reserves(2, "core=1", NOW, 90), security_time=10).accept == (2,)
    assert planned(ONE, busy, reserves(2, "core=1", NOW, 91), security_time=10).refuse == (2,)


def test_an_accepted_reservation_starts_when_its_date_has_come():
    plan = planned(ONE, reserved(1, [2, 3], NOW, NOW + 100), asks(2, "core=3"))
    assert (places(plan), plan.start) == ({2: (100, (1, 2, 3)), 1: (0, (2, 3))}, (1,))
    assert plan.events == ()


def test_a_reservation_to_come_is_planned_around_and_not_started():
    plan = planned(ONE, reserved(1, [1, 2], NOW + 50, NOW + 150), asks(2, "core=3"))
    assert (places(plan), plan.start) == ({2: (150, (1, 2, 3))}, ())


@pytest.mark.manual(170)
def test_a_reservation_waits_for_missing_resources_for_a_while():
    away = table(*node("a", 2), *node("b", 2, state="Suspected"))
    plan = planned(away, reserved(1, [2, 3], NOW - 299, NOW + 500), reservation_patience=300)
    assert plan.unplaced == {1: Unplaced(1, Obstacle.UNAVAILABLE, "1 of its 2 resources are missing")}
    assert (plan.start, plan.refuse) == ((), ())


@pytest.mark.manual(136, 170)
def test_a_late_reservation_starts_with_what_is_there():
    away = table(*node("a", 2), *node("b", 2, state="Suspected"))
    plan = planned(away, reserved(1, [2, 3], NOW - 300, NOW + 500), reservation_patience=300)
    assert plan.placements == {1: Placement(1, 10, NOW, NOW + 500, 0b10)}
    assert plan.start == (1,)
    assert plan.events == (
        Event(EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION, NOW, "1 resources of job 1 are missing", 1),
        Event(EventType.REDUCE_RESERVATION_WALLTIME, NOW, "job 1 starts 0:05:00 late and is that much shorter", 1),
    )


def test_a_reservation_of_which_nothing_is_there_waits_to_its_end():
    away = table(*node("a", 2), *node("b", 2, state="Suspected"))
    assert obstacles(planned(away, reserved(1, [3, 4], NOW - 499, NOW + 1))) == {1: "unavailable"}
    over = planned(away, reserved(1, [3, 4], NOW - 500, NOW))
    assert over.unplaced == {1: Unplaced(1, Obstacle.MISSED, "its end has passed before it could start")}
    assert (over.start, over.refuse) == ((), (1,))


def test_resources_that_no_longer_exist_are_missing_too():
    plan = planned(ONE, reserved(1, [4, 98, 99], NOW - 10, NOW + 500))
    assert plan.unplaced == {1: Unplaced(1, Obstacle.UNAVAILABLE, "2 of its 3 resources are missing")}
    plan = planned(ONE, reserved(1, [98, 99], NOW - 400, NOW + 500))
    assert (plan.start, obstacles(plan)) == ((), {1: "unavailable"})
    plan = planned(ONE, reserved(1, [4, 98, 99], NOW - 400, NOW + 500))
    assert (plan.start, plan.resources(1)) == ((1,), (4,))
    assert plan.events[0].description == "2 resources of job 1 are missing"


def test_a_reservation_waits_for_a_job_that_overstays():
    plan = planned(ONE, runs(1, [1], NOW - 5), reserved(2, [1, 2], NOW - 400, NOW + 100))
    assert (obstacles(plan), plan.start) == ({2: "unavailable"}, ())


def test_a_reservation_does_not_wait_for_those_it_shares_with():
    shared = {"types": ("timesharing",)}
    plan = planned(ONE, runs(1, [1], NOW + 50, **shared), reserved(2, [1, 2], NOW, NOW + 100, **shared))
    assert plan.start == (2,)


@pytest.mark.parametrize(("now", "late"), [(NOW, False), (NOW + 5, True)])
def test_only_a_late_start_makes_a_reservation_shorter(now, late):
    job = reserved(1, [1], NOW, NOW + 100)
    due = reservations.decide_due(job, free("."), free("."), now=now, patience=300)
    assert [event.type for event in due.events] == [EventType.REDUCE_RESERVATION_WALLTIME] * late


HALF_AWAY = table(*node("n1", 1), *node("n2", 1), *node("n2", 1, state="Absent", core="n2.9"))
"""Of n2, one core is ready and one is away: it is a whole node only among those that may be back."""


def test_groups_may_leave_each_other_nothing_of_what_is_ready():
    plan = planned(HALF_AWAY, reserves(1, "nodes=BEST+core=1", NOW + 50))
    assert (places(plan), plan.accept) == ({1: (50, (1, 2))}, (1,))


def test_the_date_that_is_told_instead_is_one_that_would_be_accepted():
    taken = reserved(1, [1], NOW + 20, NOW + 90)
    plan = planned(HALF_AWAY, taken, reserves(2, "nodes=BEST+core=1", NOW + 50))
    assert plan.unplaced[2].earliest == NOW + 90
    assert planned(HALF_AWAY, taken, reserves(2, "nodes=BEST+core=1", NOW + 90)).accept == (2,)


def test_a_quota_is_named_where_resources_would_allow_it():
    few = {"quotas": (QuotaRule("*", "*", "*", "*", resources=1),)}
    plan = planned(HALF_AWAY, reserves(1, "nodes=BEST+core=1", NOW + 50), given=few)
    says = "the quota `*,*,*,*` is 1 resource at once; it asks for 2"
    assert plan.unplaced == {1: Unplaced(1, Obstacle.QUOTA, says)}


@given(st.randoms(use_true_random=False))
def test_whoever_asks_for_the_date_that_he_was_told_is_accepted(r):
    drawn, asked = small(r)
    refused = {job: one for job, one in make_plan(drawn, now=NOW, settings=asked).unplaced.items() if one.earliest}
    for job in drawn.waiting:
        if job.reservation == Reservation.TO_SCHEDULE and job.job_id in refused:
            again = structs.replace(job, start=refused[job.job_id].earliest)
            waiting = tuple(again if one is job else one for one in drawn.waiting)
            plan = make_plan(structs.replace(drawn, waiting=waiting), now=NOW, settings=asked)
            assert job.job_id in plan.accept


def test_a_reservation_is_offered_what_its_shape_is_offered():
    layout = laid(cluster(3, 2))
    fit = Fitter(layout).compile(shape("nodes=1/core=1"))
    ready = layout.bits_of([1, 2])
    assert ready_first(fit, ready).offers(layout.everything) == fit.offers(layout.everything) == 3
