"""Jobs that share their resources with their like."""

import pytest

from oarlock.model.job_type import parse_types
from oarlock.plan.timeline.occupancies import BadTimesharing, SharingClass, sharing_class
from tests.plan.drawing import NOW, asks, cluster, places, planned, runs

ONE = cluster(1, 2)


@pytest.mark.manual(201)
@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("timesharing", ("*", "*")),
        ("timesharing=*,*", ("*", "*")),
        ("timesharing=user,*", ("ada", "*")),
        ("timesharing=*,name", ("*", "sim")),
        ("timesharing=*,job_name", ("*", "sim")),
        ("timesharing=user,name", ("ada", "sim")),
    ],
)
def test_there_are_four_ways_to_share(kind, shared):
    assert sharing_class(parse_types(("deploy", kind)), "ada", "sim") == SharingClass(*shared)


def test_a_job_without_a_name_shares_with_any_name():
    assert sharing_class(parse_types(("timesharing=user,name",)), "ada", None) == SharingClass("ada", "*")


def test_a_job_that_does_not_say_so_shares_with_nobody():
    assert sharing_class(parse_types(("besteffort", "timesharings")), "ada", "sim") is None


@pytest.mark.parametrize("scope", ["user", "*", "ada,*", "*,sim", "user,name,x", ",", "name,user"])
def test_any_other_way_is_refused_with_the_four(scope):
    with pytest.raises(BadTimesharing, match="is not a way to share") as refused:
        sharing_class(parse_types((f"timesharing={scope}",)), "ada", "sim")
    assert refused.value.hint == "It is one of *,*   user,*   *,name   user,name."


@pytest.mark.manual(201)
@pytest.mark.parametrize(
    ("kind", "together"),
    [
        ("timesharing", {"ada sim", "ada fit", "bob sim", "bob fit"}),
        ("timesharing=user,*", {"ada sim", "ada fit"}),
        ("timesharing=*,name", {"ada sim", "bob sim"}),
        ("timesharing=user,name", {"ada sim"}),
    ],
)
def test_only_jobs_of_one_class_run_at_the_same_time(kind, together):
    running = runs(1, [1, 2], NOW + 50, types=(kind,), user="ada", name="sim")
    for whose in ("ada sim", "ada fit", "bob sim", "bob fit"):
        user, name = whose.split()
        plan = planned(ONE, running, asks(2, "core=2", types=(kind,), user=user, name=name))
        assert places(plan)[2][0] == (0 if whose in together else 50)


def test_a_class_is_alone_on_its_resources():
    shared = {"types": ("timesharing",)}
    plan = planned(ONE, asks(1, "core=2", **shared), asks(2, "core=1"), asks(3, "core=2", **shared),
                   asks(4, "core=1", types=("timesharing=user,*",)))  # fmt: skip
    assert places(plan) == {1: (0, (1, 2)), 2: (100, (1,)), 3: (0, (1, 2)), 4: (100, (2,))}
