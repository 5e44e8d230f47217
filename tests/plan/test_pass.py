"""The pass: queues by priority, jobs in their order, each at the earliest place that delays nobody before it."""

from itertools import count

import pytest
from msgspec.structs import replace

from oarlock.model.event import Event, EventType
from oarlock.model.job import JobState
from oarlock.model.plan import Placement
from oarlock.model.snapshot import Dependency, Queue, Usage
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import Fairness, PlanSettings
from tests.plan.drawing import (
    DEFAULT,
    FAIR,
    FIFO,
    NOW,
    asks,
    cluster,
    licences,
    node,
    obstacles,
    places,
    planned,
    reserves,
    runs,
    snapshot,
    table,
)

ONE = cluster(1, 4)


def calls(most):
    """Let the time run out after so many looks at the clock."""
    looked = count(1)
    return lambda: next(looked) > most


def test_a_wide_job_waits_for_the_narrow_one_to_end():
    plan = planned(ONE, runs(1, [1], NOW + 60), asks(2, "core=4"))
    assert (places(plan), plan.start) == ({2: (60, (1, 2, 3, 4))}, ())


@pytest.mark.manual(184)
def test_a_later_job_fills_a_hole_if_it_delays_nobody():
    jobs = [runs(1, [1, 2], NOW + 60), asks(2, "core=4", walltime=50)]
    plan = planned(ONE, *jobs, asks(3, "core=2", walltime=60), asks(4, "core=1", walltime=61))
    assert places(plan) == {2: (60, (1, 2, 3, 4)), 3: (0, (3, 4)), 4: (110, (1,))}
    assert plan.start == (3,)


@pytest.mark.manual(170)
def test_the_security_time_lies_between_jobs():
    plan = planned(ONE, asks(1, "core=4", walltime=50), asks(2, "core=4"), security_time=7)
    assert [place.start - NOW for place in plan.placements.values()] == [0, 57]
    assert plan.placements[1] == Placement(1, 10, NOW, NOW + 50, 0b1111)


@pytest.mark.manual(170)
def test_holes_shorter_than_the_minimum_are_left_empty():
    jobs = [runs(1, [1, 2], NOW + 60), asks(2, "core=4", walltime=50), asks(3, "core=2", walltime=10)]
    assert places(planned(ONE, *jobs, minimum_hole=60))[3] == (0, (3, 4))
    assert places(planned(ONE, *jobs, minimum_hole=61))[3] == (110, (1, 2))


@pytest.mark.manual(183)
def test_queues_are_planned_by_priority_not_by_name_or_number():
    low, high = Queue("default", 1, FIFO), Queue("urgent", 9, FIFO)
    asked = snapshot(ONE, asks(1, "core=4"), asks(2, "core=4", queue="urgent"), queues=(low, high))
    assert places(make_plan(asked, now=NOW, settings=PlanSettings(security_time=0))) == {
        2: (0, (1, 2, 3, 4)),
        1: (100, (1, 2, 3, 4)),
    }


@pytest.mark.parametrize(
    ("queues", "detail"),
    [
        ((replace(DEFAULT, active=False),), "queue `default` is stopped"),
        ((replace(DEFAULT, policy="dice"),), "queue `default` has an unknown policy `dice`"),
        ((), "there is no queue `default`"),
    ],
)
def test_jobs_of_a_queue_that_is_not_served_are_told_so(queues, detail):
    plan = make_plan(snapshot(ONE, asks(1, "core=1"), queues=queues), now=NOW)
    assert (obstacles(plan), plan.unplaced[1].detail) == ({1: "queue stopped"}, detail)


@pytest.mark.manual(5)
def test_of_moldable_alternatives_the_one_that_ends_first_wins():
    busy = runs(1, [1, 2], NOW + 30)
    plan = planned(ONE, busy, asks(2, "core=4", "core=2", walltime=[50, 81]))
    assert plan.placements[2] == Placement(2, 20, NOW + 30, NOW + 80, 0b1111)
    plan = planned(ONE, busy, asks(2, "core=4", "core=2", walltime=[50, 79]))
    assert plan.placements[2] == Placement(2, 21, NOW, NOW + 79, 0b1100)
    plan = planned(ONE, busy, asks(2, "core=4", "core=2", walltime=[50, 80]))
    assert plan.placements[2].moldable_id == 20
    plan = planned(ONE, busy, asks(2, "core=9", "core=2"))
    assert plan.placements[2].moldable_id == 21


