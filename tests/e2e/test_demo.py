"""The demonstration, as root and as a plain user."""

import contextlib
import os
import pwd
import socket
import subprocess
import sys

import pytest

from oarlock.cli.subcommands import demo
from oarlock.config import Config
from tests.bed import needs_root
from tests.e2e.instance import SOURCE

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
    assert lines[-1] == "Every job ended as it should, and the account agrees."
    shown = [line[32:].strip() for line in lines[2:-1]]
    assert len(shown) == 14
    assert shown.count("the copy of job 1") == 1  # where in the list depends on when it was made


def test_root_lends_an_account_of_its_own_though_there_are_people(two_users, monkeypatch):
    monkeypatch.setenv("SUDO_USER", two_users[0])
    with demo.lent_account(None) as who:
        lent = pwd.getpwnam(who)
        assert (who, lent.pw_uid >= 1000) == ("oarlock-demo", True)
    with pytest.raises(KeyError):
        pwd.getpwnam(who)
