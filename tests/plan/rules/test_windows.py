"""Maintenance windows, and the dates that jobs have."""

from itertools import count

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from oarlock.model.snapshot import MaintenanceWindow, Queue
from oarlock.plan.explain import Explainer
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import (
    NOW,
    asks,
    cluster,
    finished_pass,
    obstacles,
    places,
    planned,
    reserves,
    runs,
    snapshot,
    table,
)
from tests.plan.drawing import licences as licence_rows
from tests.plan.random_snapshots import snapshots
from tests.plan.rules.test_quotas import rule

FOUR = cluster(nodes=4, cores=2)
COOLING = MaintenanceWindow("cooling", NOW + 50, NOW + 150, (1, 2, 3, 4))


def drained(*jobs, windows=(COOLING,), resources=FOUR, **settings):
    return planned(resources, *jobs, given={"windows": windows}, **settings)


def explained(job_id: int, *jobs, windows=(COOLING,), resources=FOUR, **given):
    shot = snapshot(resources, *jobs, windows=windows, **given)
    return Explainer(finished_pass(shot, PlanSettings(security_time=0))).why(job_id)


def test_nothing_starts_that_would_run_into_a_window():
    plan = drained(asks(1, "nodes=3", walltime=60), asks(2, "nodes=1", walltime=50), asks(3, "nodes=1", walltime=60))
    assert places(plan) == {1: (150, (1, 2, 3, 4, 5, 6)), 2: (0, (1, 2)), 3: (0, (5, 6))}


def test_the_security_time_lies_before_the_window_too():
    assert places(drained(asks(1, "nodes=4", walltime=50), security_time=1))[1][0] == 150


def test_what_runs_already_is_left_alone():
    plan = drained(runs(1, [1, 2], NOW + 90), asks(2, "nodes=1", walltime=200))
    assert (places(plan), plan.kill) == ({2: (0, (5, 6))}, ())


def test_a_window_that_is_over_is_in_nobodys_way():
    plan = drained(asks(1, "nodes=4"), windows=(MaintenanceWindow("done", NOW - 50, NOW, tuple(range(1, 9))),))
    assert plan.start == (1,)


def test_a_reservation_into_a_window_is_refused_and_told_when_it_could_be():
    plan = drained(reserves(1, "nodes=3", NOW + 100), reserves(2, "nodes=2", NOW + 100))
    assert (plan.accept, plan.refuse) == ((2,), (1,))
    assert plan.unplaced[1].detail == "the date is taken (maintenance `cooling`); it could start 0:00:50 later"


def test_a_best_effort_job_does_not_run_into_a_window():
    lazy = {"types": ("besteffort",), "queue": "besteffort"}
    plan = drained(asks(1, "nodes=2", walltime=100, **lazy), asks(2, "nodes=2", walltime=100, **lazy),
                   asks(3, "nodes=1", walltime=40, **lazy), besteffort_duration=30)  # fmt: skip
    assert places(plan) == {1: (0, (5, 6, 7, 8)), 2: (30, (5, 6, 7, 8)), 3: (0, (1, 2))}


def test_why_names_the_window_that_comes():
    told = explained(1, asks(1, "nodes=4", walltime=3600))
    says = "maintenance `cooling` of n[01-02] begins in 0:00:50, before it would be over; it starts in 0:02:30"
    assert (told.obstacle, told.says) == ("maintenance", f"needs 4 nodes for 1:00:00; {says}")


def test_why_names_the_window_that_is():
    now = MaintenanceWindow("cooling", NOW - 5, NOW + 150, (1, 2))
    told = explained(
        1, asks(1, "nodes=4", walltime=3600), windows=(now, MaintenanceWindow("later", NOW + 9999, NOW + 99999, (8,)))
    )
    says = "maintenance `cooling` keeps n01 until it ends in 0:02:30; it starts in 0:02:30"
    assert told.says == f"needs 4 nodes for 1:00:00; {says}"


def test_why_names_no_window_where_another_job_is_the_reason():
    told = explained(2, runs(1, [7, 8], NOW + 200), asks(2, "nodes=4", walltime=3600))
    assert told.says == "needs 4 nodes for 1:00:00; 3 are free now, the fourth when job 1 ends in 0:03:20"


def test_why_names_the_window_after_which_a_job_starts():
    jobs = (runs(1, [3, 4], NOW + 40), asks(2, "nodes=4", walltime=3600))
    told = explained(2, *jobs)
    assert told.says == (
        "needs 4 nodes for 1:00:00; 3 are free now; it starts when maintenance `cooling` ends, in 0:02:30"
    )


