"""Multi-factor priority: what speaks for a job, term by term, and who is planned first because of it."""

import pytest
from msgspec.structs import replace

from oarlock.model.snapshot import Queue, Usage
from oarlock.plan.explain import Explainer
from oarlock.plan.planner import begin_pass, make_plan
from oarlock.plan.policies import by_priority, fair, find_policy
from oarlock.plan.priority import PriorityCalculator
from oarlock.plan.settings import Fairness, PlanSettings, Weights
from tests.plan.drawing import DEFAULT, NOW, asks, cluster, finished_pass, obstacles, places, runs, snapshot

HOUR = 3600
MULTI = Queue("default", 2, "multifactor")
ONLY = Weights(age=0, share=0, qos=0, project=0)
"""Nothing weighs anything; tests let one thing weigh."""


def weighed(*jobs, weights=ONLY, fairness=None, used=None):
    """Give the priorities of jobs, by job."""
    shot = snapshot(
        cluster(2, 4),
        *jobs,
        queues=(MULTI,),
        usage={"default": Usage(decayed_by_user=used or {})},
    )
    state = begin_pass(shot, now=NOW, settings=PlanSettings(weights=weights, fairness=fairness or Fairness()))
    weighing = PriorityCalculator(state, "default")
    return {job.job_id: weighing.of(job) for job in shot.waiting}


def factors(found):
    """Give the only factor of each job."""
    return {job_id: pytest.approx(term.factor) for job_id, priority in found.items() for term in priority.terms}


def test_age_counts_up_to_its_limit():
    jobs = [asks(n, "core=1", submitted=NOW - waited) for n, waited in enumerate((-5, 0, HOUR, 2 * HOUR, 9 * HOUR))]
    found = weighed(*jobs, weights=replace(ONLY, age=3, age_limit=4 * HOUR))
    assert factors(found) == {0: 0, 1: 0, 2: 0.25, 3: 0.5, 4: 1}
    assert found[2].terms[0].says == "waits 1:00:00 of 4:00:00"
    assert found[2].total == pytest.approx(0.75)


def test_who_used_less_than_their_share_comes_before_who_used_more():
    jobs = [asks(n, "core=1", user=user) for n, user in enumerate(("ada", "bob", "new"), 1)]
    weights = replace(ONLY, share=1)
    found = weighed(*jobs, weights=weights, used={"ada": 90.0, "bob": 10.0})
    assert factors(found) == {1: 2 ** -(0.9 / 0.5), 2: 2 ** -(0.1 / 0.5), 3: 1}
    assert found[1].terms[0].says == "ada used 90%, should 50%"
    assert factors(weighed(*jobs, weights=weights)) == {1: 1, 2: 1, 3: 1}


def test_the_sites_targets_are_shares_and_others_divide_what_they_leave():
    jobs = [asks(n, "core=1", user=user) for n, user in enumerate(("ada", "bob", "cyd"), 1)]
    fairness = Fairness(user_targets={"ada": 60})
    found = weighed(
        *jobs, weights=replace(ONLY, share=1), fairness=fairness, used={"ada": 60.0, "bob": 20.0, "cyd": 20.0}
    )
    assert factors(found) == {1: 0.5, 2: 0.5, 3: 0.5}
    nothing_left = Fairness(user_targets={"ada": 100})
    found = weighed(*jobs[:2], weights=replace(ONLY, share=1), fairness=nothing_left, used={"bob": 1.0})
    assert factors(found) == {1: 1, 2: 0}


def test_size_is_the_part_of_the_cluster_of_the_smallest_alternative():
    found = weighed(
        asks(1, "core=2"),
        asks(2, "nodes=1"),
        asks(3, "nodes=2", "core=1"),
        asks(4, "core=99"),
        asks(5, "core=2"),
        weights=replace(ONLY, size=1),
    )
    assert factors(found) == {1: 0.25, 2: 0.5, 3: 0.125, 4: 0, 5: 0.25}
    assert found[2].terms[0].says == "asks for 50% of the cluster"


