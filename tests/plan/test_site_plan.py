"""The site's own scheduler of a queue: what it sees, which answers are taken, and what becomes of them."""

import msgspec
import pytest
from msgspec import structs

from oarlock.model.plan import Obstacle
from oarlock.model.snapshot import Promise, Queue, QuotaRule, SitePlan, Usage
from oarlock.plan.explain import Explainer
from oarlock.plan.planner import begin_pass, make_plan, run_pass
from oarlock.plan.settings import PlanSettings
from oarlock.plan.site_view import SchedulerAnswer, SiteView, WrongAnswer, ranges
from tests.plan.drawing import FIFO, NOW, asks, cluster, node, places, reserved, reserves, runs, snapshot, table

QUIET = PlanSettings(security_time=0)
OWN = Queue("own", 1, "program:ours")
HIGH = Queue("default", 2, FIFO)


def of_site(resources, *jobs, **said):
    return snapshot(resources, *jobs, **({"queues": (HIGH, OWN)} | said))


def view(shot, settings=QUIET):
    return SiteView(shot, "own", now=NOW, settings=settings)


def answer(*placements):
    return msgspec.convert({"placements": list(placements)}, SchedulerAnswer)


def told(shot, *placements):
    """Return why an answer is refused; nothing if it is taken."""
    try:
        view(shot).check("ours", answer(*placements))
    except WrongAnswer as wrong:
        return str(wrong)
    return ""


def own(number, *texts, **said):
    return asks(number, *texts, queue="own", **said)


def test_the_program_sees_its_jobs_and_what_others_leave_free():
    shot = of_site(
        cluster(2, 2),
        runs(1, (1,), NOW + 30),
        asks(2, "nodes=1", walltime=50),
        own(3, "nodes=1/core=1", walltime=60, where="core is not null", not_before=NOW + 5),
        own(4, "core=BEST", project="p"),
        reserves(5, "core=1", NOW + 500, queue="own"),
    )
    seen = msgspec.json.decode(msgspec.json.encode(view(shot).input()))
    assert {name: seen[name] for name in ("version", "queue", "now", "security_time")} == {
        "version": 1, "queue": "own", "now": NOW, "security_time": 0,
    }  # fmt: skip
    assert seen["jobs"][0] == {
        "job_id": 3, "user": "ada", "project": "default", "name": None, "types": [], "submitted": 0,
        "not_before": NOW + 5, "deadline": None,
        "choices": [{"moldable_id": 30, "walltime": 60, "groups": [
            {"levels": [["network_address", 1], ["core", 1]], "matching": [[1, 4]], "where": "(core IS NOT NULL)"},
        ]}],
    }  # fmt: skip
    assert seen["jobs"][1]["choices"][0]["groups"][0]["levels"] == [["core", "BEST"]]
    assert seen["slots"] == [
        {"start": NOW, "stop": NOW + 30, "free": [[2, 2]]},
        {"start": NOW + 30, "stop": NOW + 50, "free": [[1, 2]]},
        {"start": NOW + 50, "stop": NOW + 500, "free": [[1, 4]]},
        {"start": NOW + 500, "stop": NOW + 600, "free": [[2, 4]]},
        {"start": NOW + 600, "stop": None, "free": [[1, 4]]},
    ]
    assert [(row["resource_id"], row["network_address"]) for row in seen["resources"]][::2] == [(1, "n01"), (3, "n02")]
    assert seen["usage"] == msgspec.to_builtins(Usage())


def test_numbers_are_shown_as_ranges():
    assert ranges([7, 1, 2, 3, 9, 8]) == [(1, 3), (7, 9)]
    assert ranges([]) == []


BUSY = of_site(
    table(*node("a", 2), *node("b", 2), *node("c", 2, state="Suspected")),
    runs(1, (1,), NOW + 30),
    reserved(2, (3, 4), NOW + 50, NOW + 90),
    own(3, "core=2", walltime=40),
    own(4, "core=1", walltime=60, deadline=NOW + 70),
    own(5, "core=1", not_before=NOW + 9),
    asks(6, "core=1", walltime=500),
    own(7, "nodes=1/core=1", "core=2", walltime=(20, 10)),
)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ({"job_id": 3, "resources": [3, 4]}, ""),
        ({"job_id": 3, "resources": [4, 3], "start": NOW - 500}, ""),
        ({"job_id": 3, "resources": [1, 3], "start": NOW + 90}, ""),
        ({"job_id": 3, "resources": [1, 3]}, "resource 1 is not free for its whole walltime"),
        ({"job_id": 3, "resources": [3, 4], "start": NOW + 11}, "resource 3, 4 is not free for its whole walltime"),
        ({"job_id": 3, "resources": [2, 3]}, "resource 2 is not free for its whole walltime"),
        ({"job_id": 3, "resources": [3, 99]}, "there is no resource 99"),
        ({"job_id": 3, "resources": [3, 3]}, "a resource is named twice"),
        ({"job_id": 3, "resources": [3, 5]}, "resource 5 is not Alive"),
        ({"job_id": 3, "resources": [3]}, "its resources do not match the request"),
        ({"job_id": 3, "resources": []}, "its resources do not match the request"),
        ({"job_id": 4, "resources": [3, 4]}, "it has more resources than the request asks for"),
        ({"job_id": 4, "resources": [1], "start": NOW + 30}, "it would not be over by its deadline"),
        ({"job_id": 5, "resources": [4]}, "it must not start before the next 0:00:09 are over"),
        ({"job_id": 3, "resources": [3, 4], "moldable_id": 31}, "it has no alternative 31"),
        ({"job_id": 7, "resources": [3, 4], "moldable_id": 71}, ""),
        ({"job_id": 7, "resources": [3, 4]}, "it has more resources than the request asks for"),
    ],
)
def test_a_place_that_cannot_be_is_refused_with_the_reason(place, why):
    assert told(BUSY, place) == (f"job {place['job_id']}: {why}" if why else "")


