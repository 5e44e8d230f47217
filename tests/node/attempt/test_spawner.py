"""Starting a command without a fork: as the user and nobody else, or not at all."""

import ctypes
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from oarlock.node.attempt.user import command
from oarlock.node.attempt.user.children import ChildProcesses
from oarlock.node.attempt.user.command import CommandSpec
from oarlock.node.attempt.user.environment import JobFiles
from oarlock.node.attempt.user.identity import User, become, resolve
from oarlock.node.attempt.user.spawner import Spawner, _decode_request, _encode_request
from oarlock.node.cgroup.base import current_procs_files
from oarlock.node.wire.messages import Launch
from tests.bed import needs_root
from tests.node.attempt.fuse import mounted
from tests.node.attempt.test_user import in_a_child
from tests.waiting import wait_until

PIDFD_GETFD = 438  # the same number on every architecture


class Place(NamedTuple):
    """A group that holds nobody; it can be left if it has a home."""

    return_files: tuple[str, ...] = ()
    path: str = "/free"
    procs_files: tuple[str, ...] = ()

    def join(self):
        pass


class Said(NamedTuple):
    """What a command's beginning told."""

    words: list[bytes]
    status: int | None


def ordered(user, text, workspace):
    """An order to run a command in `workspace`."""
    workspace.chmod(0o777)
    files = JobFiles.of(str(workspace), "1.1")
    for path in map(Path, files):
        path.unlink(missing_ok=True)
    launch = Launch(1, 1, "", "", user, text, directory=str(workspace))
    command.write_files(launch, files)
    return command.make_command_spec(launch, Place(), files, lowest_uid=1000)


def listened(begun):
    """Everything that was said until the command ran, or could not."""
    begun.status.setblocking(True)
    words = []
    while True:
        said, fds, _, _ = socket.recv_fds(begun.status, command.LONGEST_MESSAGE, 1)
        for fd in fds:
            os.close(fd)
        if not said:
            begun.status.close()
            return words
        words.append(said)


def ran(children, order, place):
    """Have a command started and wait for its end."""
    children.reset()
    words = listened(children.start(order, place))
    if words[-1] != b"!":
        return Said(words, None)
    wait_until(lambda: children.reap() or children.is_over, "news of the command")
    return Said(words, children.status(children.main))


@pytest.fixture
def children():
    """Children whose spawner ends with the test."""
    made = ChildProcesses()
    yield made
    made._dismiss_spawner()


@pytest.fixture
def place(tmp_path):
    """A place that can be left: its home is a file where numbers are written."""
    (tmp_path / "home").touch()
    return Place((str(tmp_path / "home"),))


@needs_root
def test_the_command_has_nothing_left_of_root(workspace, two_users, children, place):
    ada = resolve(two_users[0], None)
    shown = workspace / "shown"
    text = f"grep -E '^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb))' /proc/self/status > {shown}"
    assert ran(children, ordered(two_users[0], text, workspace), place).status == 0
    found = dict(line.split(":", 1) for line in shown.read_text().splitlines())
    ids = {name: [int(word) for word in found.pop(name).split()] for name in ("Uid", "Gid", "Groups")}
    assert ids == {"Uid": [ada.uid] * 4, "Gid": [ada.gid] * 4, "Groups": sorted(ada.groups)}
    assert {name: int(value, 16) for name, value in found.items()} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapAmb"), 0
    )


@needs_root
def test_the_command_finds_nothing_open_but_its_three(workspace, two_users, children, place):
    assert (
        ran(children, ordered(two_users[0], f"ls /proc/$$/fd > {workspace}/open; exec true", workspace), place).status
        == 0
    )
    assert set((workspace / "open").read_text().split()) - {"10"} == {
        "0",
        "1",
        "2",
    }  # 10 is where dash keeps its script


@needs_root
def test_root_cannot_be_had_back_by_the_command(workspace, two_users, children, place):
    attempt = "import os\nfor call in (os.setuid, os.seteuid, os.setgid, os.setegid):\n"
    attempt += " try: call(0)\n except PermissionError: continue\n raise SystemExit(3)"
    (workspace / "regain.py").write_text(attempt)
    assert ran(children, ordered(two_users[0], "/usr/bin/python3 regain.py", workspace), place).status == 0


