"""A job from a login host with a relay: its programs of `--notify exec:` run on that host, and on no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from tests.bed import needs_root, script
from tests.e2e.cluster import cluster
from tests.e2e.instance import SOURCE
from tests.waiting import wait_until

pytestmark = [needs_root, pytest.mark.component("sshd"), pytest.mark.component("ip")]


def run(command: str, *words: object, user: str | None = None, **more: str) -> str:
    """Run a command, as some user; return what it printed."""
    ran = subprocess.run(
        [Path(sys.executable).parent / command, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **more},
        user=user, group=user, extra_groups=[], capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_programs_of_notify_run_on_the_login_host_of_the_job(workspace: Path, two_users: tuple[str, str]):
    with cluster(workspace, two_users[0], ("", "")) as site:
        node, login = site.nodes
        site.serve()
        socket, address = site.state / "server.sock", _address(site.settings)
        run("oarlock", "token", "add", "--relay", login, "-o", workspace / "relay.key", "--server", socket)
        here = workspace / "relay.sock"
        relay = subprocess.Popen(
            [sys.executable, "-m", "oarlock", "relay", address, "--key", workspace / "relay.key",
             "--listen", here],
            env={**os.environ, "PYTHONPATH": str(SOURCE)}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_until(here.exists, what="the relay")
            told = site.home / "told"
            program = script(site.home / "tell", f'echo "$(hostname) $(id -un) $3" >> {told}')
            asked = ["-p", f"network_address='{node}'", "-l", "core=1,walltime=1", "--notify", f"exec:{program}"]
            words = [*asked, "-d", site.home, "true"]
            said = run("oarsub", *words, user=two_users[1], OARLOCK_SERVER=str(here))
            job = int(said.rpartition("=")[2])
            site.until(lambda: told.exists() and told.read_text().count("\n") == 2)
            assert told.read_text().splitlines() == [f"{login} {two_users[1]} {tag}" for tag in ("START", "END")]
            site.until(lambda: site.job(job).state is JobState.TERMINATED)
            assert (site.job(job).user, site.job(job).login_host) == (two_users[1], login)
        finally:
            relay.terminate()
            relay.wait(10)
            site.stop()


def _address(settings: Path) -> str:
    lines = dict(line.replace('"', "").split("=", 1) for line in settings.read_text().splitlines())
    return f"http://{lines['SERVER_HOSTNAME']}:{lines['SERVER_PORT']}"
