"""While 100,000 jobs of one user wait, another user's jobs start as soon as there is room and the policy lets them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from oarlock.store.tables import queues
from tests.bed import needs_root
from tests.e2e.instance import Instance, instance
from tests.e2e.test_attacks import running, started

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.load, pytest.mark.timeout(900)]

WAITING = int(os.environ.get("LONG_QUEUE") or 100_000)
WINDOW = float(os.environ.get("LONG_QUEUE_SECONDS") or 60.0)
SLOWEST = 10.0
LENGTHS = 50

POLICIES = ("easy", "easy-sjbf")
"""Besides the default; a pass of those that need all jobs each time (`conservative`, `multifactor`) takes too long."""


def fill(site: Instance, kind: str) -> None:
    """Let a long job run on the first node, and so many jobs of the same user wait."""
    there = f"{{network_address = '{site.nodes[0]}'}}/core=1"
    site.submit("sleep 3600", f"{there},walltime=2:0:0")
    if kind == "array elsewhere":
        site.submit_many(["true"] * WAITING, f"{there},walltime=0:1:0")
    elif kind == "large array":
        site.submit_many(["true"] * WAITING, "/core=4,walltime=0:1:0")
    elif kind == "large":
        site.submit_many(["true"] * WAITING, "/core=4,walltime=0:1:0", array=False)
    else:  # jobs of different lengths, each by itself
        for seconds in range(1, 1 + LENGTHS):
            site.submit_many(["true"] * (WAITING // LENGTHS), f"{there},walltime=0:1:{seconds}", array=False)


def waits(site: Instance, user: str) -> list[float]:
    """Submit one job after the other as a user, and measure how long each waits."""
    site.start()
    site.until((site.state / "server.sock").exists)
    site.until(lambda: started(site) > 0)
    with running(site, user, "starts") as seen:
        time.sleep(WINDOW)
    seconds = [waited for _, waited in seen["seconds"]]
    print(f"\n{len(seconds)} jobs waited {max(seconds):.2f} s at most, {sum(seconds) / len(seconds):.2f} s on average")
    return seconds


def long_queue(workspace: Path, user: str, address: str = "", **settings: Any) -> Any:
    more = {"JOB_MIN_UID": 1, **settings}
    return instance(workspace, user, f"q{os.getpid()}n", nodes=4, cores=1, more=more, address=address)


@pytest.fixture
def site(workspace, two_users, address) -> Iterator[Instance]:
    """A server with nodes of one core."""
    with long_queue(workspace, two_users[0], address) as made:
        yield made


@pytest.mark.parametrize("kind", ["array elsewhere", "large array", "elsewhere", "large"])
def test_a_job_with_room_starts_soon_behind_100000_of_another_user(site: Instance, two_users, kind: str):
    fill(site, kind)
    assert max(waits(site, two_users[1])) <= SLOWEST


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
@pytest.mark.parametrize("policy", POLICIES)
def test_under_each_policy_a_job_with_room_starts_soon(site: Instance, two_users, policy: str):
    site.database.write(lambda tx: tx.execute(update(queues).values(scheduler_policy=policy)))
    fill(site, "elsewhere")
    assert max(waits(site, two_users[1])) <= SLOWEST


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_a_job_with_room_starts_soon_while_those_of_another_user_start(site: Instance, two_users):
    there = f"{{network_address = '{site.nodes[0]}'}}/core=1"
    site.submit_many(["true"] * WAITING, f"{there},walltime=0:1:0", array=False)
    before = started(site)
    assert max(waits(site, two_users[1])) <= SLOWEST
    assert started(site) > before + WINDOW  # theirs went on
