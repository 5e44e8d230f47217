"""NODE_ACCESS=installed with a real sshd and a real sudo: the server has no root key and brings no program."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

from oarlock.model.job import JobState
from tests import bed
from tests.bed import needs_root, site_directory
from tests.e2e.cluster import Cluster
from tests.e2e.instance import SOURCE

pytestmark = [needs_root, *(pytest.mark.component(name) for name in ("sshd", "ip", "sudo"))]


def _oarlock(*arguments):
    command = [sys.executable, "-m", "oarlock", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)


@contextlib.contextmanager
def _installed(workspace, user, account):
    """Two machines prepared as `oarlock node install` says; there `account` is who the server is."""
    with site_directory() as place, bed.rack(workspace) as rack:
        settings = workspace / "node.conf"
        settings.write_text(f'OAR_RUNTIME_DIRECTORY="{rack.disk}"\n')
        where = ("--to", place, "--program", place / "node", "--account", account)
        ran = _oarlock("node", "install", "--key", workspace / "key.pub", "--config", settings, *where)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert f"install -D -o root -g root -m 755 {place}/node {place}/node" in ran.stdout
        (place / "node").chmod(0o755)
        sudoers = place / "whole"
        sudoers.write_text(f"Defaults env_reset\nDefaults use_pty\n{(place / 'sudoers').read_text()}")  # as Debian's
        sudoers.chmod(0o440)
        shutil.copy(place / "authorized_keys", workspace / "forced")  # sshd reads it as the account
        keys = f"Match User {account}\n  AuthorizedKeysFile {workspace}/forced\n"
        for _ in range(2):
            machine = rack.machine(sshd=keys, over={"/etc/sudoers": sudoers})
            (machine.home / "authorized").write_text("")  # no root key any more
        reach = {"NODE_ACCESS": "installed", "OPENSSH_CMD": " ".join([*rack.named(), "-l", account])}
        made = Cluster(rack, user, more=reach)
        try:
            yield made, place
        finally:
            if made.process is not None:
                made.kill()
            for machine in made.machines:
                machine.cut_power()
            made.close()


def test_jobs_run_as_their_users_and_outlive_the_server(workspace, two_users):
    with _installed(workspace, *two_users) as (site, _):
        other = f"oarsh {site.nodes[1]} 'hostname; exit 3' || echo $?"
        command = f"id -un; until [ -e go ]; do sleep 0.1; done; {other}"
        job = site.submit(command, "/network_address=2,walltime=1")
        site.start()
        site.until(lambda: site.job(job).state is JobState.RUNNING)
        site.kill()
        site.start()
        (site.home / "go").touch()
        site.until(site.all_over)
        assert (site.story(job)[-1], site.attempt(job).number) == ("Terminated", 1)
        assert (site.home / f"OAR.{job}.stdout").read_text() == f"{two_users[0]}\n{site.nodes[1]}\n3\n"


def test_the_key_opens_nothing_else(workspace, two_users):
    with _installed(workspace, *two_users) as (site, place):
        [machine, _] = site.machines
        ssh = [*site.rack.ssh(), "-l", two_users[1], machine.address]
        shell = subprocess.run([*ssh, "id; touch", f"{place}/mine"], input=b"", capture_output=True, timeout=20)
        assert b"uid=" not in shell.stdout
        assert b"OARLOCK installed" in shell.stdout
        assert not (place / "mine").exists()
        root = subprocess.run(
            [*site.rack.ssh(), "-l", "root", "-o", "BatchMode=yes", machine.address, "id"], timeout=20
        )
        assert root.returncode == 255


def test_nodes_with_an_older_program_are_suspected_with_a_way_out(workspace, two_users):
    with _installed(workspace, *two_users) as (site, place):
        text = (place / "node").read_text()
        (place / "node").write_text(f"{text.rpartition(', ')[0]}, '0123456789ab')\n")
        job = site.submit("true", "/network_address=1,walltime=1")
        site.start()
        site.until(lambda: site.said(job, "PING_CHECKER_NODE_SUSPECTED"))
        [says, *_] = site.said(job, "PING_CHECKER_NODE_SUSPECTED")
        assert "run `oarlock node install` and put the new file on the node" in says