@needs_root
def test_one_spawner_serves_a_user_again_and_another_user_never(workspace, two_users, children, place):
    seen = []
    for user in (two_users[0], two_users[0], two_users[1]):
        status = ran(children, ordered(user, "exit 7", workspace), place).status
        seen.append((children._spawner.pid, os.waitstatus_to_exitcode(status)))
    assert [code for _, code in seen] == [7, 7, 7]
    assert seen[0][0] == seen[1][0] != seen[2][0]


@needs_root
@pytest.mark.parametrize("call", ["setgroups", "setresgid", "setresuid", "getresuid", "getresgid", "chdir"])
def test_nothing_is_executed_when_a_call_before_it_fails(workspace, two_users, children, place, monkeypatch, call):
    def failing(*_, **__):
        raise OSError(1, "injected")

    order = ordered(two_users[0], f"touch {workspace}/made", workspace)
    monkeypatch.setattr(os, call, failing)
    begun = children.start(order, place)
    monkeypatch.undo()
    words = listened(begun)
    wait_until(lambda: children.reap() or children._spawner is None or not children.fds(), "news of the command")
    assert b"!" not in words
    assert not (workspace / "made").exists()


@needs_root
def test_after_a_failure_the_next_command_is_served(workspace, two_users, children, place):
    order = ordered(two_users[0], "true", workspace)._replace(directory=str(workspace / "absent"))
    refused = ran(children, order, place)
    assert b"WORKING_DIRECTORY" in refused.words[-1]
    before = children._spawner.pid
    wait_until(lambda: children.reap() or not children.fds(), "news of the command")
    assert (ran(children, ordered(two_users[0], "true", workspace), place).status, children._spawner.pid) == (0, before)


@needs_root
def test_a_command_whose_spawner_is_killed_is_lost_and_not_guessed(workspace, two_users, children, place):
    children.reset()
    assert listened(children.start(ordered(two_users[0], "sleep 30", workspace), place))[-1] == b"!"
    wait_until(lambda: children.reap() or children.main, "news of the command")
    os.kill(children._spawner.pid, signal.SIGKILL)
    wait_until(lambda: children.reap() or children.is_over, "news of the command")
    assert (children.is_lost, children.status(children.main)) == (True, None)
    os.kill(children.main, signal.SIGKILL)


@needs_root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this kernel has no FUSE")
def test_outputs_in_a_file_system_of_the_users_own_are_opened(workspace, two_users, children, place):
    ada = resolve(two_users[0], None)
    own = workspace / "own"
    own.mkdir()
    os.chown(own, ada.uid, ada.gid)
    order = ordered(two_users[0], "echo written", workspace)._replace(stdout=str(own / "out"))
    with mounted(own, ada.uid, ada.gid) as served:
        assert ran(children, order, place).status == 0
        assert served.written == b"written\n"


@needs_root
def test_a_directory_closed_to_the_user_stays_closed(workspace, two_users, children, place):
    (workspace / "closed").mkdir(mode=0o700)
    order = ordered(two_users[0], "true", workspace)._replace(directory=str(workspace / "closed"))
    assert b"WORKING_DIRECTORY" in ran(children, order, place).words[-1]


def copied(pid):
    """Copy every socket of a process, as the child has them that it is about to spawn."""
    pidfd, libc = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True)
    fds = Path(f"/proc/{pid}/fd").iterdir()
    numbers = [int(fd.name) for fd in fds if str(fd.readlink()).startswith("socket:")]
    copies = [libc.syscall(PIDFD_GETFD, pidfd, number, 0) for number in numbers]
    os.close(pidfd)
    return copies


