"""Arrays of which so many jobs run at once: never more, and never fewer while some wait."""

import random

import pytest

from oarlock.job import explain
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState
from oarlock.model.plan import Obstacle
from oarlock.store.queries.job import new_jobs
from tests.scenarios.cluster import Cluster


def submit_array(cluster: Cluster, seconds: list[int], *types: str) -> list[int]:
    """Submit an array whose jobs take so long."""
    asked = requests.parse(["/core=1,walltime=1"])
    given = {"state": JobState.WAITING, "user": "ada", "queue": "default", "submitted": cluster.now, "types": types}
    members = [
        new_jobs.NewJob(Job(id=0, command=f"sleep {lasting}", array_index=place, **given), asked)  # type: ignore[arg-type]
        for place, lasting in enumerate(seconds, 1)
    ]
    ids = [job.id for job in cluster.submit_jobs(members)]
    cluster.settle()
    return ids


@pytest.mark.parametrize("seed", range(3))
def test_so_many_run_at_once_and_the_next_follows_each_end(database, seed):
    drawn = random.Random(seed)
    cluster = Cluster(database, nodes=4)  # eight cores
    most = drawn.randint(1, 4)
    ids = submit_array(cluster, [drawn.randint(5, 90) for _ in range(12)], f"at_once={most}")
    cluster.finish()
    jobs = [cluster.job(number) for number in ids]
    assert {job.state for job in jobs} == {JobState.TERMINATED}
    for job in jobs:
        assert sum(other.start <= job.start < other.stop for other in jobs) <= most
    ends = [job.stop for job in jobs]
    assert [job.start for job in jobs] == sorted(job.start for job in jobs)
    for job in jobs[most:]:
        assert min(abs(job.start - end) for end in ends) <= 1


def test_a_job_behind_the_limit_is_told_which_come_first(database):
    cluster = Cluster(database)
    first, second, third = submit_array(cluster, [50] * 3, "at_once=2")
    with database.read() as tx:
        reason = explain.why(tx, cluster.config, third, now=cluster.now)
    assert (reason.obstacle, reason.says) == (
        Obstacle.ARRAY_LIMIT,
        f"array {first} runs at most 2 jobs at once; first come: {first}, {second}",
    )


def test_others_pass_an_array_with_a_limit(database):
    cluster = Cluster(database)
    submit_array(cluster, [500] * 10, "at_once=1")
    other = cluster.submit("sleep 10")
    assert cluster.job(other).state is JobState.RUNNING