def test_why_counts_the_nodes_that_are_in_maintenance_now():
    now = MaintenanceWindow("cooling", NOW - 5, NOW + 150, (1, 2))
    told = explained(2, runs(1, [7, 8], NOW + 200), asks(2, "nodes=4", walltime=60), windows=(now,))
    assert told.says == (
        "needs 4 nodes for 0:01:00; 2 are free now (1 in maintenance `cooling`), the fourth when job 1 ends in 0:03:20"
    )


def test_why_names_the_lost_job_for_which_a_node_is_held():
    lost = MaintenanceWindow("unknown job 7", NOW - 5, NOW + 150, (1, 2), lost_job=7)
    told = explained(1, asks(1, "nodes=4", walltime=3600), windows=(lost,))
    ends = "until that ends; an administrator can end it with `oarlock unknown end`"
    assert f"n01 is held for job 7 of a lost database {ends}" in told.says
    told = explained(2, runs(1, [7, 8], NOW + 200), asks(2, "nodes=4", walltime=60), windows=(lost,))
    assert "2 are free now (1 held for job 7 of a lost database)" in told.says
    told = explained(2, runs(1, [3, 4], NOW + 40), asks(2, "nodes=4", walltime=3600), windows=(lost,))
    assert "it starts when job 7 of a lost database ends, in 0:02:30" in told.says


def test_why_names_no_window_that_is_far_away():
    far = (MaintenanceWindow("later", NOW + 9999, NOW + 99999, (8,)),)
    told = explained(2, runs(1, [7, 8], NOW + 200), asks(2, "nodes=4", walltime=60), windows=far)
    assert told.obstacle == "busy"


def test_a_best_effort_job_has_no_place_where_its_node_is_gone():
    rows = cluster(1, 1, state="Absent", cm_availability=NOW + 90)
    lazy = asks(1, "nodes=1", walltime=60, types=("besteffort",), queue="besteffort")
    given_limits = {
        "windows": (MaintenanceWindow("x", NOW + 40, NOW + 90, (1,)),),
        "quotas": (rule("*,*,*,eve", jobs=1),),
    }
    plan = planned(rows, lazy, given=given_limits, wake_up=True, besteffort_duration=30)
    assert obstacles(plan) == {1: "unavailable"}


def test_a_place_of_an_unfinished_pass_is_not_kept_where_a_limit_came():
    jobs = snapshot(FOUR, asks(1, "core=4"), asks(2, "core=2"))
    how, looks = PlanSettings(security_time=0), count(1)
    first = make_plan(jobs, now=NOW, settings=how, out_of_time=lambda: next(looks) > 2)
    assert first.unfinished
    limited = replace(jobs, quotas=(rule("*,*,*,/", resources=3),))
    second = make_plan(limited, now=NOW, settings=how, previous=first)
    assert (places(second), obstacles(second)) == ({2: (0, (1, 2))}, {1: "quota"})


def test_why_speaks_of_resources_where_a_window_has_no_node():
    rows = table(*licence_rows(2))
    told = explained(
        1, asks(1, "resource_id=1"), windows=(MaintenanceWindow("x", NOW, NOW + 9, (1, 2)),), resources=rows
    )
    assert "maintenance `x` keeps resources until it ends in 0:00:09" in told.says


def test_why_names_the_quota_and_the_date_that_a_job_asked_for():
    quotas = (rule("*,*,*,/", resources=3),)
    jobs = (runs(1, [1, 2], NOW + 60), asks(2, "core=2"), asks(3, "core=1", not_before=NOW + 600, user="bob"))
    told = explained(2, *jobs, windows=(), quotas=quotas)
    says = "the quota `*,*,*,/` is 3 resources at once; 2 are taken and it asks for 2; it starts in 0:01:00"
    assert (told.obstacle, told.says) == ("quota", f"needs 2 cores for 0:01:40; {says}")
    assert (
        explained(3, *jobs, windows=(), quotas=quotas).says
        == "needs 1 core for 0:01:40; asked to start in 0:10:00 at the earliest"
    )


def test_why_names_the_quota_where_the_cluster_is_full_too():
    jobs = (runs(1, [1, 2], NOW + 60), runs(2, range(3, 9), NOW + 30, user="bob"), asks(3, "core=2"))
    told = explained(3, *jobs, windows=(), quotas=(rule("*,*,*,/", resources=3),))
    assert told.obstacle == "quota"