def test_a_job_that_is_too_big_says_so_and_one_that_lacks_resources_too():
    broken = table(*node("a", 2), *node("b", 2, state="Suspected"))
    plan = planned(broken, asks(1, "core=5"), asks(2, "nodes=2"), asks(3, "core=9", "core=3"), asks(4, "nodes=1"))
    assert obstacles(plan) == {1: "too big", 2: "unavailable", 3: "unavailable"}
    assert plan.unplaced[1].detail == "the cluster never has what it asks for, even empty"
    assert plan.unplaced[2].detail == "too many of the resources it could use are away"


def test_a_job_past_its_end_still_holds_its_resources():
    plan = planned(ONE, runs(1, [1, 2, 3, 4], NOW - 5), asks(2, "core=1"))
    assert (places(plan), plan.start) == ({2: (1, (1,))}, ())


@pytest.mark.manual(172)
def test_a_suspended_job_leaves_resources_of_some_types_to_others():
    mixed = table(*node("a", 2), *licences(1))
    asleep = runs(1, [1, 2, 3], NOW + 60, state=JobState.SUSPENDED)
    jobs = [asks(2, "core=2"), asks(3, "{type='licence'}/resource_id=1")]
    assert places(planned(mixed, asleep, *jobs, shared_when_suspended=("default",))) == {2: (0, (1, 2)), 3: (60, (3,))}
    assert places(planned(mixed, asleep, *jobs)) == {2: (60, (1, 2)), 3: (60, (3,))}


def test_a_table_without_types_gives_nothing_back():
    bare = snapshot(ONE, runs(1, [1, 2, 3, 4], NOW + 60, state=JobState.SUSPENDED), asks(2, "core=1"))
    bare.resources.columns.pop("type")
    plan = make_plan(bare, now=NOW, settings=PlanSettings(security_time=0, shared_when_suspended=("default",)))
    assert places(plan) == {2: (60, (1,))}


@pytest.mark.manual(185)
def test_those_who_used_less_come_first_where_the_queue_is_fair():
    usage = {"default": Usage(10, 10, {"ada": 9}, {"ada": 9})}
    jobs = [asks(1, "core=4", user="ada"), asks(2, "core=4", user="bob"), asks(3, "core=4", user="cyd")]
    asked = snapshot(ONE, *jobs, queues=(replace(DEFAULT, policy=FAIR),), usage=usage)
    plan = make_plan(asked, now=NOW, settings=PlanSettings(security_time=0, fairness=Fairness(max_jobs=2)))
    assert places(plan) == {2: (0, (1, 2, 3, 4)), 3: (100, (1, 2, 3, 4))}
    assert obstacles(plan) == {1: "far back"}


def test_one_pass_may_look_only_so_far_back():
    plan = planned(ONE, *(asks(at, "core=1") for at in (1, 2, 3)), depth=2)
    assert (list(plan.placements), obstacles(plan)) == ([1, 2], {3: "far back"})
    assert plan.unplaced[3].detail == "2 jobs of its queue come first"


def test_a_bad_job_is_set_aside_with_an_event_and_hurts_nobody_else():
    plan = planned(ONE, asks(1, "core=4"), asks(2, "colour=1"), asks(3, "core=4", types=("timesharing=odd",)),
                   reserves(4, "colour=1", NOW), asks(5, "core=4"))  # fmt: skip
    assert places(plan) == {1: (0, (1, 2, 3, 4)), 5: (100, (1, 2, 3, 4))}
    assert obstacles(plan) == {4: "set aside", 2: "set aside", 3: "set aside"}
    assert plan.unplaced[2].detail == "planning it failed: There is no property `colour`."
    assert (plan.accept, plan.refuse) == ((), ())
    aside = EventType.SCHEDULER_JOB_SET_ASIDE
    assert plan.events == (
        Event(aside, NOW, "planning job 4 failed: There is no property `colour`.", 4),
        Event(aside, NOW, "planning job 2 failed: There is no property `colour`.", 2),
        Event(aside, NOW, "planning job 3 failed: `timesharing=odd` is not a way to share.", 3),
    )


def test_a_running_job_with_a_bad_type_holds_its_resources():
    odd = runs(1, [1], NOW + 50, types=("timesharing=odd",))
    plan = planned(ONE, odd, asks(2, "core=4"), asks(3, "core=2", types=("timesharing",)))
    assert places(plan) == {2: (50, (1, 2, 3, 4)), 3: (150, (1, 2))}


