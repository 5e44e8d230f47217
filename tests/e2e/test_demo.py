"""The demonstration, as root and as a plain user."""

import asyncio
import contextlib
import os
import pty
import pwd
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from oarlock.cli.subcommands.instance import demo
from oarlock.client import Client
from oarlock.config import Config
from tests.bed import needs_root
from tests.e2e.instance import SOURCE
from tests.waiting import wait_until

pytestmark = needs_root


@pytest.fixture
def taken_port():
    """Take the port that an instance has by default, unless somebody has it already."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("localhost", Config().server_port)))
        yield


@pytest.mark.timeout(150)
def test_the_tour_ends_well_and_shows_every_kind_of_job(two_users, taken_port):
    ran = subprocess.run(
        [sys.executable, "-m", "oarlock", "demo", "--tour", "--user", two_users[1]],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=140, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[-2] == "Every job ended as it should, and the account agrees."
    assert "`oarlock demo` keeps such a cluster alive" in lines[-1]
    shown = [line[32:].strip() for line in lines[2:-2]]
    assert len(shown) == 14
    assert shown.count("the copy of job 1") == 1  # where in the list depends on when it was made


@contextlib.contextmanager
def in_terminal(*words):
    """Run Python in a terminal; return the process, and the end where one reads and types."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "dumb"},
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()
        os.close(master)


def shown_until(master, text, *, seconds=100):
    """Read until a text appears, or to the end; return everything that appeared."""
    shown, end = b"", time.monotonic() + seconds
    while text not in shown and time.monotonic() < end:
        if select.select([master], [], [], 1)[0]:
            try:
                shown += os.read(master, 1 << 16)
            except OSError:  # EIO: the other end is closed
                break
    return shown.decode(errors="replace").replace("\r", "")


def test_a_shell_and_oarsh_to_a_second_node_are_shown_in_a_terminal(shop, users):
    socket, home = shop.state / "server.sock", shop.home
    place = f"ShellPlace(Path('{socket}'), '{users[0]}', Path('{home}'), {tuple(shop.nodes)})"
    module = "oarlock.cli.subcommands.instance.demo_shell"
    code = f"from pathlib import Path; from {module} import *; show_shell({place}, print)"
    with in_terminal("-c", code) as (process, master):
        shown = shown_until(master, b"no key, no ssh.")
        assert process.wait(timeout=30) == 0, shown
    assert f"via the node {shop.nodes[0]}\n" in shown
    assert f"/run/{shop.nodes[1]}\n" in shown
    assert shown.index(f"\n{users[0]}\njob ") < shown.index("Disconnected from OAR job")


@pytest.mark.soak
@pytest.mark.timeout(150)
def test_the_tour_in_a_terminal_ends_with_a_shell_on_two_nodes(two_users):
    with in_terminal("-m", "oarlock", "demo", "--tour", "--user", two_users[1]) as (process, master):
        shown = shown_until(master, b"no key, no ssh.")
        assert process.wait(timeout=30) == 0, shown
    *_, session = shown.partition("what follows is typed into its shell.")
    assert "Connect to OAR job 15 via the node node1\n" in session
    assert f"{two_users[1]}\njob 15\n" in session
    assert "/run/node2\n" in session


@pytest.mark.soak
@pytest.mark.timeout(150)
def test_in_a_terminal_the_demonstration_hands_over_a_shell(two_users):
    with in_terminal("-m", "oarlock", "demo", "--user", two_users[1]) as (process, master):
        shown = shown_until(master, b"Connect to OAR job")
        assert "Your turn: a shell in a job on node1 and node2." in shown
        os.write(master, b"oarsh node2 'dirname $OARSH_SOCKET'; exit\n")
        assert "/run/node2\n" in shown_until(master, b"press Ctrl-C")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) in (0, 130)


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_the_cluster_goes_on_and_shows_findings_until_ctrl_c(two_users):
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "oarlock", "demo", "--user", two_users[1]],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            shown = []
            for line in process.stdout:
                shown.append(line)
                if "oarlock login" in line:
                    break
            [link] = [line.split()[-1] for line in shown if line.startswith("The portal: ")]
            server = next(word for line in shown for word in line.split() if word.startswith("OARLOCK_SERVER="))
            client = Client(server.partition("=")[2])
            wait_until(lambda: _found(client, "wait-for-data") >= {"cpu.zero"}, "the finding about idle cores", 150)
            with urllib.request.urlopen(link, timeout=10) as page:
                assert page.status == 200
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "Ending " in rest
    assert "did not end" not in rest


def _found(client, name):
    """Return the findings about jobs of this name."""
    named = [job["Job_Id"] for job in client.jobs(name=name, since=0, until=int(time.time()) + 60)]
    return {finding["id"] for job in named for finding in client.findings(job)}


def test_a_second_demonstration_with_the_lent_account_is_refused(tmp_path):
    first = demo.exclusive(tmp_path / "lock")
    with (
        first,
        pytest.raises(demo.DemoRefused, match="runs already on this machine"),
        demo.exclusive(tmp_path / "lock"),
    ):
        pass
    with demo.exclusive(tmp_path / "lock"):
        pass


def test_root_lends_an_account_of_its_own_though_there_are_people(two_users, monkeypatch):
    monkeypatch.setenv("SUDO_USER", two_users[0])
    with demo.lent_account(None) as who:
        lent = pwd.getpwnam(who)
        assert (who, lent.pw_uid >= 1000) == ("oarlock-demo", True)
    with pytest.raises(KeyError):
        pwd.getpwnam(who)


def test_an_account_that_is_not_there_is_refused_at_once():
    with pytest.raises(demo.DemoRefused, match="no account `nobody-here`"), demo.lent_account("nobody-here"):
        pass


@pytest.mark.parametrize("tour", [True, False])
def test_a_late_job_ends_a_tour_and_not_a_cluster_to_look_around(tour):
    async def play():
        raise demo.DemoFailed("Job 3 was late.")

    lines = []
    ends = pytest.raises(demo.DemoFailed) if tour else contextlib.nullcontext()
    with ends:
        asyncio.run(demo.introduce(play(), tour=tour, say=lines.append))
    assert lines == ([] if tour else ["Job 3 was late. The cluster stays for you to look around."])