def test_a_job_starts_no_earlier_than_it_asked_to():
    plan = planned(FOUR, asks(1, "nodes=1", not_before=NOW + 30), asks(2, "nodes=1", not_before=NOW - 30))
    assert places(plan) == {1: (30, (1, 2)), 2: (0, (3, 4))}


def test_a_job_that_cannot_keep_its_deadline_is_given_up():
    busy = runs(9, range(1, 9), NOW + 40)
    plan = planned(FOUR, busy, asks(1, "nodes=1", walltime=60, deadline=NOW + 100),
                   asks(2, "nodes=1", walltime=60, deadline=NOW + 99),
                   asks(3, "nodes=1", walltime=60, deadline=NOW + 59),
                   reserves(4, "nodes=1", NOW + 50, deadline=NOW + 10))  # fmt: skip
    assert (places(plan), obstacles(plan)) == ({1: (40, (3, 4)), 4: (50, (1, 2))}, {2: "deadline", 3: "deadline"})
    assert (plan.unplaced[2].earliest, plan.refuse, plan.accept) == (NOW + 40, (3,), (4,))


def test_an_alternative_that_keeps_the_deadline_is_chosen():
    plan = planned(FOUR, runs(9, [1, 2], NOW + 40), asks(1, "nodes=4", "nodes=2", walltime=[20, 50], deadline=NOW + 55))
    assert places(plan) == {1: (0, (3, 4, 5, 6))}


def test_a_job_that_moves_up_obeys_windows_and_quotas():
    lazy = {"types": ("besteffort",), "queue": "besteffort"}
    shot = snapshot(
        FOUR,
        runs(1, range(1, 9), NOW + 100),
        asks(2, "nodes=2", walltime=60),
        asks(3, "nodes=2", walltime=60),
        asks(4, "nodes=4", walltime=60, user="bob", **lazy),
        windows=(MaintenanceWindow("x", NOW + 300, NOW + 400, (1,)),),
        quotas=(rule("*,*,*,/", jobs=1),),
    )
    live = IncrementalPlan(shot, now=NOW, settings=PlanSettings(security_time=0, besteffort_duration=30))
    assert {job: place.start - NOW for job, place in live.decide().placements.items()} == {2: 100, 3: 160, 4: 220}
    live.advance(NOW + 10)
    live.ended(1)
    assert live.decide().start == (2,)


def test_a_plan_that_lives_starts_a_job_at_the_date_it_asked_for():
    live = IncrementalPlan(snapshot(FOUR), now=NOW, settings=PlanSettings(security_time=0))
    live.submitted(asks(1, "nodes=1", not_before=NOW + 30).waiting(live.state.shapes))
    assert live.decide().start == ()
    live.advance(NOW + 30)
    assert live.decide().start == (1,)


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_under_other_policies_limits_hold_as_well(policy):
    queues = (Queue("default", 2, policy),)
    jobs = (runs(9, [1, 2, 3, 4], NOW + 60), asks(1, "nodes=3", user="bob"), asks(2, "nodes=1", walltime=60),
            asks(3, "nodes=1", walltime=40), asks(4, "nodes=1", not_before=NOW + 30), asks(5, "nodes=1", walltime=40,
            user="eve", deadline=NOW + 30))  # fmt: skip
    limits = {
        "queues": queues,
        "quotas": (rule("*,*,*,ada", jobs=2),),
        "windows": (MaintenanceWindow("x", NOW + 50, NOW + 70, (5,)),),
    }
    plan = planned(FOUR, *jobs, given=limits)
    assert plan.start == (2,)
    told = {job: str(one.obstacle) for job, one in plan.unplaced.items()}
    assert told == ({3: "quota", 4: "postponed", 5: "deadline"} if policy == "easy" else {5: "deadline"})


@settings(max_examples=150)
@given(snapshots())
def test_nothing_that_is_planned_overlaps_a_window(drawn):
    shot, asked = drawn
    plan = make_plan(shot, now=NOW, settings=asked)
    for job in shot.waiting:
        place = plan.placements.get(job.job_id)
        for window in shot.windows:
            apart = place is None or place.stop <= window.start or window.stop <= place.start
            always = {"frontend", "licence"} & set(asked.always_assigned)
            types = dict(zip(shot.resources.ids, shot.resources.columns["type"], strict=True))
            mine = {one for one in plan.resources(job.job_id) if types[one] not in always} if not apart else set()
            assert not mine & set(window.resources)
