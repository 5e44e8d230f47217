"""Real servers with real nodes die at one failpoint after the other: no job is lost, doubled, or left behind."""

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from oarlock.store.queries.job import jobs
from tests.bed import needs_root
from tests.crash.interrupted import DEAD
from tests.e2e.instance import SOURCE, Instance, instance

pytestmark = needs_root

_USER = """
import http.client, json, os, sys, time, uuid
from tests.hostile.asking import answer_to

def insist(path, body):
    # The same request with the same id, until there is an answer that is no "ask again".
    request_id = uuid.uuid4().hex
    while True:
        try:
            status, text = answer_to(sys.argv[1], "POST", path, body, request_id)
        except (OSError, http.client.HTTPException):
            status = 503
        if status != 503:
            assert status == 200, text
            return json.loads(text)
        time.sleep(0.05)

write = "echo $OAR_JOB_ID >> lines"
places = {"resources": ["/core=1,walltime=1"], "directory": os.getcwd()}
turn = 0
while not os.path.exists("enough"):
    asked = (
        {**places, "command": write},
        {**places, "command": "sleep 0.2; " + write + "; true", "array": ["1", "2", "3"]},
        {**places, "command": write + "; sleep 600"},
    )[turn % 3]
    ids = insist("/api/v1/jobs", asked)["job_ids"]
    print(*ids, flush=True)
    if turn % 3 == 2:
        insist("/api/v1/jobs/delete", {"ids": ids})
        print("deleted", *ids, flush=True)
    turn += 1
    time.sleep(0.1)
"""


class DyingInstance(Instance):
    """An instance whose server may be started so that it dies at a failpoint."""

    def die_at(self, number: int) -> str:
        """Start the server, wait until it is dead, and return the name of the point."""
        begun = len(self.log()) if (self.state / "log").exists() else 0
        with (self.state / "log").open("ab") as log:
            arguments = ["serve", "--state", self.state, "--config", self.settings]
            done = subprocess.run(
                [sys.executable, "-m", "tests.crash.dying_serve", str(number), *arguments],
                env={**os.environ, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"}, stderr=log, timeout=300, check=False,
            )  # fmt: skip
        assert done.returncode == DEAD, self.log()[-3000:]
        [name] = re.findall(rf"^died at failpoint {number}: (.*)$", self.log()[begun:], re.MULTILINE)
        return str(name).strip()


@contextmanager
def submitting(site: Instance) -> Iterator["subprocess.Popen[str]"]:
    """Let a user submit and delete; what was acknowledged is in a file of their directory."""
    account = pwd.getpwnam(site.user)
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"}
    with (site.home / "acknowledged").open("w") as acknowledged, subprocess.Popen(
        [sys.executable, "-c", _USER, str(site.state / "server.sock")], cwd=site.home, env=environment,
        stdout=acknowledged, stderr=subprocess.PIPE, text=True, user=account.pw_uid, group=account.pw_gid,
        extra_groups=[],
    ) as user:  # fmt: skip
        try:
            yield user
        finally:
            user.kill()


def acknowledged(home: Path) -> tuple[set[int], set[int]]:
    """Return the jobs whose numbers the user was told, and those of them that were deleted."""
    lines = [line.split() for line in (home / "acknowledged").read_text().splitlines()]
    deleted = {int(word) for line in lines if line[0] == "deleted" for word in line[1:]}
    return {int(word) for line in lines if line[0] != "deleted" for word in line}, deleted


def verify(site: Instance) -> None:
    """Every job that was acknowledged ended as it has to, ran once, and the check finds nothing, on nodes neither."""
    ids, deleted = acknowledged(site.home)
    site.until(site.all_over, seconds=120)
    command = [sys.executable, "-m", "oarlock", "check", "--live", "--state", site.state, "--config", site.settings]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with site.database.read() as tx:
        ends = {job.id: job.state for job in jobs.in_states(tx, list(JobState))}
    assert set(ends) == ids
    assert {number for number, state in ends.items() if state is not JobState.TERMINATED} <= deleted
    ran = [int(line) for line in (site.home / "lines").read_text().split()]
    assert len(ran) == len(set(ran))
    assert ids - deleted <= set(ran)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((5, 24), id="two points"),
        pytest.param(range(1, 81), id="each of the first eighty", marks=pytest.mark.soak),
        pytest.param(range(83, 400, 4), id="each fourth of the next three hundred", marks=pytest.mark.soak),
    ],
)
def test_a_real_server_that_dies_at_any_failpoint_loses_no_job(workspace, two_users, address, numbers):
    with instance(workspace, two_users[0], f"f{os.getpid()}n", nodes=2, address=address, kind=DyingInstance) as site:
        with submitting(site) as user:
            points = [site.die_at(number) for number in numbers]
            site.serve()
            (site.home / "enough").touch()
            _, errors = user.communicate(timeout=150)
            assert user.returncode == 0, errors
        print(f"{len(points)} deaths at {sorted(set(points))}; {len(acknowledged(site.home)[0])} jobs")
        verify(site)