def test_an_answer_names_each_job_of_its_queue_once_and_no_others():
    first = {"job_id": 3, "resources": [3, 4]}
    assert told(BUSY, first, first) == "job 3 is named twice"
    assert told(BUSY, {"job_id": 6, "resources": [3]}) == "job 6 does not wait in queue own"
    assert told(BUSY, {"job_id": 99, "resources": [3]}) == "job 99 does not wait in queue own"
    both = told(BUSY, first, {"job_id": 7, "resources": [3]})
    assert both == "job 7: resource 3 is not free for its whole walltime"


def test_an_answer_beyond_a_quota_is_refused():
    rule = QuotaRule("own", "*", "*", "*", resources=1)
    shot = structs.replace(BUSY, quotas=(rule,))
    assert told(shot, {"job_id": 3, "resources": [3, 4]}) == "job 3: a quota or a maintenance does not allow it"


PLAN = SitePlan("ours", ((2, Promise(20, NOW - 3, (3, 4))), (1, Promise(10, NOW + 70, (1, 2)))))
JOBS = (own(1, "nodes=1", walltime=50), own(2, "core=2", walltime=60), own(3, "core=1"))


def test_a_pass_places_the_jobs_of_the_queue_as_the_program_decided():
    plan = make_plan(of_site(cluster(2, 2), *JOBS, site_plans={"own": PLAN}), now=NOW, settings=QUIET)
    assert (places(plan), plan.start) == ({2: (0, (3, 4)), 1: (70, (1, 2))}, (2,))
    assert (plan.unplaced[3].obstacle, plan.unplaced[3].detail) == (
        Obstacle.SITE_SCHEDULER, "`ours`, the scheduler of its queue, gave it no place",
    )  # fmt: skip


def test_a_place_that_others_have_by_now_is_not_used():
    shot = of_site(cluster(2, 2), runs(9, (3,), NOW + 99), *JOBS, site_plans={"own": PLAN})
    plan = make_plan(shot, now=NOW, settings=QUIET)
    assert (places(plan), plan.start) == ({1: (70, (1, 2))}, ())
    assert plan.unplaced[2].detail == (
        "`ours`, the scheduler of its queue, gave it a place that it cannot have any more: "
        "resource 3 is not free for its whole walltime"
    )


def test_jobs_wait_for_the_first_answer_of_the_program_if_there_is_one():
    silent = of_site(cluster(2, 2), *JOBS, site_plans={"own": SitePlan("ours", answered=False)})
    plan = make_plan(silent, now=NOW, settings=QUIET)
    assert plan.placements == {}
    assert {why.detail for why in plan.unplaced.values()} == {
        "`ours`, the scheduler of its queue, has not answered yet"
    }
    built_in = make_plan(of_site(cluster(2, 2), *JOBS), now=NOW, settings=QUIET)
    assert places(built_in) == {1: (0, (1, 2)), 2: (0, (3, 4)), 3: (50, (1,))}


def test_reservations_of_the_queue_are_answered_whoever_plans_it():
    shot = of_site(cluster(1, 2), reserves(5, "core=2", NOW + 80, queue="own"), *JOBS, site_plans={"own": PLAN})
    plan = make_plan(shot, now=NOW, settings=QUIET)
    assert (plan.accept, places(plan)) == ((5,), {5: (80, (1, 2))})


def test_why_names_the_program_that_decided():
    state = begin_pass(of_site(cluster(2, 2), *JOBS, site_plans={"own": PLAN}), now=NOW, settings=QUIET)
    run_pass(state)
    assert Explainer(state).why(1).says == (
        "needs 1 node for 0:00:50; `ours`, the scheduler of its queue, planned it to start in 0:01:10"
    )
    assert Explainer(state).why(3).says == "`ours`, the scheduler of its queue, gave it no place"
