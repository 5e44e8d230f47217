"""Jobs that wait for other jobs."""

import pytest

from oarlock.model.job import JobState
from oarlock.model.snapshot import Dependency
from tests.plan.drawing import NOW, asks, cluster, obstacles, places, planned, reserved, runs

ONE = cluster(1, 4)


def after(job_id, state=JobState.WAITING, exit_code=None):
    return (Dependency(job_id, state, exit_code),)


def test_a_job_starts_after_the_planned_end_of_the_one_it_needs():
    plan = planned(ONE, asks(1, "core=1", walltime=60), asks(2, "core=1", after=after(1)))
    assert places(plan) == {1: (0, (1,)), 2: (60, (1,))}


def test_twice_the_security_time_lies_between_them():
    plan = planned(ONE, asks(1, "core=1", walltime=60), asks(2, "core=1", after=after(1)), security_time=5)
    assert places(plan)[2] == (70, (1,))


def test_a_job_waits_for_a_running_one_and_for_a_reservation():
    running = after(1, JobState.RUNNING)
    plan = planned(ONE, runs(1, [1], NOW + 30), asks(2, "core=1", after=running))
    assert places(plan) == {2: (30, (1,))}
    plan = planned(ONE, reserved(1, [1], NOW + 10, NOW + 50), asks(2, "core=1", after=after(1)))
    assert places(plan) == {2: (50, (1,))}


def test_a_job_past_its_end_still_keeps_those_who_need_it_from_starting():
    plan = planned(ONE, runs(1, [1], NOW - 20), asks(2, "core=1", after=after(1, JobState.FINISHING)))
    assert places(plan) == {2: (1, (1,))}
    assert plan.start == ()


def test_of_several_the_last_to_end_counts():
    both = (*after(1, JobState.RUNNING), *after(2, JobState.RUNNING), *after(9, JobState.TERMINATED, 0))
    plan = planned(ONE, runs(1, [1], NOW + 30), runs(2, [2], NOW + 20), asks(3, "core=1", after=both))
    assert places(plan) == {3: (30, (1,))}


def test_a_job_without_a_date_keeps_those_who_need_it_without_one():
    plan = planned(ONE, asks(1, "core=9"), asks(2, "core=1", after=after(1)))
    assert obstacles(plan) == {1: "too big", 2: "dependency"}
    assert plan.unplaced[2].detail == "it waits for job 1, which is Waiting and has no date yet"


@pytest.mark.parametrize(
    ("state", "exit_code", "release", "starts"),
    [
        (JobState.TERMINATED, 0, True, True),
        (JobState.TERMINATED, None, True, True),
        (JobState.TERMINATED, 256, True, False),
        (JobState.ERROR, 256, True, True),
        (JobState.ERROR, None, False, False),
    ],
)
def test_how_the_needed_job_ended_decides(state, exit_code, release, starts):
    plan = planned(ONE, asks(2, "core=1", after=after(1, state, exit_code)), release_after_error=release)
    assert (places(plan), obstacles(plan)) == (({2: (0, (1,))}, {}) if starts else ({}, {2: "broken dependency"}))


def test_a_job_that_will_never_start_says_why():
    plan = planned(ONE, asks(2, "core=1", after=after(1, JobState.TERMINATED, 256)))
    assert plan.unplaced[2].detail == "job 1, which it depends on, ended with exit 1: it will not start"
    plan = planned(ONE, asks(2, "core=1", after=after(1, JobState.ERROR)), release_after_error=False)
    assert plan.unplaced[2].detail == "job 1, which it depends on, ended in Error: it will not start"
