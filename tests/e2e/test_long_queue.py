"""While 100,000 jobs of one user wait, another user's jobs start as soon as there is room and the policy lets them."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.bed import needs_root
from tests.e2e.instance import Instance, instance
from tests.e2e.test_attacks import running, started

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.timeout(900)]

WAITING = int(os.environ.get("LONG_QUEUE") or 100_000)
WINDOW = 60.0
SLOWEST = 10.0


@pytest.fixture
def long_queue(workspace, two_users, request) -> Iterator[Instance]:
    """A server where so many jobs of the first user wait behind a long one, on nodes of one core."""
    with instance(workspace, two_users[0], f"q{os.getpid()}n", nodes=4, cores=1, more={"JOB_MIN_UID": 1}) as site:
        first = site.nodes[0]
        there = f"{{network_address = '{first}'}}/core=1"
        site.submit("sleep 3600", f"{there},walltime=2:0:0")
        if request.param == "elsewhere":
            site.submit_many(["true"] * WAITING, f"{there},walltime=0:1:0")
        else:
            site.submit_many(["true"] * WAITING, "/core=4,walltime=0:1:0")
        site.start()
        site.until((site.state / "server.sock").exists)
        site.until(lambda: started(site) > 0)
        yield site


@pytest.mark.parametrize("long_queue", ["elsewhere", "large"], indirect=True)
def test_a_job_with_room_starts_soon_behind_100000_of_another_user(long_queue: Instance, two_users):
    with running(long_queue, two_users[1], "starts") as seen:
        time.sleep(WINDOW)
    waited = [seconds for _, seconds in seen["seconds"]]
    print(f"\n{len(waited)} jobs waited {max(waited):.2f} s at most, {sum(waited) / len(waited):.2f} s on average")
    assert max(waited) <= SLOWEST
