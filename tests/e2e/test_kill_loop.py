"""The server is killed again and again while jobs run on real sshd nodes: nothing is lost, nothing runs twice."""

import os
import random
import time
from collections import Counter

import pytest

from oarlock.model.job import JobState
from oarlock.store import accounting, jobs, moldables
from tests.bed import needs_root
from tests.e2e.cluster import cluster

pytestmark = [needs_root, pytest.mark.component("sshd"), pytest.mark.component("ip")]

SLOTS = 6  # three machines of two cores
SHORTEST, LONGEST = 0.05, 1.6  # seconds between a start of the server and its end: recovery is hit, too


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request):
    """An empty database of PostgreSQL; nothing means SQLite."""
    if request.param == "sqlite":
        yield ""
        return
    postgres = request.getfixturevalue("postgres")
    url = postgres.make(template="template0")
    yield url
    postgres.drop(url)


@pytest.mark.parametrize(
    ("kills", "count"),
    [
        pytest.param(10, 60, id="10 kills"),
        pytest.param(200, 300, id="200 kills", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_every_job_runs_once_and_is_accounted_however_often_the_server_is_killed(ground, people, address, kills, count):
    seed = int(os.environ.get("KILL_SEED") or random.randrange(2**32))
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    lives = [chance.uniform(SHORTEST, LONGEST) for _ in range(kills)]
    # Together the jobs last longer than all lives of the server, so that every kill finds jobs at work.
    lasting = 1.1 * sum(lives) * SLOTS / count
    with cluster(ground, people[0], address=address) as site:
        commands = [f"sleep {chance.uniform(0.5, 1.5) * lasting:.2f}; echo $OAR_JOB_ID >> lines" for _ in range(count)]
        ids = site.submit_many(commands)
        site.start()
        for life in lives:
            time.sleep(life)  # the instant of the kill is what is tried here
            site.kill()
            site.start()
        assert not site.all_over(), "the last kills found nothing at work"
        site.until(site.all_over, seconds=60)
        assert sorted(map(int, (site.home / "lines").read_text().split())) == ids
        assert {job: (one.state, one.exit_code) for job, one in finals(site).items()} == dict.fromkeys(
            ids, (JobState.TERMINATED, 0)
        )
        assert booked(site) == due(site)


def finals(site):
    with site.database.read() as tx:
        return {job.id: job for job in jobs.in_states(tx, list(JobState))}


def booked(site):
    """What the account says was used and asked for."""
    sums = Counter()
    with site.database.read() as tx:
        for row in accounting.listed(tx):
            sums[row.kind] += row.consumption
    return dict(sums)


def due(site):
    """What an account must say of these jobs, from how long they lasted and what they held."""
    with site.database.read() as tx:
        ended = jobs.in_states(tx, [JobState.TERMINATED])
        held = jobs.resources_of(tx, [job.id for job in ended])
        asked = moldables.walltimes(tx, [job.assigned for job in ended])
    return {
        "USED": sum((job.stop - job.start) * len(held[job.id]) for job in ended),
        "ASKED": sum(asked[job.assigned] * len(held[job.id]) for job in ended),
    }
