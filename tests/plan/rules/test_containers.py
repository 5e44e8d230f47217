"""Jobs inside of jobs, and jobs that keep resources for others."""

import pytest
from hypothesis import given, settings

from oarlock.model.job import JobState
from oarlock.plan.explain import Explainer
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import (
    NOW,
    Asked,
    asks,
    cluster,
    finished_pass,
    obstacles,
    places,
    planned,
    reserved,
    reserves,
    runs,
    snapshot,
)
from tests.plan.random_snapshots import snapshots
from tests.plan.reference import Reference

FOUR = cluster(nodes=4, cores=2)
ROOM = ("container",)
INNER = ("inner=1",)


def test_an_inner_job_runs_in_its_container_which_others_do_not():
    plan = planned(
        FOUR, runs(1, [3, 4, 5, 6], NOW + 500, types=ROOM), asks(2, "nodes=1", types=INNER), asks(3, "nodes=4")
    )
    assert places(plan) == {2: (0, (3, 4)), 3: (500, (1, 2, 3, 4, 5, 6, 7, 8))}
    assert plan.start == (2,)


def test_inner_jobs_stand_in_each_others_way():
    plan = planned(FOUR, runs(1, [3, 4], NOW + 500, types=ROOM), *(asks(at, "nodes=1", types=INNER) for at in (2, 3)))
    assert places(plan) == {2: (0, (3, 4)), 3: (100, (3, 4))}


def test_an_inner_job_starts_when_its_container_runs():
    jobs = (
        runs(9, range(1, 9), NOW + 40),
        asks(1, "nodes=2", types=ROOM),
        asks(2, "nodes=1", walltime=50, types=INNER),
    )
    plan = planned(FOUR, *jobs)
    assert places(plan) == {1: (40, (1, 2, 3, 4)), 2: (40, (1, 2))}
    now = planned(FOUR, *jobs[1:])
    assert (places(now)[2], now.start) == ((0, (1, 2)), (1,))
    launching = runs(1, [1, 2], NOW + 500, types=ROOM, state=JobState.LAUNCHING)
    assert planned(FOUR, launching, jobs[2]).start == ()


@pytest.mark.parametrize(("asked", "walltime"), [("nodes=3", 10), ("nodes=1", 501), ("nodes=1", 500)])
def test_what_is_too_much_or_too_long_for_a_container_has_no_place(asked, walltime):
    container = runs(1, [1, 2, 3, 4], NOW + 500, types=ROOM)
    plan = planned(FOUR, container, asks(2, asked, walltime=walltime, types=INNER), security_time=1)
    assert obstacles(plan) == {2: "container"}


@pytest.mark.parametrize(
    ("types", "told"),
    [
        (("inner=7",), "there is no container `7` (any more)"),
        (("inner=3",), "its container, job 3, has no place yet"),
    ],
)
def test_without_its_container_an_inner_job_has_no_place(types, told):
    plan = planned(
        FOUR,
        asks(2, "nodes=1", types=types),
        asks(3, "nodes=9", types=ROOM),
        reserves(4, "nodes=1", NOW + 5, types=types),
    )
    assert (plan.unplaced[2].obstacle, plan.unplaced[2].detail) == ("container", told)
    assert (plan.unplaced[4].obstacle, plan.refuse) == ("container", (4,))


def test_containers_of_one_name_are_one_room():
    lab = ("container=lab",)
    jobs = (runs(1, [1, 2], NOW + 500, types=lab), runs(2, [5, 6], NOW + 200, types=lab))
    wide = asks(3, "nodes=2", types=("inner=lab",))
    long = asks(4, "nodes=1", walltime=300, types=("inner=2",))
    assert places(planned(FOUR, *jobs, wide, long)) == {3: (0, (1, 2, 5, 6)), 4: (100, (1, 2))}


def test_a_room_may_be_inside_of_another():
    outer, nested = runs(1, [1, 2, 3, 4], NOW + 500, types=ROOM), runs(2, [3, 4], NOW + 200, types=(*ROOM, "inner=1"))
    plan = planned(FOUR, outer, nested, asks(3, "nodes=1", types=("inner=2",)), asks(4, "nodes=1", types=INNER))
    assert places(plan) == {3: (0, (3, 4)), 4: (0, (1, 2))}


def test_a_job_whose_container_is_gone_is_in_everybodys_way():
    plan = planned(FOUR, runs(2, [1, 2], NOW + 60, types=INNER), asks(3, "nodes=4"))
    assert places(plan) == {3: (60, (1, 2, 3, 4, 5, 6, 7, 8))}


