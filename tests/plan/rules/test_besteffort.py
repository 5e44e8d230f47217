"""Best-effort jobs: they run where nobody else wants to, and die when somebody does."""

import pytest

from oarlock.model.job import JobState
from oarlock.model.plan import Placement
from oarlock.model.snapshot import Queue
from oarlock.plan.actions import jobs_to_kill
from oarlock.plan.pass_state import JobResources
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancies import OccupancyKind, SharingClass
from tests.plan.drawing import (
    DEFAULT,
    FIFO,
    NOW,
    asks,
    cluster,
    free,
    node,
    obstacles,
    places,
    planned,
    reserved,
    reserves,
    runs,
    snapshot,
    table,
)

BE = {"queue": "besteffort", "types": ("besteffort",)}
SHARED = SharingClass("*", "*")


def test_who_is_in_the_way_dies_and_who_timeshares_survives():
    running = [
        JobResources(1, OccupancyKind(besteffort=True), free("..##")),
        JobResources(2, OccupancyKind(besteffort=True), free("##..")),
        JobResources(3, OccupancyKind(besteffort=True, sharing=SHARED), free("..##")),
    ]
    assert jobs_to_kill(running, [JobResources(9, OccupancyKind(), free(".###"))]) == (1, 3)
    assert jobs_to_kill(running, [JobResources(9, OccupancyKind(sharing=SHARED), free(".###"))]) == (1,)
    assert jobs_to_kill(running, []) == ()


@pytest.mark.manual(202)
def test_an_ordinary_job_does_not_see_best_effort_ones_and_has_them_killed():
    plan = planned(cluster(1, 2), runs(1, [1, 2], NOW + 900, **BE), asks(2, "core=2"))
    assert places(plan) == {2: (0, (1, 2))}
    assert (plan.kill, plan.start) == ((1,), ())


def test_nobody_starts_where_a_best_effort_job_is_still_ending():
    ending = runs(1, [1], NOW + 900, state=JobState.FINISHING, **BE)
    plan = planned(cluster(1, 2), ending, asks(2, "core=2"), asks(3, "core=1"))
    assert (places(plan), plan.kill, plan.start) == ({2: (0, (1, 2)), 3: (100, (1,))}, (), ())
    plan = planned(cluster(1, 2), ending, asks(3, "core=1"))
    assert (places(plan), plan.kill, plan.start) == ({3: (0, (1,))}, (), ())


def test_at_the_same_start_resources_where_nobody_dies_are_preferred():
    two = cluster(2, 2)
    plan = planned(two, runs(1, [1], NOW + 900, **BE), asks(2, "core=2"), asks(3, "nodes=1"))
    assert places(plan) == {2: (0, (2, 3)), 3: (100, (3, 4))}
    plan = planned(two, runs(1, [1], NOW + 900, **BE), asks(3, "nodes=1"))
    assert (places(plan), plan.kill, plan.start) == ({3: (0, (3, 4))}, (), (3,))


def test_nobody_waits_to_spare_a_best_effort_job():
    plan = planned(cluster(2, 2), runs(1, [1], NOW + 900, **BE), asks(2, "core=4"))
    assert (places(plan), plan.kill, plan.start) == ({2: (0, (1, 2, 3, 4))}, (1,), ())


def test_those_who_need_nobody_to_die_start_at_once():
    plan = planned(cluster(2, 2), runs(1, [1, 2], NOW + 900, **BE), asks(2, "core=2"), asks(3, "core=2"))
    assert places(plan) == {2: (0, (3, 4)), 3: (0, (1, 2))}
    assert (plan.kill, plan.start) == ((1,), (2,))


def test_a_best_effort_job_that_ends_already_is_not_killed_again():
    plan = planned(cluster(1, 2), runs(1, [1, 2], NOW + 9, state=JobState.FINISHING, **BE), asks(2, "core=2"))
    assert (places(plan), plan.kill) == ({2: (0, (1, 2))}, ())