def test_a_request_that_cannot_be_read_hurts_nobody_else():
    shot = snapshot(cluster(1, 2), asks(1, "core=1"), asks(2, "colour=1"), queues=(MULTI,))
    plan = make_plan(shot, now=NOW, settings=PlanSettings(weights=replace(ONLY, size=1)))
    assert (places(plan), obstacles(plan)) == ({1: (0, (1,))}, {2: "set aside"})


def test_slowdown_grows_quickly_for_short_jobs():
    jobs = [asks(n, "core=1", walltime=walltime, submitted=NOW - 100) for n, walltime in enumerate((100, 300), 1)]
    found = weighed(*jobs, weights=replace(ONLY, slowdown=1))
    assert factors(found) == {1: 0.5, 2: 0.25}
    assert found[1].terms[0].says == "waits 0:01:40 for 0:01:40"


def test_qualities_of_service_and_projects_are_worth_what_the_site_says():
    weights = replace(ONLY, qos=2, project=1, qos_values={"gold": 50.0}, project_values={"sea": 10.0})
    found = weighed(
        asks(1, "core=1", types=("qos=gold",), project="sea"), asks(2, "core=1", types=("qos=tin",)), weights=weights
    )
    assert [(term.name, term.factor, term.value, term.says) for term in found[1].terms] == [
        ("qos", 0.5, 1.0, "gold"),
        ("project", 0.1, 0.1, "sea"),
    ]
    assert (found[1].total, found[2].total, found[2].terms[0].says) == (pytest.approx(1.1), 0, "tin")


def test_the_job_with_the_highest_priority_is_planned_first():
    jobs = [asks(1, "core=4", user="ada"), asks(2, "core=4", user="bob"), asks(3, "core=4", user="ada")]
    usage = {"default": Usage(decayed_by_user={"ada": 9.0, "bob": 1.0})}
    shot = snapshot(cluster(1, 4), *jobs, queues=(MULTI,), usage=usage)
    assert places(make_plan(shot, now=NOW, settings=PlanSettings(security_time=0))) == {
        2: (0, (1, 2, 3, 4)),
        1: (100, (1, 2, 3, 4)),
        3: (200, (1, 2, 3, 4)),
    }
    depth = make_plan(shot, now=NOW, settings=PlanSettings(security_time=0, depth=1))
    assert list(places(depth)) == [2]


def test_every_policy_that_takes_jobs_in_order_can_take_them_by_priority():
    easy = find_policy("easy-sjbf+multifactor")
    assert (easy.order, easy.reservations, easy.backfill) == (by_priority, 1, find_policy("easy-sjbf").backfill)
    assert find_policy("multifactor").order is by_priority
    assert find_policy("oar_sched_gantt_with_timesharing_and_fairsharing").order is fair
    unknown = ("dice+multifactor", "easy+dice", "oar_sched_gantt_with_timesharing_and_fairsharing+multifactor")
    assert [find_policy(name) for name in unknown] == [None, None, None]
    with pytest.raises(NotImplementedError):
        by_priority([], Usage(), PlanSettings())


def test_why_shows_every_term_where_the_queue_weighs_its_jobs():
    jobs = (runs(9, [1, 2], NOW + 60), asks(1, "core=2", submitted=NOW - HOUR))
    for queue, terms in ((MULTI, ["age", "share", "qos", "project"]), (DEFAULT, None)):
        state = finished_pass(snapshot(cluster(1, 2), *jobs, queues=(queue,)), PlanSettings())
        priority = Explainer(state).why(1).priority
        assert (None if priority is None else [term.name for term in priority.terms]) == terms
    state = finished_pass(snapshot(cluster(1, 2), asks(1, "core=2"), queues=()), PlanSettings())
    assert Explainer(state).why(1).priority is None
