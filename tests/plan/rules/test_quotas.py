"""Quotas: how much somebody may have at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.plan import Plan
from oarlock.model.snapshot import PlacedJob, QuotaRule, QuotaSpan
from oarlock.plan.rules.quotas import CountedJob, Quotas, QuotaUse, broken_quota, earliest_within, quota_shares
from oarlock.plan.timeline.occupancy import Occupation
from tests.plan.drawing import (
    NOW,
    Asked,
    asks,
    cluster,
    licences,
    node,
    obstacles,
    places,
    planned,
    reserves,
    runs,
    table,
)

FOUR = cluster(nodes=4, cores=2)


def rule(who: str, resources: int = -1, jobs: int = -1, hours: float = -1) -> QuotaRule:
    """Write a rule as its file does: `*,*,*,/`."""
    return QuotaRule(*who.split(","), resources, jobs, int(hours * 3600) if hours >= 0 else -1)


def under(*rules: QuotaRule, jobs: list[Asked | PlacedJob], resources=FOUR, **settings) -> Plan:
    return planned(resources, *jobs, given={"quotas": rules}, **settings)


def starts(plan: Plan) -> dict[int, int]:
    return {job: start for job, (start, _) in places(plan).items()}


def test_a_user_waits_until_what_he_has_falls_below_the_quota():
    jobs = [runs(1, [1, 2, 3, 4], NOW + 30), asks(2, "core=2"), asks(3, "core=2", user="bob")]
    assert starts(under(rule("*,*,*,/", resources=4), jobs=jobs)) == {2: 30, 3: 0}


def test_a_star_counts_all_together_a_slash_each_by_itself():
    jobs = [asks(at, "core=1", user=user) for at, user in enumerate(["ada", "bob", "ada"], 1)]
    assert starts(under(rule("*,*,*,*", jobs=1), jobs=jobs)) == {1: 0, 2: 100, 3: 200}
    assert starts(under(rule("*,*,*,/", jobs=1), jobs=jobs)) == {1: 0, 2: 0, 3: 100}
    assert starts(under(rule("*,*,*,bob", jobs=1), jobs=jobs)) == {1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("who", "second"),
    [("default,*,*,*", 100), ("/,*,*,*", 100), ("other,*,*,*", 0), ("*,p,*,*", 100), ("*,/,*,*", 100), ("*,q,*,*", 0),
     ("*,*,besteffort,*", 0), ("*,*,timesharing,*", 100), ("*,p,*,ada", 100), ("*,p,*,bob", 0)],
)  # fmt: skip
def test_a_rule_speaks_of_jobs_by_queue_project_type_and_user(who, second):
    jobs = [asks(at, "core=1", project="p", types=("timesharing=user,*",)) for at in (1, 2)]
    assert starts(under(rule(who, jobs=1), jobs=jobs)) == {1: 0, 2: second}


def test_a_job_without_quotas_is_neither_held_back_nor_counted():
    free = ("no_quotas",)
    jobs = [runs(1, [1, 2], NOW + 50, types=free), asks(2, "core=4", types=free), asks(3, "core=2"), asks(4, "core=1")]
    assert starts(under(rule("*,*,*,/", resources=2, jobs=1), jobs=jobs)) == {2: 0, 3: 0, 4: 100}


def test_resource_hours_are_those_of_whole_walltimes_at_once():
    jobs = [asks(1, "core=2", walltime=3600), asks(2, "core=1", walltime=3600), asks(3, "core=1", walltime=1800)]
    assert starts(under(rule("*,*,*,/", hours=2.5), jobs=jobs)) == {1: 0, 2: 3600, 3: 0}


def test_every_rule_holds_but_a_name_is_an_exception_from_each():
    jobs = [asks(1, "core=4"), asks(2, "core=4", user="bob"), asks(3, "core=8", user="eve")]
    plan = under(rule("*,*,*,/", resources=2), rule("*,*,*,ada", resources=4), rule("*,*,*,eve"), jobs=jobs)
    assert (starts(plan), obstacles(plan)) == ({1: 0, 3: 100}, {2: "quota"})
    both = under(rule("*,*,*,*", resources=3), rule("*,*,*,ada", resources=4), jobs=jobs[:1])
    assert obstacles(both) == {1: "quota"}


def test_a_job_that_is_too_much_for_a_quota_by_itself_is_told_so():
    plan = under(rule("*,*,*,/", resources=3), jobs=[asks(1, "core=4")])
    assert plan.unplaced[1].detail == "the quota `*,*,*,/` is 3 resources at once; it asks for 4"
    one = under(rule("*,*,*,/", jobs=0), jobs=[asks(1, "core=4")])
    assert one.unplaced[1].detail == "the quota `*,*,*,/` is 0 jobs at once; it is one"


def test_of_alternatives_the_one_that_a_quota_allows_is_chosen():
    plan = under(rule("*,*,*,/", resources=3), jobs=[asks(1, "core=4", "core=2", walltime=[10, 60])])
    assert places(plan) == {1: (0, (1, 2))}


def test_licences_and_what_every_job_gets_are_not_counted():
    resources = table(*node("n1", 4), *licences(3), {"type": "default", "network_address": "n2", "core": 9})
    jobs = [asks(1, "core=2+{type='licence'}/resource_id=2"), asks(2, "core=2+{type='licence'}/resource_id=1")]
    assert starts(under(rule("*,*,*,/", resources=4), jobs=jobs, resources=resources)) == {1: 0, 2: 0}
    assert starts(under(rule("*,*,*,/", resources=3), jobs=jobs, resources=resources)) == {1: 0, 2: 100}


def test_best_effort_jobs_are_counted_among_themselves_only():
    lazy = {"types": ("besteffort",), "queue": "besteffort"}
    jobs = [runs(1, [1, 2], NOW + 50, **lazy), asks(2, "core=2"), asks(3, "core=2", **lazy)]
    plan = under(rule("*,*,*,/", resources=2), jobs=jobs)
    assert starts(plan) == {2: 0, 3: 100}


def test_containers_are_not_counted_the_jobs_inside_of_them_are():
    jobs = [runs(1, [1, 2, 3, 4], NOW + 500, types=("container",)), asks(2, "core=1", types=("inner=1",)),
            asks(3, "core=2", types=("inner=1",)), asks(4, "core=4", types=("container",))]  # fmt: skip
    assert starts(under(rule("*,*,*,/", resources=2), jobs=jobs)) == {2: 0, 3: 100, 4: 0}


def test_nodes_of_different_sizes_are_counted_as_they_are():
    resources = table(*node("n1", 2), *node("n2", 4))
    jobs = [runs(1, [1, 2], NOW + 30), asks(2, "nodes=1")]
    assert places(under(rule("*,*,*,/", resources=3), jobs=jobs, resources=resources)) == {2: (30, (1, 2))}


def test_what_takes_as_much_as_there_is_waits_until_there_is_less():
    jobs = [runs(1, [1, 2], NOW + 30, user="bob"), asks(2, "core=BEST")]
    plan = under(rule("*,*,*,ada", resources=6), jobs=jobs)
    assert places(plan) == {2: (0, (3, 4, 5, 6, 7, 8))}
    assert obstacles(under(rule("*,*,*,ada", resources=5), jobs=jobs)) == {2: "quota"}


def test_a_job_that_would_run_into_stricter_rules_obeys_both():
    spans = (QuotaSpan(NOW, NOW + 50, (rule("*,*,*,/", resources=8),)),
             QuotaSpan(NOW + 50, NOW + 200, (rule("*,*,*,/", resources=2),)))  # fmt: skip
    jobs = [asks(1, "core=4", walltime=50), asks(2, "core=4", walltime=60), asks(3, "core=2", walltime=80)]
    plan = planned(FOUR, *jobs, given={"quota_spans": spans})
    assert starts(plan) == {1: 0, 2: 200, 3: 0}


def test_rules_of_a_time_hold_beside_those_that_always_do():
    given_rules = {
        "quotas": (rule("*,*,*,*", jobs=1),),
        "quota_spans": (
            QuotaSpan(NOW, NOW + 10, (rule("*,*,*,ada", jobs=0),)),
            QuotaSpan(NOW + 5, NOW + 20, (rule("*,*,*,ada", jobs=0),)),
        ),
    }
    plan = planned(FOUR, asks(1, "core=1"), asks(2, "core=1", user="bob"), given=given_rules)
    assert starts(plan) == {1: 20, 2: 120}


def test_a_reservation_over_the_quota_is_refused_and_told_when_it_could_be():
    jobs = [runs(1, [1, 2], NOW + 30), reserves(2, "core=4", NOW + 10), reserves(3, "core=2", NOW + 10),
            reserves(4, "core=2", NOW + 200), reserves(5, "core=8", NOW + 10)]  # fmt: skip
    plan = under(rule("*,*,*,/", resources=3), jobs=jobs)
    assert (plan.accept, plan.refuse) == ((4,), (2, 3, 5))
    assert plan.unplaced[2].detail == "the quota `*,*,*,/` is 3 resources at once; 2 are taken and it asks for 4"
    told = "the quota `*,*,*,/` is 3 resources at once; 2 are taken and it asks for 2; it could start 0:00:20 later"
    assert (plan.unplaced[3].detail, plan.unplaced[3].earliest) == (told, NOW + 30)
    assert plan.unplaced[5].obstacle == "quota"


def test_a_job_that_is_forgotten_is_counted_no_more():
    quotas = Quotas((rule("*,*,*,/", resources=4),), ())
    job = runs(1, [1], NOW + 60)
    [limit] = quotas.limits(job, besteffort=False)
    quotas.count(job, Occupation(NOW, NOW + 60, 1), QuotaUse(3, 1, 180), besteffort=False)
    assert earliest_within([limit], NOW, 10, QuotaUse(2, 1, 20)) == NOW + 60
    with quotas.without(1):
        assert earliest_within([limit], NOW, 10, QuotaUse(2, 1, 20)) == NOW
    with quotas.without(77):
        assert broken_quota([limit], NOW, 10, QuotaUse(2, 1, 20)).endswith("3 are taken and it asks for 2")
    quotas.count(job, Occupation(NOW, NOW + 20, 1), QuotaUse(3, 1, 60), besteffort=False)
    assert earliest_within([limit], NOW, 10, QuotaUse(2, 1, 20)) == NOW + 20
    quotas.forget(1)
    assert earliest_within([limit], NOW, 10, QuotaUse(2, 1, 20)) == NOW
    assert broken_quota([limit], NOW, 10, QuotaUse(2, 1, 20)) == ""


def test_the_use_of_each_rule_is_listed_by_user_largest_first():
    each, together, unused = rule("*,*,*,/", resources=9), rule("*,*,*,*", jobs=9), rule("*,*,*,eve", jobs=1)
    ada, bob, guest = runs(1, [1, 2], NOW), runs(2, [3, 4, 5], NOW, user="bob"), runs(3, [6], NOW)
    present = [
        CountedJob(ada, QuotaUse(2, 1, 200), besteffort=False),
        CountedJob(bob, QuotaUse(3, 1, 300), besteffort=False),
        CountedJob(guest, QuotaUse(1, 1, 100), besteffort=True),
    ]
    told = [(one.rule, one.whose[-1], one.besteffort, one.used, list(one.resources_by_user.items()), one.jobs)
            for one in quota_shares([each, together, unused], present)]  # fmt: skip
    assert told == [
        (each, "ada", False, QuotaUse(2, 1, 200), [("ada", 2)], (1,)),
        (each, "bob", False, QuotaUse(3, 1, 300), [("bob", 3)], (2,)),
        (each, "ada", True, QuotaUse(3, 2, 300), [("ada", 3)], (1, 3)),
        (together, "*", False, QuotaUse(5, 2, 500), [("bob", 3), ("ada", 2)], (1, 2)),
        (together, "*", True, QuotaUse(6, 3, 600), [("ada", 3), ("bob", 3)], (1, 2, 3)),
    ]


LIMITS = st.lists(
    st.builds(
        QuotaRule,
        st.sampled_from(["*", "/"]), st.just("*"), st.just("*"), st.sampled_from(["*", "/", "ada"]),
        st.integers(-1, 6), st.integers(-1, 3), st.integers(-1, 300),
    ), min_size=1, max_size=3)  # fmt: skip
JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 90), st.sampled_from(["ada", "bob"])), max_size=9)


@given(LIMITS, JOBS)
def test_never_is_more_than_a_quota_used_at_any_instant(rules, wishes):
    """Where no rule is an exception from another."""
    wanted = [asks(at, f"core={size}", walltime=long, user=user) for at, (size, long, user) in enumerate(wishes, 1)]
    named = any(one.user == "ada" for one in rules)
    plan = under(*rules, jobs=wanted)
    for one in rules:
        for user in ("ada", "bob"):
            mine = [(plan.placements[at], size) for at, (size, _, whose) in enumerate(wishes, 1)
                    if at in plan.placements and (one.user == "*" or whose == user)]  # fmt: skip
            if (one.user == "ada" and user == "bob") or (one.user == "/" and user == "ada" and named):
                continue
            for instant in [place.start for place, _ in mine]:
                now = [(place, size) for place, size in mine if place.start <= instant < place.stop]
                used = (sum(size for _, size in now), len(now), sum(s * (p.stop - p.start) for p, s in now))
                most = (one.resources, one.jobs, one.resource_seconds)
                assert all(limit < 0 or have <= limit for have, limit in zip(used, most, strict=True))