def test_best_effort_jobs_wait_for_everybody_for_a_constant_time():
    plan = planned(
        cluster(1, 2), runs(1, [1], NOW + 50), asks(2, "core=2", walltime=20),
        asks(3, "core=1", walltime=9000, **BE), asks(4, "core=1", walltime=10, **BE),
        besteffort_duration=60,
    )  # fmt: skip
    assert places(plan) == {2: (50, (1, 2)), 3: (70, (1,)), 4: (70, (2,))}
    assert plan.placements[3] == Placement(3, 30, NOW + 70, NOW + 9070, 0b01)


def test_best_effort_jobs_do_not_kill_each_other():
    plan = planned(cluster(1, 2), runs(1, [1], NOW + 50, **BE), asks(2, "core=2", **BE))
    assert (places(plan), plan.kill) == ({2: (50, (1, 2))}, ())


def test_what_every_job_has_kills_nobody():
    resources = table(*node("a", 2), *node("front", 1, type="frontend"))
    plan = planned(resources, runs(1, [1, 3], NOW + 900, **BE), asks(2, "{type='default'}/core=1"),
                   reserved(3, [2, 3], NOW + 200, NOW + 300), always_assigned=("frontend",),
                   besteffort_notice=500)  # fmt: skip
    assert (places(plan), plan.kill, plan.start) == ({2: (0, (2, 3))}, (), (2,))


def test_a_best_effort_job_planned_first_does_not_start_where_another_does():
    first = Queue("besteffort", 9, FIFO)
    asked = snapshot(cluster(1, 2), asks(1, "core=2", **BE), asks(2, "core=1"), queues=(first, DEFAULT))
    plan = make_plan(asked, now=NOW, settings=PlanSettings())
    assert places(plan) == {1: (0, (1, 2)), 2: (0, (1,))}
    assert plan.start == (2,)


def test_best_effort_jobs_leave_before_a_reservation_begins():
    soon = reserved(2, [1], NOW + 60, NOW + 160)
    assert planned(cluster(1, 2), runs(1, [1], NOW + 900, **BE), soon, besteffort_notice=60).kill == (1,)
    assert planned(cluster(1, 2), runs(1, [1], NOW + 900, **BE), soon, besteffort_notice=59).kill == ()
    assert planned(cluster(1, 2), runs(1, [2], NOW + 900, **BE), soon, besteffort_notice=60).kill == ()


def test_a_reservation_that_is_due_waits_until_best_effort_jobs_have_left():
    plan = planned(cluster(1, 2), runs(1, [1], NOW + 900, **BE), reserved(2, [1, 2], NOW, NOW + 100))
    assert (places(plan), plan.kill, plan.start) == ({2: (0, (1, 2))}, (1,), ())


def test_a_best_effort_reservation_does_not_kill_itself():
    plan = planned(cluster(1, 2), reserved(1, [1], NOW, NOW + 100, **BE))
    assert (plan.kill, plan.start) == ((), (1,))


def test_a_best_effort_job_that_timeshares_survives_those_it_shares_with():
    sharing = {"queue": "besteffort", "types": ("besteffort", "timesharing")}
    plan = planned(cluster(1, 2), runs(1, [1, 2], NOW + 900, **sharing), asks(2, "core=2", types=("timesharing",)))
    assert (plan.kill, plan.start) == ((), (2,))
    plan = planned(cluster(1, 2), runs(1, [1, 2], NOW + 900, **sharing), asks(2, "core=2"))
    assert (plan.kill, plan.start) == ((1,), ())


def test_a_new_reservation_does_not_see_best_effort_jobs():
    plan = planned(cluster(1, 2), runs(1, [1, 2], NOW + 900, **BE), reserves(2, "core=2", NOW + 50))
    assert (places(plan), plan.accept, plan.kill) == ({2: (50, (1, 2))}, (2,), ())
    assert obstacles(plan) == {}
