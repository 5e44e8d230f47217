"""Programs that tell a user of a job: who they run as, what they are given, and that none of them stays."""

import os
import signal
from pathlib import Path

import pytest

from oarlock.node.attempt.user import notice
from oarlock.node.attempt.user.notice import Notice
from oarlock.node.cgroup import drivers
from oarlock.node.wire.messages import NodeRequestRefused
from tests.bed import needs_root, remove_roots, script

pytestmark = needs_root

NODE = f"notice{os.getpid()}"


@pytest.fixture
def wake():
    """A descriptor that can be read when a child ended, as supervisors have one."""
    reading, writing = os.pipe()
    for fd in (reading, writing):
        os.set_blocking(fd, False)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    yield reading
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, before)
    os.close(reading)
    os.close(writing)


@pytest.fixture
def run(two_users, wake):
    driver = drivers.detect_driver(NODE)

    def run_(program, *arguments, seconds=10.0, **more):
        asked = Notice(**{"job": 7, "user": two_users[0], "program": program, "arguments": arguments, **more})
        return notice.run(asked, driver, wake, lowest_uid=1000, seconds=seconds)

    yield run_
    remove_roots(NODE)


@pytest.fixture
def open_workspace(workspace):
    workspace.chmod(0o777)
    return workspace


def _lives(file: Path) -> bool:
    """Whether the process whose number stands in a file runs; one that only waits to be buried does not."""
    try:
        stat = Path("/proc", file.read_text().strip(), "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_it_runs_as_the_user_with_its_arguments_untouched(run, open_workspace, two_users):
    told = open_workspace / "told"
    program = script(open_workspace / "tell", f'(id -un; printf "<%s>" "$@"; echo; env | sort) > {told}')
    assert run(program, "a b", "$(id)", "; rm -rf /", "*", "") == ""
    name, words, *variables = told.read_text().splitlines()
    assert (name, words) == (two_users[0], "<a b><$(id)><; rm -rf /><*><>")
    assert {line.partition("=")[0] for line in variables} <= {
        "HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "USER", "SHLVL", "_", "OLDPWD",
    }  # fmt: skip


def test_a_program_out_of_time_is_ended_with_everything_it_started(run, open_workspace):
    program = script(open_workspace / "tell", f"setsid sleep 600 & echo $! > {open_workspace}/pid; sleep 600")
    assert run(program, seconds=0.5) == f"{program} did not end within 0.5 s"
    assert not _lives(open_workspace / "pid")


def test_what_it_leaves_behind_when_it_ends_well_is_ended_too(run, open_workspace):
    program = script(open_workspace / "tell", f"setsid sleep 600 & echo $! > {open_workspace}/pid")
    assert run(program) == ""
    assert not _lives(open_workspace / "pid")


@pytest.mark.parametrize(
    ("program", "more", "says"),
    [
        ("/nowhere/tell", {}, "/nowhere/tell cannot be run: No such file or directory"),
        ("/etc/passwd", {}, "/etc/passwd cannot be run: Permission denied"),
        ("/bin/false", {}, "/bin/false ended with exit 1"),
        ("/bin/true", {"user": "root"}, "user `root` has uid 0; jobs run as uid 1000 or above"),
        ("/bin/true", {"uid": 1}, "has uid 1 on the server and"),
        ("/bin/true", {"user": "nobody-of-this-name"}, "user `nobody-of-this-name` is not known on this node"),
    ],
)
def test_what_goes_wrong_is_said_in_one_sentence(run, program, more, says):
    assert says in run(program, **more)


@pytest.mark.parametrize(
    "body",
    [
        {"job": "7", "user": "ada", "program": "/bin/true", "arguments": []},
        {"job": 7, "user": "ada", "program": "bin/true", "arguments": []},
        {"job": 7, "user": "ada", "program": "/bin/true", "arguments": "x"},
        {"job": 7, "user": "ada", "program": "/bin/true", "arguments": ["a\0b"]},
        {"job": 7, "user": "ada", "program": "/bin/true", "arguments": [], "uid": "0"},
    ],
)
def test_a_notice_that_makes_no_sense_is_refused(body):
    with pytest.raises(NodeRequestRefused):
        notice.read(body)
