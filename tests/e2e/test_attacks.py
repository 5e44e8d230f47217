"""While one user asks for far too much, another user's commands are answered and jobs start."""

import contextlib
import json
import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.model.job import JobState
from oarlock.store.queries.job import jobs
from tests.bed import needs_root
from tests.e2e.instance import Instance, instance

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.hostile, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("attacker.py")
WAITING = 23_000
WINDOW = float(os.environ.get("ATTACK_SECONDS") or 20.0)
ATTACKS = (
    *("reservations", "arrays", "alternatives", "readers", "connections"),  # rows 5 to 9 of the table of attacks
    *("heads", "generated", "swaps"),
)
OWN_JOBS_FAIL = ("generated", "swaps")
"""Attacks that submit jobs with directories that are not there, or not theirs."""

TURNS = 10_000
"""How often a directory and a link must have changed places at least."""

SLOWEST = 1.0
LEAST_RATE = 0.5


@contextlib.contextmanager
def running(site: Instance, user: str, mode: str) -> Iterator[dict[str, Any]]:
    """Run a mode of the program as a user; what it saw is there when it has ended."""
    settings = dict(re.findall(r'(\w+)="(.*)"', site.settings.read_text()))
    address = f"{settings['SERVER_HOSTNAME']}:{settings['SERVER_PORT']}"
    arguments = [site.state / "server.sock", address, pwd.getpwnam(user).pw_uid, site.home, mode]
    seen: dict[str, Any] = {}
    with subprocess.Popen(
        [sys.executable, "-IS", PROGRAM, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield seen
            seen["cpu"] = cpu_seconds(process.pid)
            out, _ = process.communicate(timeout=150)
            seen.update(json.loads(out))
        finally:
            process.kill()


def started(site: Instance) -> int:
    """How many jobs have begun."""
    with site.database.read() as tx:
        counts = jobs.count(tx)
    return sum(count for state, count in counts.items() if state not in {JobState.WAITING, JobState.HOLD})


def measured(site: Instance, victim: str) -> tuple[float, dict[str, Any]]:
    """Let a user work for a while; give how many jobs began a second, and what its commands took."""
    assert site.process is not None
    with running(site, victim, "commands") as seen:
        before, began, cpu = started(site), time.monotonic(), cpu_seconds(site.process.pid)
        time.sleep(WINDOW)
        seconds = time.monotonic() - began
        rate = (started(site) - before) / seconds
        seen["server_cpu"] = (cpu_seconds(site.process.pid) - cpu) / seconds
    return rate, seen


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process took so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p99(seen: dict[str, Any]) -> float:
    ordered = sorted(seconds for _, seconds in seen["seconds"])
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])


@pytest.fixture
def busy_site(workspace, two_users, address) -> Iterator[Instance]:
    """A server with many waiting jobs, and nodes where they run one after the other."""
    more = {"JOB_MIN_UID": 1, "LOG_LEVEL": 2}
    with instance(workspace, two_users[0], f"a{os.getpid()}n", nodes=4, cores=1, more=more, address=address) as site:
        site.submit_many(["true"] * WAITING)
        site.start()
        site.until((site.state / "server.sock").exists)
        site.until(lambda: started(site) > 0)
        yield site


@pytest.mark.parametrize("attack", ATTACKS)
def test_others_work_on_while_one_user_asks_for_too_much(busy_site: Instance, two_users, attack: str):
    attacker, victim = two_users
    secret = busy_site.home.parent / "secret"
    secret.mkdir(mode=0o700)
    (secret / "kept").touch()
    quiet_rate, quiet = measured(busy_site, victim)
    assert quiet_rate > 0, "no job starts though nobody attacks: this machine is too busy to judge"
    with running(busy_site, attacker, attack) as done:
        time.sleep(2)  # until it is in full swing
        rate, seen = measured(busy_site, victim)
    print(
        f"\n{attack}: p99 {p99(quiet):.3f} -> {p99(seen):.3f} s of {len(seen['seconds'])} commands, "
        f"starts {quiet_rate:.1f} -> {rate:.1f} a second ({rate / quiet_rate:.0%}), "
        f"log {len(busy_site.log()) >> 10} KiB, load {os.getloadavg()[0]:.0f}\n"
        f"  cores: server {quiet['server_cpu']:.2f} -> {seen['server_cpu']:.2f}, attacker {done['cpu'] / WINDOW:.2f}\n"
        f"  attack {done['statuses']}\n  victim {seen['statuses']}"
    )
    deleted = sum(one["statuses"].get("delete 200", 0) for one in (quiet, seen))
    if attack not in OWN_JOBS_FAIL:
        assert failed(busy_site) <= deleted  # no job ended in Error that nobody deleted
    assert len(busy_site.log()) < 8 << 20
    assert done["faults"] == []
    assert "request failed" not in busy_site.log()
    assert [path.name for path in secret.iterdir()] == ["kept"]
    assert not list(busy_site.home.rglob("pwned"))
    if attack == "swaps":
        assert done["statuses"]["turns"] >= TURNS
    # Last, so that a busy machine hides nothing of the rest.
    assert p99(seen) <= SLOWEST
    assert rate >= LEAST_RATE * quiet_rate


def failed(site: Instance) -> int:
    with site.database.read() as tx:
        return jobs.count(tx).get(JobState.ERROR, 0)