@pytest.mark.manual(170)
def test_when_time_runs_out_the_next_pass_goes_on_there():
    asked = snapshot(ONE, *(asks(at, "core=4") for at in (1, 2, 3)))
    first = make_plan(asked, now=NOW, settings=PlanSettings(security_time=0), out_of_time=calls(2))
    assert (places(first), obstacles(first)) == ({1: (0, (1, 2, 3, 4))}, {2: "out of time", 3: "out of time"})
    assert first.unfinished
    assert first.start == (1,)
    second = make_plan(asked, now=NOW, settings=PlanSettings(security_time=0), previous=first)
    assert [place[0] for place in places(second).values()] == [0, 100, 200]
    assert not second.unfinished


def test_what_an_unfinished_pass_gave_is_kept():
    busy = snapshot(ONE, runs(9, [1, 2, 3, 4], NOW + 50), asks(1, "core=1"), asks(2, "core=1"))
    first = make_plan(busy, now=NOW, settings=PlanSettings(security_time=0), out_of_time=calls(2))
    quiet = snapshot(ONE, asks(1, "core=1"), asks(2, "core=1"))
    second = make_plan(quiet, now=NOW, settings=PlanSettings(security_time=0), previous=first)
    assert places(second) == {1: (50, (1,)), 2: (0, (2,))}
    third = make_plan(quiet, now=NOW, settings=PlanSettings(security_time=0), previous=second)
    assert places(third) == {1: (0, (1,)), 2: (0, (2,))}


def test_a_place_that_is_gone_is_not_kept():
    settings = PlanSettings(security_time=0)
    first = make_plan(snapshot(ONE, asks(1, "core=1"), asks(2, "core=1")), now=NOW, settings=settings,
                      out_of_time=calls(2))  # fmt: skip
    taken = snapshot(ONE, runs(9, [1], NOW + 50), asks(1, "core=1"))
    assert places(make_plan(taken, now=NOW, settings=settings, previous=first)) == {1: (0, (2,))}
    later = snapshot(ONE, asks(1, "core=1"))
    assert make_plan(later, now=NOW + 5, settings=settings, previous=first).placements[1].start == NOW + 5
    other = snapshot(cluster(2, 4), asks(1, "nodes=1"))
    assert places(make_plan(other, now=NOW, settings=settings, previous=first)) == {1: (0, (1, 2, 3, 4))}


def test_a_place_is_not_kept_against_a_dependency():
    settings = PlanSettings(security_time=0)
    waits, failed = (Dependency(9, JobState.TERMINATED, 0),), (Dependency(9, JobState.TERMINATED, 256),)
    jobs = [asks(1, "core=1", after=waits), asks(2, "core=1")]
    first = make_plan(snapshot(ONE, *jobs), now=NOW, settings=settings, out_of_time=calls(2))
    assert places(first) == {1: (0, (1,))}
    broken = snapshot(ONE, asks(1, "core=1", after=failed), asks(2, "core=1"))
    assert obstacles(make_plan(broken, now=NOW, settings=settings, previous=first)) == {1: "broken dependency"}
    running = snapshot(ONE, runs(9, [4], NOW + 30), asks(1, "core=1", after=(Dependency(9, JobState.RUNNING),)))
    assert places(make_plan(running, now=NOW, settings=settings, previous=first)) == {1: (30, (1,))}


@pytest.mark.manual(183)
def test_lesser_reservations_wait_for_jobs_of_better_queues():
    asked = snapshot(ONE, asks(1, "core=1"), asks(2, "core=4"), reserves(3, "core=4", NOW, queue="besteffort"))
    plan = make_plan(asked, now=NOW, settings=PlanSettings(security_time=0), out_of_time=calls(2))
    assert obstacles(plan) == {2: "out of time", 3: "out of time"}
    assert (plan.accept, plan.refuse) == ((), ())


def test_what_every_job_has_is_in_nobodys_way_even_if_it_is_asked_for():
    resources = table(*node("a", 1), *node("front", 1, type="frontend"))
    plan = planned(resources, asks(1, "resource_id=2"), asks(2, "{type='frontend'}/resource_id=1"),
                   always_assigned=("frontend",))  # fmt: skip
    assert places(plan) == {1: (0, (1, 2)), 2: (0, (2,))}


def test_settings_have_defaults():
    assert places(make_plan(snapshot(ONE, asks(1, "core=1")), now=NOW)) == {1: (0, (1,))}
