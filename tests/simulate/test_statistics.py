"""What a replay comes to."""

from random import Random

import pytest

from oarlock.simulate.compare import Comparison, Perturbation, UnknownReplayPolicy, perturbed
from oarlock.simulate.platform import parse, uniform
from oarlock.simulate.replay import ReplayedJob
from oarlock.simulate.statistics import Energy, PowerModel, StartPredictions, jain, of_nodes, of_pool, percentile
from tests.simulate.drawing import trace

ONE_BY_ONE = trace((0, 1, 60, 100), (5, 1, 10, 10), (10, 1, 5, 20))


def test_waits_slowdowns_use_and_dates():
    [result] = Comparison(uniform(1)).of(ONE_BY_ONE, ["conservative"])
    found = result.measures
    assert [one.start for one in result.ran] == [0, 60, 70]
    assert (found.jobs, found.makespan, found.mean_wait, found.max_wait) == (3, 75, (55 + 60) / 3, 60)
    assert found.bounded_slowdown == pytest.approx((1 + 6.5 + 6.5) / 3)
    assert found.utilisation == 1
    assert found.prediction == StartPredictions(dated=2, mean_error=-40, mean_absolute_error=40, late=0)
    assert [(user.user, user.jobs) for user in found.users] == [("b", 2), ("a", 1)]


def test_percentiles_are_values_that_occur():
    assert [percentile([1, 2, 3, 4], share) for share in (1, 50, 51, 99)] == [1, 2, 3, 4]
    assert percentile([], 50) == 0


def test_fairness_is_one_when_all_fare_alike():
    assert (jain([3.0, 3.0]), jain([1.0, 0.0])) == (1, 0.5)


POWER = PowerModel(busy=3_600_000, idle=360_000, off=36_000, timeout=10)  # a kilowatt-hour a busy second


def test_idle_processors_are_switched_off_after_a_while():
    job, later = trace((0, 2, 10, 10), (0, 1, 5, 5)).jobs
    ran = [ReplayedJob(job, 0, None, 2), ReplayedJob(later, 50, None, 1)]
    # 0–10: two of three busy; 10–50: none; 50–55: one, which had rested 40 s; the other two rest 45 and 55 s.
    always = 25 + 0.1 * (3 * 55 - 25)
    idle, off = 10 + 10 + 10, 30 + 35 + 45
    assert of_pool(ran, 3, POWER) == Energy(pytest.approx(always), pytest.approx(25 + 0.1 * idle + 0.01 * off))


def test_a_node_is_busy_while_anybody_is_on_it():
    job, later = trace((0, 1, 10, 10), (0, 1, 20, 20)).jobs
    ran = [ReplayedJob(job, 0, None, 0b01), ReplayedJob(later, 5, None, 0b10)]
    assert of_nodes(ran, [0b11, 0b1100], POWER) == Energy(
        pytest.approx(25 + 2.5), pytest.approx(25 + 0.1 * 10 + 0.01 * 15)
    )


def test_the_same_seed_shakes_a_trace_alike():
    comparison = Comparison(uniform(1), shaking=Perturbation(runs=3, seed=5, shift=4))
    [first], [again] = comparison.of(ONE_BY_ONE, ["easy"]), comparison.of(ONE_BY_ONE, ["easy"])
    assert first.perturbed == again.perturbed
    spread = first.perturbed["mean_wait"]
    assert spread["min"] <= spread["mean"] <= spread["max"]
    assert spread["spread"] > 0
    moved = perturbed(ONE_BY_ONE, 4, Random(1))
    assert all(abs(job.submitted - ONE_BY_ONE.jobs[job.number - 1].submitted) <= 4 for job in moved.jobs)


def test_a_policy_that_there_is_none_of_is_refused_before_anything_runs():
    with pytest.raises(UnknownReplayPolicy, match="no policy `eazy`"):
        Comparison(uniform(1)).of(ONE_BY_ONE, ["easy", "eazy"])


def test_nodes_of_a_tree_have_energy_of_their_own():
    [result] = Comparison(parse("nodes=2/core=2", ONE_BY_ONE), power=POWER).of(ONE_BY_ONE, ["easy"])
    assert result.measures.energy.with_shutdown_kwh < result.measures.energy.always_on_kwh