@needs_root
def test_a_spawner_killed_while_its_child_holds_the_line_is_noticed(workspace, two_users, children, place):
    children.reset()
    assert listened(children.start(ordered(two_users[0], "sleep 30", workspace), place))[-1] == b"!"
    wait_until(lambda: children.reap() or children.main, "news of the command")
    held = copied(children._spawner.pid)
    os.kill(children._spawner.pid, signal.SIGKILL)
    wait_until(lambda: children.reap() or children._spawner is None, "the end of the spawner")
    assert (min(held) >= 0, children.is_lost, children.is_over) == (True, True, True)
    for fd in held:
        os.close(fd)
    os.kill(children.main, signal.SIGKILL)


@needs_root
def test_a_spawner_that_its_user_stopped_ends_with_the_attempt(workspace, two_users, children, place, monkeypatch):
    ada = resolve(two_users[0], None)
    monkeypatch.setattr(os, "chdir", lambda _: time.sleep(60))
    children.reset()
    begun = children.start(ordered(two_users[0], f"touch {workspace}/made", workspace), place)
    monkeypatch.undo()
    pid = children._spawner.pid
    status = Path(f"/proc/{pid}/status")
    wait_until(lambda: f"Uid:\t{ada.uid}\t{ada.uid}\t0\t" in status.read_text(), "the moment in which it is ada")

    def stop():
        become(ada)
        os.kill(pid, signal.SIGSTOP)

    assert in_a_child(stop) == "None"
    children.keep_idle_spawner()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert listened(begun) == [begun_as(ada)]
    assert not (workspace / "made").exists()


def begun_as(user):
    """What is said when somebody was looked up."""
    return json.dumps(user._asdict()).encode()


@needs_root
def test_a_spawner_that_died_idle_is_replaced(workspace, two_users, children, place):
    assert ran(children, ordered(two_users[0], "true", workspace), place).status == 0
    os.kill(children._spawner.pid, signal.SIGKILL)
    os.waitid(os.P_PID, children._spawner.pid, os.WEXITED | os.WNOWAIT)
    assert ran(children, ordered(two_users[0], "exit 3", workspace), place).status == 3 << 8


@needs_root
def test_where_a_group_cannot_be_left_the_supervisor_forks(workspace, two_users, children):
    assert ran(children, ordered(two_users[0], "exit 4", workspace), Place()).status == 4 << 8
    assert children._spawner is None


@needs_root
def test_where_nobody_can_go_back_the_supervisor_forks(workspace, two_users, children, tmp_path):
    assert (
        ran(children, ordered(two_users[0], "exit 5", workspace), Place((str(tmp_path / "no" / "home"),))).status
        == 5 << 8
    )
    assert children._spawner is None


@needs_root
def test_an_order_longer_than_a_socket_holds_arrives(workspace, two_users, place):
    spawner = Spawner((two_users[0], None), place.return_files)
    order = ordered(two_users[0], 'test ${#LONG} = 100000 -a ${#MORE} = 100000 -a -n "x"', workspace)
    long = dict.fromkeys(("LONG", "MORE", "THIRD"), "x" * 100000)
    begun = spawner.start(order._replace(environment={**order.environment, **long}), place)
    assert listened(begun)[-1] == b"!"
    heard = {}
    wait_until(lambda: heard.update(spawner.poll()) or "status" in heard, "news of the command")
    assert heard["status"] == 0
    spawner.dismiss()


def test_homes_are_where_a_process_is_in_the_hierarchies_that_are_used():
    text = "4:memory:/a/b\n3:cpu,cpuacct:/\n2:devices:/x\n0::/user.slice\n"
    assert current_procs_files({"memory": "/m", "cpuacct": "/c", "": "/u"}, text) == (
        "/m/a/b/cgroup.procs",
        "/c/cgroup.procs",
        "/u/user.slice/cgroup.procs",
    )


@pytest.mark.parametrize("known", [None, User("ada", 1001, 1002, (1002, 50), "/home/ada", "/bin/sh")])
def test_an_order_arrives_as_it_was_given_whatever_bytes_are_in_it(known):
    order = CommandSpec("ada", None, 1000, "/d\udcff", "out", "err", "echo '\udc80\0'", ("n", "r"), {"A": "ä\n"}, known)
    assert _decode_request(_encode_request(order, ("/door",))) == (("/door",), order)
