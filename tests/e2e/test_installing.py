"""The page Installing, typed literally: from three bare machines to the first job.

The head is this machine with an /etc, a /var/lib and a /root of its own; nodes are machines behind sshd. Only what
needs Debian's archive or systemd is done by hand: the package is this tree, and what the unit starts is started by us.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import bed
from tests.bed import needs_root, remove_roots
from tests.e2e.instance import SOURCE
from tests.page import typed_lines
from tests.waiting import wait_until

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.component("sshd"), pytest.mark.component("ip")]

NODES = ("node1", "node2")
BARE = """
set -e
mkdir -p {place}/{{etc,lib,work1,work2,root/.ssh}}
mount -t overlay -o lowerdir=/etc,upperdir={place}/etc,workdir={place}/work1 overlay /etc
mount -t overlay -o lowerdir=/var/lib,upperdir={place}/lib,workdir={place}/work2 overlay /var/lib
mount --bind {place}/root /root
rm -rf /var/lib/oarlock /var/lib/oarlock-setup /etc/oarlock
hostname head
ip link set lo up
printf '%s\\n' '127.0.0.1 localhost' '10.213.0.1 head' {hosts} > /etc/hosts
printf 'Host *\\n  IdentityFile {key}\\n  StrictHostKeyChecking no\\n  LogLevel ERROR\\n' > /root/.ssh/config
chmod 600 /root/.ssh/config
"""


def section(title):
    """Return the lines that a section of the page has to be typed."""
    return typed_lines("installing.md", title)


@pytest.fixture
def head(workspace, two_users):
    """A shell on the head: a function that types a line there, as root or as a user, and returns what it printed."""
    with bed.rack(workspace) as rack:
        for number in (1, 2):
            homes = {name: workspace / f"n{number}{name.replace('/', '-')}" for name in ("/root", "/var/lib", "/run")}
            for place in homes.values():
                place.mkdir(mode=0o755)
            (homes["/run"] / "sshd").mkdir(mode=0o755)
            keys = f"{homes['/root']}/.ssh/authorized_keys {workspace}/m{number}{rack.name}/authorized"
            rack.machine(sshd=f"Match User root\n  AuthorizedKeysFile {keys}\n", over=homes)
        place = workspace / "bare"
        place.mkdir()
        hosts = " ".join(f"'{one.address} {name}'" for one, name in zip(rack.machines, NODES, strict=True))
        bare = BARE.format(place=place, hosts=hosts, key=workspace / "key")
        shell = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{rack.name}", "unshare", "--mount", "--uts", "bash", "-c",
             f"{bare}\necho ready; exec sleep 900"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        inside = ["nsenter", f"--target={shell.pid}", "--mount", "--uts", "--net"]
        variables = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE),
        }
        servers = []

        def start(line):
            servers.append(subprocess.Popen([*inside, "sh", "-c", f"exec {line}"], env=variables))

        def type_in(line, user="root", codes=(0,)):
            become = [] if user == "root" else ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
            ran = subprocess.run(
                [*inside, *become, "bash", "-c", f"cd {workspace}/home && {line}"],
                env=variables, capture_output=True, text=True, timeout=200,
            )  # fmt: skip
            assert ran.returncode in codes, f"{line}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
            return ran.stdout

        (workspace / "home").mkdir(exist_ok=True)
        (workspace / "home").chmod(0o777)
        try:
            yield type_in, start
        finally:
            for process in (*servers, shell):
                process.terminate()
                process.wait(20)
            shell.stdout.close()
            remove_roots(*NODES)


def test_the_page_leads_from_bare_machines_to_the_first_job(head, two_users, workspace):
    type_in, start = head
    setup, started = section("2. The server")
    assert started == "systemctl start oarlock"
    type_in(setup)
    unit = type_in("cat /etc/systemd/system/oarlock.service")
    start(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1])
    wait_until(lambda: "server.sock" in type_in("ls /var/lib/oarlock"), what="the server", seconds=90)
    *copies, doctor = section("3. The nodes")
    for line in copies:
        type_in(line)
    told = type_in(doctor, codes=(0, 1))  # these nodes call themselves otherwise, which is a warning
    assert "broken" not in told
    for line in section("4. The resources"):
        type_in(line)
    submission, looking, login = section("5. The first job")
    assert re.search(r"OAR_JOB_ID=1$", type_in(submission, two_users[0]), re.MULTILINE)
    assert "1" in type_in(looking, two_users[0])
    output = workspace / "home/OAR.1.stdout"
    wait_until(lambda: output.exists() and output.read_text().count("\n") == 2, what="the first job", seconds=90)
    assert sorted(output.read_text().split()) == sorted(NODES)
    assert "http" in type_in(login, two_users[0])
    undone = type_in(section("Taking it away")[1], codes=(2,))  # the database stays, and it says so
    assert "removed /etc/oarlock/oar.conf" in undone
