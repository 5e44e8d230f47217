"""The manual's fair sharing."""

import pytest

from oarlock.model.snapshot import Usage, WaitingJob
from oarlock.plan.policies import by_karma, karma
from oarlock.plan.settings import Fairness

USAGE = Usage(
    used=100,
    requested=200,
    used_by_user={"ada": 60, "bob": 40},
    requested_by_user={"ada": 50},
    used_by_project={"sea": 80},
)


def job(job_id, user="ada", project="sea"):
    return WaitingJob(job_id=job_id, user=user, queue="default", project=project, choices=())


@pytest.mark.manual(185)
@pytest.mark.parametrize(
    ("fairness", "expected"),
    [
        (Fairness(), 3 * 0.8 + 2 * 0.6 + 0.25),
        (Fairness(project_weight=0, requested_weight=0), 2 * 0.6),
        (Fairness(project_weight=0, user_weight=0), 0.25),
        (Fairness(user_targets={"ada": 60}), 3 * 0.8 + 2 * 0.0 + 0.25 - 0.6),
        (Fairness(project_targets={"sea": 100}), 3 * -0.2 + 2 * 0.6 + 0.25),
        (Fairness(project_targets={"air": 100}, user_targets={"bob": 100}), 3 * 0.8 + 2 * 0.6 + 0.25),
    ],
)
def test_karma_is_how_far_people_are_above_their_share(fairness, expected):
    assert karma(job(1), USAGE, fairness) == pytest.approx(expected)


def test_nobody_used_anything_yet():
    assert karma(job(1), Usage(), Fairness()) == 0


def test_those_below_their_share_come_first_and_the_older_ones_on_equality():
    jobs = [job(1), job(2, "bob"), job(3, "cyd", "air"), job(4, "bob"), job(5, "dan", "air")]
    assert [found.job_id for found in by_karma(jobs, USAGE, Fairness())] == [3, 5, 2, 4, 1]


@pytest.mark.manual(185)
def test_a_pass_treats_only_so_many():
    jobs = [job(1), job(2, "bob"), job(3, "cyd", "air")]
    assert [found.job_id for found in by_karma(jobs, USAGE, Fairness(max_jobs=2))] == [3, 2]
