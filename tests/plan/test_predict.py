"""Walltime prediction: plans with the time that jobs will probably take, and no promise built on it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.snapshot import MaintenanceWindow, Queue, QuotaRule, QuotaSpan
from oarlock.plan import policies
from oarlock.plan.planner import begin_pass, make_plan, run_pass
from oarlock.plan.policies import by_priority, find_policy
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import NOW, asks, cluster, places, reserved, reserves, runs, snapshot
from tests.plan.random_snapshots import small

EASY = Queue("default", 2, "easy-sjbf+predict")


def plan(resources, *jobs, recent=None, queue=EASY, now=NOW):
    shot = snapshot(resources, *jobs, queues=(queue,), recent=recent or {})
    return make_plan(shot, now=now, settings=PlanSettings(security_time=0))


@pytest.mark.parametrize(
    ("walltime", "past", "expected"),
    [
        (100, (), 100),
        (100, (10,), 100),
        (100, (10, 20), 15),
        (100, (10, 20, 9000), 15),
        (100, (300, 200), 100),
        (100, (0, 1), 1),
    ],
)
def test_a_prediction_is_the_mean_of_two_within_the_walltime(walltime, past, expected):
    assert policies.predicted(walltime, past) == expected


def test_a_job_that_takes_longer_than_foreseen_takes_all_that_it_asked_for():
    job = runs(1, [1], NOW + 950)  # started at NOW - 50
    assert policies.expected_stop(job, (100, 100), NOW) == NOW + 50
    assert policies.expected_stop(job, (50, 50), NOW) == NOW + 950
    assert policies.expected_stop(job, (), NOW) == NOW + 950


def test_policies_predict_unless_they_keep_dates():
    assert find_policy("easy+predict") == find_policy("easy")
    assert find_policy("easy+multifactor+predict").order is by_priority
    assert [find_policy(name) for name in ("conservative+predict", "easy+predict+predict", "dice+predict")] == [
        None
    ] * 3
    assert [Queue("q", 1, policy).predicts for policy in ("easy+predict", "easy+multifactor", "predict")] == [
        True, False, False,
    ]  # fmt: skip


def test_jobs_start_in_holes_that_only_a_prediction_makes():
    jobs = (runs(9, [1], NOW + 500), asks(1, "core=2", walltime=100), asks(2, "core=1", walltime=900, user="bob"))
    found = plan(cluster(1, 2), *jobs, recent={"bob": (40, 60)})
    assert found.start == (2,)
    assert (found.placements[2].start, found.placements[2].stop) == (NOW, NOW + 900)
    assert found.placements[1].start == NOW + 500
    assert plan(cluster(1, 2), *jobs).start == ()


def test_a_running_job_is_expected_to_end_when_its_users_jobs_do():
    jobs = (runs(9, [1, 2], NOW + 500, user="bob"), asks(1, "core=2"))
    assert places(plan(cluster(1, 2), *jobs, recent={"bob": (80, 80)})) == {1: (30, (1, 2))}
    assert places(plan(cluster(1, 2), *jobs, recent={"bob": (50, 50)})) == {1: (500, (1, 2))}


def test_the_shortest_is_the_one_that_is_foreseen_to_be():
    jobs = (
        runs(9, [1, 2, 3], NOW + 500),
        asks(1, "core=4"),
        asks(2, "core=1", walltime=200, user="bob"),
        asks(3, "core=1", walltime=400, user="cyd"),
    )
    assert plan(cluster(1, 4), *jobs).start == (2,)
    assert plan(cluster(1, 4), *jobs, recent={"cyd": (5, 5)}).start == (3,)


def test_no_job_starts_that_would_break_a_promise_if_it_took_all_its_time():
    date = reserved(9, [1, 2], NOW + 100, NOW + 200)
    jobs = (date, asks(1, "core=1", walltime=150, user="bob"))
    assert plan(cluster(1, 2), *jobs, recent={"bob": (10, 10)}).start == ()
    # Where there is another place it goes there, and one that asks for less may go before the date.
    assert places(plan(cluster(2, 2), *jobs, recent={"bob": (10, 10)})) == {1: (0, (3,))}
    short = (date, asks(1, "core=1", walltime=90, user="bob"))
    assert plan(cluster(1, 2), *short, recent={"bob": (10, 10)}).start == (1,)


def test_new_reservations_are_answered_as_if_every_job_took_all_its_time():
    jobs = (runs(9, [1, 2], NOW + 500, user="bob"), reserves(1, "core=2", NOW + 100))
    found = plan(cluster(1, 2), *jobs, recent={"bob": (60, 60)})
    assert (found.accept, found.refuse) == ((), (1,))
    free = (reserves(1, "core=2", NOW + 100), asks(2, "core=1", walltime=500, user="bob"))
    found = plan(cluster(1, 2), *free, recent={"bob": (60, 60)})
    assert (found.accept, found.start) == ((1,), ())


def test_many_jobs_in_the_way_of_a_date_are_planned_as_they_asked():
    date = reserved(99, [1, 2, 3], NOW + 100, NOW + 200)
    jobs = [asks(n, "core=3", walltime=50 * n, user="bob") for n in range(3, 20)]
    found = plan(cluster(1, 3), date, *jobs, recent={"bob": (1, 1)}, queue=replace(EASY, policy="depth-9+predict"))
    assert found.start == ()


def test_no_job_starts_that_would_run_into_maintenance():
    window = MaintenanceWindow("cooling", NOW + 100, NOW + 900, (1, 2))
    for walltime, starts in ((150, ()), (90, (1,))):
        job = asks(1, "core=1", walltime=walltime, user="bob")
        shot = snapshot(cluster(1, 2), job, queues=(EASY,), recent={"bob": (10, 10)}, windows=(window,))
        assert make_plan(shot, now=NOW, settings=PlanSettings(security_time=0)).start == starts


@pytest.mark.parametrize(
    "said",
    [{"deadline": NOW + 5000}, {"types": ("container",)}, {"types": ("placeholder=p",)}, {"types": ("inner=9",)}],
)
def test_who_others_count_on_keeps_all_its_time(said):
    shot = snapshot(cluster(1, 2), asks(1, "core=1", user="bob", **said), queues=(EASY,), recent={"bob": (10, 10)})
    shown = policies.with_predictions(shot, {"default"}, now=NOW)
    assert shown.waiting == shot.waiting
    held = runs(2, [1], NOW + 500, user="bob", types=("container",))
    shot = snapshot(cluster(1, 2), held, queues=(EASY,), recent={"bob": (80, 80)})
    assert policies.with_predictions(shot, {"default"}, now=NOW).placed == shot.placed


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"quotas": (QuotaRule("*", "*", "*", "/", jobs=3),)}, {"default"}),
        ({"quotas": (QuotaRule("*", "*", "*", "/", resource_seconds=3600),)}, set()),
        ({"quota_spans": (QuotaSpan(NOW, NOW + 9, ()),)}, set()),
    ],
)
def test_where_quotas_count_time_nothing_is_predicted(limits, expected):
    assert policies.predicting_queues(snapshot(cluster(1, 2), queues=(EASY,), **limits)) == expected


def drawn_with_predictions(r):
    drawn, settings = small(r)
    policy = r.choice(["easy+predict", "easy-sjbf+predict", "depth-2+predict", "multifactor+predict"])
    queues = tuple(replace(queue, policy=policy, active=True) for queue in drawn.queues)
    recent = {"ada": (r.choice([1, 5, 30]), 5), "bob": (9, r.choice([1, 50]))}
    return replace(drawn, queues=queues, recent=recent), settings


@given(st.randoms(use_true_random=False))
def test_no_start_is_ever_in_the_way_of_a_promise_or_of_who_is_there(r):
    drawn, settings = drawn_with_predictions(r)
    found = make_plan(drawn, now=NOW, settings=settings)
    asked = {choice.moldable_id: choice.walltime for job in drawn.waiting for choice in job.choices}
    undated = {job.job_id: job for job in drawn.waiting if job.reservation == Reservation.NONE}
    promised = [
        (job.start, set(job.resources))
        for job in drawn.placed
        if job.state == JobState.WAITING
        and job.reservation == Reservation.SCHEDULED
        and job.stop > NOW
        and not job.types
    ]
    plain = {job.job_id for job in drawn.waiting if not job.types}
    promised += [
        (found.placements[number].start, set(found.resources(number))) for number in found.accept if number in plain
    ]
    always = {
        id_ for id_, kind in zip(drawn.resources.ids, drawn.resources.columns["type"], strict=True)
        if kind in settings.always_assigned
    }  # fmt: skip
    held = [job for job in drawn.placed if job.state in HOLDS_RESOURCES and not job.types]
    for number in found.start:
        if number not in undated:
            continue
        place, taken = found.placements[number], set(found.resources(number)) - always
        assert place.stop == place.start + asked[place.moldable_id]
        for start, where in promised if not undated[number].types else ():
            assert start >= place.stop or not taken & (where - always), f"job {number} is in the way of a promise"
        if not undated[number].types:
            assert all(not taken & set(job.resources) for job in held if job.state != JobState.SUSPENDED)


@pytest.mark.parametrize("seed", range(20))
def test_without_a_prediction_the_plan_is_the_plain_one(seed):
    drawn, settings = small(Random(seed))
    plain = run_pass(begin_pass(drawn, now=NOW, settings=settings))
    assert make_plan(drawn, now=NOW, settings=settings) == plain
    everybody, settings = drawn_with_predictions(Random(seed))
    unknown = replace(everybody, recent={})
    assert make_plan(unknown, now=NOW, settings=settings).placements == (
        run_pass(begin_pass(unknown, now=NOW, settings=settings)).placements
    )
