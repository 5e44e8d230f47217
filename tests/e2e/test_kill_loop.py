"""The server is killed again and again while jobs run on real sshd nodes: nothing is lost, nothing runs twice."""

import os
import random
import time
from collections import Counter

import pytest

from oarlock.model.job import JobState
from oarlock.store.queries.job import attempts, jobs, shapes
from oarlock.store.queries.usage import accounting
from tests.bed import needs_root
from tests.e2e.cluster import cluster

pytestmark = [needs_root, pytest.mark.component("sshd"), pytest.mark.component("ip")]

SECONDS = 1.0  # a server lives up to this long after one of these lines of its log, in turn; nothing is its start
LINES = ("node reached", "node reached", " serving ", "")
WAITS = "until [ -e enough ]; do sleep 0.1; done; "  # so that even the last kill finds a job at work


LONG = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("address", "kills", "count", "longest", "cores"),  # jobs must last as long as the kills, and not much longer
    [
        pytest.param("sqlite", 5, 80, 1.0, 6, id="sqlite-5 kills", marks=pytest.mark.timeout(300)),
        pytest.param("postgresql", 3, 50, 1.0, 6, id="postgresql-3 kills", marks=pytest.mark.timeout(300)),
        pytest.param("sqlite", 200, 300, 4.0, 2, id="sqlite-200 kills", marks=LONG),
        pytest.param("postgresql", 200, 300, 4.0, 2, id="postgresql-200 kills", marks=LONG),
    ],
    indirect=["address"],
)
def test_every_job_runs_once_however_often_the_server_is_killed(
    workspace, two_users, address, kills, count, longest, cores
):
    seed, kills = int(os.environ.get("KILL_SEED") or random.randrange(2**32)), int(os.environ.get("KILLS") or kills)
    print(f"KILLS={kills} KILL_SEED={seed}")
    chance = random.Random(seed)
    with cluster(workspace, two_users[0], address=address, cores=cores) as site:
        sleeps = [f"sleep {chance.uniform(0, longest):.2f}; " for _ in range(count - 1)]
        ids = site.submit_many([f"{one}echo $OAR_JOB_ID >> lines" for one in [WAITS, *sleeps]])
        for number in range(kills):
            site.start()
            live(site, chance, LINES[number % len(LINES)])
            site.kill()
        (site.home / "enough").touch()
        site.start()
        site.until(site.all_over, seconds=240)
        print(f"{kills} kills, {count} jobs, {tries(site)} attempts")
        assert sorted(map(int, (site.home / "lines").read_text().split())) == ids
        assert ends(site) == dict.fromkeys(ids, (JobState.TERMINATED, 0))
        assert booked(site) == due(site)


def live(site, chance, line):
    """Let the server live for a time that nobody can foresee."""
    begun = len(site.log())
    site.until(lambda: line in site.log()[begun:])
    time.sleep(chance.uniform(0, SECONDS))  # the instant of the kill is what is tried here


def tries(site):
    with site.database.read() as tx:
        return len(attempts.of_jobs(tx, [job.id for job in jobs.in_states(tx, list(JobState))]))


def ends(site):
    with site.database.read() as tx:
        return {job.id: (job.state, job.exit_code) for job in jobs.in_states(tx, list(JobState))}


def booked(site):
    """What the account says was used and asked for."""
    sums = Counter()
    with site.database.read() as tx:
        for row in accounting.listed(tx):
            sums[row.kind] += row.consumption
    return dict(sums)


def due(site):
    """What an account must say of these jobs, from how long they lasted and what they held.

    Jobs that began and ended in the same second used nothing and are not accounted.
    """
    with site.database.read() as tx:
        ended = [job for job in jobs.in_states(tx, [JobState.TERMINATED]) if job.stop > job.start]
        held = jobs.resources_of(tx, [job.id for job in ended])
        asked = shapes.walltimes(tx, [job.assigned for job in ended])
    return {
        "USED": sum((job.stop - job.start) * len(held[job.id]) for job in ended),
        "ASKED": sum(asked[job.assigned] * len(held[job.id]) for job in ended),
    }
