"""What a replay does with jobs: events in their order, decisions by the real planner."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.simulate.platform import Platform, parse, uniform
from oarlock.simulate.replay import EventOrder, Replay, ReplayedJob
from oarlock.simulate.trace import Trace
from tests.simulate.drawing import trace

POLICIES = ("fcfs", "easy", "easy-sjbf", "depth-2", "conservative", "oar_sched_gantt_with_timesharing")


def starts(ran: list[ReplayedJob]) -> dict[int, int]:
    return {one.job.number: one.start for one in ran}


def replayed(jobs: Trace, where: Platform | int, policy: str, **said) -> dict[int, int]:
    return starts(Replay(jobs, uniform(where) if isinstance(where, int) else where, policy, **said).run())


MIXED = trace(
    (0, 3, 100, 100),  # leaves one of four free
    (1, 4, 50, 50),  # has to wait for all
    (2, 1, 90, 98),  # fits beside the first
    (3, 1, 200, 200),  # would delay the second
    (4, 1, 5, 8),  # just fits between the third and the second
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", {1: 0, 2: 100, 3: 150, 4: 150, 5: 150}),
        ("easy", {1: 0, 2: 100, 3: 2, 4: 150, 5: 92}),
        ("easy-sjbf", {1: 0, 2: 100, 3: 2, 4: 150, 5: 92}),
        ("conservative", {1: 0, 2: 100, 3: 2, 4: 150, 5: 92}),
    ],
)
def test_policies_let_others_pass_or_not(policy, expected):
    assert replayed(MIXED, 4, policy) == expected


def test_the_shortest_of_those_who_fit_goes_first():
    jobs = trace((0, 3, 100, 100), (1, 4, 10, 10), (2, 1, 80, 80), (2, 1, 20, 20), (2, 1, 70, 70))
    assert replayed(jobs, 4, "easy") == {1: 0, 2: 100, 3: 2, 4: 110, 5: 110}
    assert replayed(jobs, 4, "easy-sjbf") == {1: 0, 2: 100, 4: 2, 5: 22, 3: 110}


def test_ours_ends_jobs_before_new_ones_come_and_decides_once():
    jobs = trace((0, 1, 10, 20), (10, 1, 5, 5), (10, 1, 1, 1))
    assert replayed(jobs, 1, "easy") == {1: 0, 2: 10, 3: 15}


def test_the_reference_lets_new_jobs_come_first_and_only_then_others_end():
    # At 10 a job ends early. By our rules the wide one, first in line, finds everything free; by the reference's the
    # narrow one comes before that, fits beside, and goes.
    jobs = trace((0, 1, 10, 20), (5, 2, 5, 5), (10, 1, 8, 8))
    assert replayed(jobs, 2, "easy") == {1: 0, 2: 10, 3: 15}
    assert replayed(jobs, 2, "easy", ties=EventOrder.REFERENCE) == {1: 0, 2: 18, 3: 10}


def test_a_job_that_never_fits_is_left_out_and_blocks_nobody():
    jobs = trace((0, 9, 10, 10), (1, 1, 10, 10))
    for policy in POLICIES:
        assert replayed(jobs, 4, policy) == {2: 1}


def test_a_job_of_no_length_is_over_at_once():
    assert replayed(trace((0, 1, 0, 10), (0, 1, 5, 5)), 1, "easy") == {1: 0, 2: 0}


def test_the_first_date_is_remembered():
    ran = Replay(trace((0, 1, 60, 100), (5, 1, 10, 10)), uniform(1), "easy").run()
    assert [(one.job.number, one.foreseen, one.start) for one in ran] == [(1, None, 0), (2, 100, 60)]


def drawn(r: Random, size: int) -> Trace:
    jobs = []
    at = 0
    for _ in range(r.randint(1, 25)):
        at += r.choice([0, 0, 1, 5, 20])
        walltime = r.choice([5, 10, 10, 30, 60])
        jobs.append((at, r.randint(1, size), r.randint(0, walltime), walltime))
    return trace(*jobs)


@settings(max_examples=30)
@given(r=st.randoms(use_true_random=False))
def test_where_nobody_passes_counting_processors_is_enough(r):
    jobs = drawn(r, 6)
    assert replayed(jobs, 6, "fcfs") == replayed(jobs, parse("nodes=3/core=2", jobs), "fcfs")


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(r=st.randoms(use_true_random=False))
def test_never_are_more_processors_in_use_than_there_are(policy, r):
    ran = Replay(drawn(r, 6), uniform(6), policy).run()
    for one in ran:
        beside = [other for other in ran if other.start <= one.start < other.end]
        assert sum(other.job.processors for other in beside) <= 6
        assert one.start >= one.job.submitted


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(r=st.randoms(use_true_random=False))
def test_looking_at_dates_changes_nothing(policy, r):
    jobs = drawn(r, 6)
    assert replayed(jobs, 6, policy, foresee=True) == replayed(jobs, 6, policy, foresee=False)


@settings(max_examples=30)
@given(r=st.randoms(use_true_random=False))
def test_a_kept_date_is_never_missed(r):
    for one in Replay(drawn(r, 6), uniform(6), "conservative").run():
        assert one.foreseen is None or one.start <= one.foreseen