def test_an_inner_reservation_waits_for_its_container_to_run():
    promised = reserved(2, [1, 2], NOW, NOW + 100, types=INNER)
    waits = planned(FOUR, reserved(1, [1, 2, 3, 4], NOW, NOW + 500, types=ROOM), promised)
    assert waits.start == (1,)
    assert planned(FOUR, runs(1, [1, 2, 3, 4], NOW + 500, types=ROOM), promised).start == (2,)


def test_nobody_inside_of_a_best_effort_container_makes_it_die():
    lazy = runs(1, [1, 2], NOW + 500, types=("besteffort", "container"), queue="besteffort")
    plan = planned(FOUR, lazy, asks(2, "nodes=1", types=INNER))
    assert (plan.start, plan.kill, places(plan)) == ((2,), (), {2: (0, (1, 2))})
    assert planned(FOUR, lazy, asks(3, "nodes=4")).kill == (1,)


def test_from_event_to_event_rooms_come_and_go():
    live = IncrementalPlan(snapshot(FOUR), now=NOW, settings=PlanSettings(security_time=0))
    shape = live_asks(live, asks(1, "nodes=2", types=ROOM), asks(2, "nodes=1", types=INNER))
    assert (live.decide().start, shape) == ((1,), 2)
    live.started(1)
    assert live.decide().start == (2,)
    live.started(2)
    live.advance(NOW + 5)
    assert not live.has_room(asks(9, "nodes=3").waiting(live.state.shapes))
    live.ended(1)
    plan = live.decide()
    assert (plan.orphans, plan.start) == ((2,), ())


def live_asks(live: IncrementalPlan, *jobs: Asked) -> int:
    """Let jobs wait in a plan that lives; gives how many shapes it knows then."""
    for job in jobs:
        live.submitted(job.waiting(live.state.shapes))
    return len(live.state.shapes)


def test_why_an_inner_job_waits_for_its_container():
    shot = snapshot(
        FOUR,
        reserved(1, [1, 2], NOW + 60, NOW + 500, types=ROOM),
        asks(2, "nodes=1", types=INNER),
        asks(3, "nodes=1", types=("inner=4",)),
        runs(4, [5, 6], NOW + 500, types=ROOM, state=JobState.LAUNCHING),
    )
    explainer = Explainer(finished_pass(shot, PlanSettings(security_time=0)))
    told = {job: explainer.why(job) for job in (2, 3)}
    assert told[2].says == "needs 1 node for 0:01:40; belongs into a container, job 1, which starts in 0:01:00"
    assert told[3].says == "needs 1 node for 0:01:40; belongs into a container, job 4, which does not run yet"
    assert {one.obstacle for one in told.values()} == {"container"}


def test_a_placeholder_keeps_its_resources_for_those_it_names():
    kept = runs(1, range(1, 9), NOW + 80, types=("placeholder=lab",))
    let = [
        asks(2, "nodes=4", walltime=60, types=("allow=lab",)),
        asks(3, "nodes=4", walltime=60, types=("allowed=lab",)),
    ]
    everything = tuple(range(1, 9))
    plan = planned(FOUR, kept, *let, asks(4, "nodes=4", types=("allow=gym",)))
    assert places(plan) == {2: (0, everything), 3: (60, everything), 4: (120, everything)}


def test_those_who_are_allowed_do_not_make_a_best_effort_placeholder_die():
    kept = runs(1, [1, 2], NOW + 80, types=("placeholder=lab", "besteffort"), queue="besteffort")
    assert planned(cluster(1, 2), kept, asks(2, "nodes=1", types=("allow=lab",))).kill == ()
    assert planned(cluster(1, 2), kept, asks(2, "nodes=1", types=("allow=gym",))).kill == (1,)


@settings(max_examples=150)
@given(snapshots())
def test_inner_jobs_are_always_inside(drawn):
    shot, asked = drawn
    plan = make_plan(shot, now=NOW, settings=asked)
    slow = Reference(shot, now=NOW, settings=asked).run()
    for job in shot.waiting:
        container = slow.rooms.of(job)
        if container is not None and job.job_id in plan.placements:
            place = plan.placements[job.job_id]
            mine = frozenset(plan.resources(job.job_id)) - slow.always
            stop = place.start + slow._length(slow.who(job), place.stop - place.start)
            assert mine <= slow.rooms.inside(container, place.start, stop)
