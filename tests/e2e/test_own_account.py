"""A server of an account of its own, with a real sudo: it serves all, and jobs become their users all the same."""

import os
import pwd
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from tests.bed import needs_root, remove_roots, site_directory
from tests.e2e.instance import SOURCE, Instance

pytestmark = [needs_root, pytest.mark.component("sudo")]

_INSIDE = """
hostname {host}
mount --bind {sudoers} /etc/sudoers
exec setpriv --reuid {uid} --regid {gid} --clear-groups {command}
"""


class OfAccount(Instance):
    """An instance whose server runs as an account, on a host of its own name and with sudoers of its own."""

    account, sudoers, host = "", Path(), ""

    def start(self) -> None:
        entry = pwd.getpwnam(self.account)
        command = [sys.executable, "-m", "oarlock", "serve", "--state", self.state, "--config", self.settings]
        inside = _INSIDE.format(
            host=self.host,
            sudoers=self.sudoers,
            uid=entry.pw_uid,
            gid=entry.pw_gid,
            command=shlex.join(map(str, command)),
        )
        with (self.state / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "sh", "-c", inside],
                env={**os.environ, "PYTHONPATH": str(SOURCE)}, stderr=log, cwd="/",
            )  # fmt: skip


@pytest.fixture
def site(workspace, two_users):
    """An instance on one node, this machine; the first account is the server's."""
    host = f"own{secrets.token_hex(3)}"
    with site_directory() as place:
        program = place / "node"
        more = {
            "NODE_TRANSPORT": "auto", "NODE_ACCESS": "installed", "SERVE_EVERYBODY": "yes",
            "OAR_RUNTIME_DIRECTORY": place / "runtime", "LOCAL_NODE_CMD": f"sudo -n {program}",
        }  # fmt: skip
        made = OfAccount(workspace, two_users[1], [host], more=more)
        made.account, made.host, made.sudoers = two_users[0], host, place / "whole"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", workspace / "key"], check=True)
        words = ["node", "install", "--key", workspace / "key.pub", "--config", made.settings, "--to", place]
        command = [sys.executable, "-m", "oarlock", *words, "--program", program, "--account", two_users[0]]
        variables = {**os.environ, "PYTHONPATH": str(SOURCE)}
        ran = subprocess.run(list(map(str, command)), env=variables, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        program.chmod(0o755)
        made.sudoers.write_text((place / "sudoers").read_text())
        made.sudoers.chmod(0o440)
        entry = pwd.getpwnam(two_users[0])
        for path in (made.state, *made.state.rglob("*")):
            os.chown(path, entry.pw_uid, entry.pw_gid)
        try:
            yield made
        finally:
            if made.process is not None:
                made.kill()
            made.close()
            remove_roots(host)


def oarsub(site, user, *words):
    ran = subprocess.run(
        [Path(sys.executable).parent / "oarsub", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OARLOCK_SERVER": f"{site.state}/server.sock"},
        user=user, group=user, extra_groups=[], cwd=site.home, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout.rpartition("=")[2])


def test_a_server_without_root_serves_everybody_and_is_never_root(site, two_users):
    site.serve()
    server = int(subprocess.run(["pgrep", "-f", f"serve --state {site.state}"], capture_output=True, text=True)
                 .stdout.split()[0])  # fmt: skip
    assert Path(f"/proc/{server}").stat().st_uid == pwd.getpwnam(two_users[0]).pw_uid
    command = "id -un; until [ -e go ]; do sleep 0.1; done; exit 3"
    jobs = {user: oarsub(site, user, "-l", "core=1,walltime=1", "-n", user, command) for user in two_users}
    site.until(lambda: all(site.job(job).state is JobState.RUNNING for job in jobs.values()))
    site.kill()
    site.start()
    (site.home / "go").touch()
    site.until(site.all_over)
    for user, job in jobs.items():
        assert (site.home / f"OAR.{user}.{job}.stdout").read_text() == f"{user}\n"
        assert (site.job(job).state, site.job(job).exit_code) == (JobState.TERMINATED, 3 << 8)


def test_pretended_nodes_need_a_server_of_roots(site):
    site.settings.write_text(site.settings.read_text().replace('"auto"', '"local"'))
    site.start()
    assert site.process.wait(60) == 2
    assert "pretended nodes that run jobs of all users need a server of root's" in site.log()
