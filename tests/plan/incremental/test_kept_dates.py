"""`conservative` keeps its dates from one snapshot to the next, where the snapshot says what was told."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from oarlock.model.job import JobState
from oarlock.model.plan import Obstacle, Plan
from oarlock.model.snapshot import Dependency, Promise, Queue, Snapshot
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.planner import make_plan
from oarlock.plan.policies import POLICIES, find_policy
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import NOW, asks, cluster, node, places, runs, snapshot, table
from tests.plan.random_snapshots import small

QUIET = PlanSettings(security_time=0)
KEEPS = (Queue("default", 2, "conservative"),)


def promised(plan: Plan) -> dict[int, Promise]:
    """Give what a plan told, as a database keeps it."""
    return {n: Promise(p.moldable_id, p.start, plan.resources(n)) for n, p in plan.placements.items()}


def planned(seen: Snapshot, now: int = NOW) -> Plan:
    return make_plan(seen, now=now, settings=QUIET)


@pytest.mark.parametrize("name", [*POLICIES, "conservative+multifactor", "depth-3"])
def test_a_queue_knows_whether_its_policy_keeps_dates(name):
    policy = find_policy(name)
    assert policy is not None
    assert Queue("default", 1, name).keeps_dates == policy.keeps_dates


def test_a_date_is_kept_though_somebody_before_it_could_use_the_place():
    one, two = runs(1, [1], NOW + 100), runs(2, [2], NOW + 40)
    wide, late, small_one = (
        asks(3, "nodes=2", walltime=50),
        asks(4, "nodes=1", walltime=70),
        asks(5, "nodes=1", walltime=55),
    )
    first = planned(snapshot(cluster(2, 1), one, two, wide, late, small_one, queues=KEEPS))
    assert places(first) == {3: (100, (1, 2)), 4: (150, (1,)), 5: (40, (2,))}
    second = snapshot(cluster(2, 1), two, wide, late, small_one, queues=KEEPS)
    told = structs.replace(second, promised=promised(first))
    assert places(planned(told, NOW + 35))[5] == (35, (1,))
    assert places(IncrementalPlan(told, now=NOW + 35, settings=QUIET).decide())[5] == (35, (1,))
    assert places(planned(second, NOW + 35))[5] == (90, (2,))  # nobody was told anything


def chain(begin: int, **more: object) -> Snapshot:
    """Draw a job that runs on both nodes, and three that follow each other on the first, with one beside them."""
    jobs = [asks(number, "nodes=1", walltime=100, where="network_address = 'n01'") for number in (2, 3, 4)]
    return snapshot(
        cluster(2, 1), runs(1, [1, 2], begin + 100), *jobs, asks(5, "nodes=2", walltime=10), queues=KEEPS, **more
    )


def test_who_follows_a_job_that_began_late_follows_it_late_and_not_last():
    first = planned(chain(NOW))
    assert {n: start for n, (start, _) in places(first).items()} == {2: 100, 3: 200, 4: 300, 5: 400}
    slipped = structs.replace(chain(NOW + 3), promised=promised(first))
    assert {n: start for n, (start, _) in places(planned(slipped)).items()} == {2: 103, 3: 203, 4: 303, 5: 403}


def test_a_job_of_always_assigned_resources_keeps_its_date():
    always = structs.replace(QUIET, always_assigned=("frontend",))
    resources = table(*node("n1", 1), {"type": "frontend", "network_address": "front"})
    asked = [
        asks(2, "nodes=1", walltime=50, where="type = 'default'", after=(Dependency(3, JobState.WAITING),)),
        asks(3, "{type = 'frontend'}/resource_id=1", walltime=20),
    ]
    first = make_plan(snapshot(resources, asked[1], queues=KEEPS), now=NOW, settings=always)
    told = snapshot(resources, *asked, queues=KEEPS, promised=promised(first))
    later = make_plan(told, now=NOW + 5, settings=always)
    assert {job: start for job, (start, _) in places(later).items()} == {3: 5, 2: 25}


def test_a_date_in_a_hole_that_would_be_too_short_for_others_is_kept():
    picky = structs.replace(QUIET, minimum_hole=25)
    seen = snapshot(cluster(1, 1), *(asks(number, "nodes=1", walltime=1) for number in (1, 2)), queues=KEEPS)
    first = make_plan(seen, now=NOW, settings=picky)
    told = structs.replace(seen, promised=promised(first))
    assert places(make_plan(told, now=NOW, settings=picky)) == places(first) == {1: (0, (1,)), 2: (1, (1,))}


def test_a_date_that_has_become_too_late_for_a_deadline_is_not_kept():
    job = asks(2, "nodes=1", walltime=50, deadline=NOW + 150)
    first = planned(snapshot(cluster(1, 1), runs(1, [1], NOW + 100), job, queues=KEEPS))
    late = snapshot(cluster(1, 1), runs(1, [1], NOW + 101), job, queues=KEEPS, promised=promised(first))
    assert (places(first), places(planned(late))) == ({2: (100, (1,))}, {})


def test_who_is_looked_at_a_little_after_its_date_starts_then():
    first = planned(chain(NOW))
    free = structs.replace(chain(NOW), placed=(), promised=promised(first))
    second = planned(free, NOW + 102)
    assert second.start == (2,)
    assert {n: start for n, (start, _) in places(second).items()} == {2: 102, 3: 202, 4: 302, 5: 402}


@pytest.mark.parametrize("away", [{"state": "Suspected"}, {"switch": "other"}, None])
def test_a_place_that_is_no_more_what_was_asked_for_is_not_kept(away):
    def there(**changed: object) -> list:
        return [*node("n01", 1, switch="s1"), *node("n02", 1, **{"switch": "s1", **changed})]

    jobs = (runs(1, [1], NOW + 500), runs(2, [2], NOW + 100), asks(3, "nodes=1", walltime=10, where="switch = 's1'"))
    first = planned(snapshot(table(*there()), *jobs, queues=KEEPS))
    assert places(first) == {3: (100, (2,))}
    rest = (jobs[0], jobs[2])
    now_there = table(*there(**away)) if away is not None else table(*there()[:1])
    second = structs.replace(snapshot(now_there, *rest, queues=KEEPS), promised=promised(first))
    assert places(planned(second)) == {3: (500, (1,))}


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_nobody_is_told_later_when_nothing_happened_but_an_early_end(r: Random):
    drawn, asked = small(r)
    drawn = structs.replace(
        drawn,
        queues=tuple(structs.replace(queue, policy="conservative") for queue in drawn.queues),
        waiting=tuple(structs.replace(job, deadline=None, queue="default") for job in drawn.waiting),  # nobody is above
        quotas=(), quota_spans=(), windows=(),
    )  # fmt: skip
    first = make_plan(drawn, now=NOW, settings=asked)
    gone = {job.job_id for job in drawn.placed if r.random() < 0.3 and not job.types}
    second = make_plan(
        structs.replace(
            drawn,
            placed=tuple(job for job in drawn.placed if job.job_id not in gone),
            promised=promised(first),
        ),
        now=NOW,
        settings=asked,
    )
    for job in drawn.waiting:
        if job.job_id in first.placements and not job.after and not job.types and job.job_id not in first.accept:
            assert second.placements[job.job_id].start <= first.placements[job.job_id].start


def test_a_job_whose_shape_lost_its_meaning_is_set_aside():
    first = planned(snapshot(cluster(1, 1), runs(1, [1], NOW + 100), asks(2, "nodes=1"), queues=KEEPS))
    odd = snapshot(cluster(1, 1), runs(1, [1], NOW + 100), asks(2, "colour=1"), asks(3, "nodes=1"), queues=KEEPS)
    plan = planned(structs.replace(odd, promised=promised(first)))
    assert (places(plan), plan.unplaced[2].obstacle) == ({3: (100, (1,))}, Obstacle.SET_ASIDE)
