"""Output files: opened as the user, and never anything but the user's own plain file."""

import os
import socket
from pathlib import Path

import pytest

from oarlock.node.attempt.user import command
from oarlock.node.attempt.user.command import CannotStart, open_output
from oarlock.node.attempt.user.environment import JobFiles
from oarlock.node.attempt.user.identity import become, resolve
from oarlock.node.wire.messages import Launch
from tests.bed import needs_root
from tests.node.attempt.test_user import in_a_child


def link_to_roots_file(home):
    (home / "out").symlink_to(home / "passwords")


def dangling_link(home):
    (home / "out").symlink_to(home / "nowhere")


def fifo(home):
    os.mkfifo(home / "out", 0o666)
    (home / "out").chmod(0o666)


def device(home):
    os.mknod(home / "out", 0o666 | 0o020000, os.makedev(1, 3))
    (home / "out").chmod(0o666)


def directory(home):
    (home / "out").mkdir()


def roots_file(home):
    (home / "out").write_text("root's")
    (home / "out").chmod(0o600)


@needs_root
@pytest.mark.parametrize("trap", [link_to_roots_file, dangling_link, fifo, device, directory, roots_file])
def test_a_trap_in_the_place_of_an_output_is_not_opened(workspace, two_users, trap):
    ada = resolve(two_users[0], None)
    passwords = workspace / "passwords"
    passwords.write_text("root's")
    passwords.chmod(0o666)  # only the link is in the way
    before = passwords.stat()
    trap(workspace)
    os.chown(workspace, ada.uid, ada.gid)

    def work():
        become(ada)
        return open_output(str(workspace / "out"))

    assert in_a_child(work) == "CannotStart"
    assert passwords.stat() == before
    assert not (workspace / "nowhere").exists()


def test_an_output_is_appended_to_and_never_cut(tmp_path):
    (tmp_path / "out").write_text("before\n")
    fd = open_output(str(tmp_path / "out"))
    os.write(fd, b"after\n")
    os.close(fd)
    assert (tmp_path / "out").read_text() == "before\nafter\n"


def test_who_wants_no_output_says_dev_null():
    fd = open_output("/dev/null")
    assert os.write(fd, b"lost\n") == 5
    os.close(fd)


def test_a_device_that_is_refused_is_closed_again():
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(CannotStart, match="/dev/full is not a regular file"):
        open_output("/dev/full")
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_an_output_that_fails_names_the_file(tmp_path):
    with pytest.raises(CannotStart, match="absent/out") as problem:
        open_output(str(tmp_path / "absent" / "out"))
    assert problem.value.event == "OUTPUT_FILES"


def test_a_name_swapped_with_a_link_while_it_is_opened_gains_nothing(workspace, two_users):
    if os.geteuid() != 0:
        pytest.skip("two accounts need root")
    ada = resolve(two_users[0], None)
    secret = workspace / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    home = workspace / "home"
    home.mkdir()
    os.chown(home, ada.uid, ada.gid)
    swapper = os.fork()
    if swapper == 0:
        swap_for_ever(home, secret)

    def work():
        become(ada)
        for _ in range(2000):
            try:
                os.close(open_output(str(home / "out")))
            except CannotStart:
                continue
        return "done"

    try:
        assert in_a_child(work) == "'done'"
    finally:
        os.kill(swapper, 9)
        os.waitpid(swapper, 0)
    assert (secret.read_text(), secret.stat().st_uid) == ("root's", 0)


def swap_for_ever(home, secret):
    while True:
        for make in (lambda path: path.symlink_to(secret), lambda path: path.touch()):
            new = home / "new"
            new.unlink(missing_ok=True)
            make(new)
            new.rename(home / "out")


class Free:
    """A group that holds nobody."""

    path = "/free"
    procs_files = ()

    def join(self):
        pass


def ordered(launch, workspace, known=None):
    command.write_files(launch, JobFiles.of(str(workspace), "1.1"))
    return command.make_command_spec(launch, Free(), JobFiles.of(str(workspace), "1.1"), known, lowest_uid=1000)


@needs_root
@pytest.mark.parametrize(
    "call", ["setsid", "setgroups", "setresgid", "setresuid", "getresuid", "chdir", "dup2", "umask"]
)
def test_no_command_runs_when_a_call_before_it_fails(workspace, two_users, monkeypatch, call):
    def failing(*_, **__):
        raise OSError(1, "injected")

    made = workspace / "made"
    launch = Launch(1, 1, "", "", two_users[0], f"touch {made}", directory="/")
    workspace.chmod(0o777)
    real = getattr(os, call)
    monkeypatch.setattr(os, call, failing)
    begun = command.start(ordered(launch, workspace), Free().join)
    monkeypatch.setattr(os, call, real)
    begun.status.setblocking(True)
    said = heard(begun.status)
    assert (os.waitpid(begun.pid, 0)[1], made.exists()) == (127 << 8, False)
    assert "injected" in str(command.parse_child_message(said))


def heard(status):
    """What a child said last, before it ended."""
    last = b""
    while True:
        said, fds, _, _ = socket.recv_fds(status, 4096, 1)
        for fd in fds:
            os.close(fd)
        if not said:
            status.close()
            return last
        last = said


def test_who_was_looked_up_is_told_and_need_not_be_looked_up_again(workspace, two_users, monkeypatch):
    def begin(known=None):
        launch = Launch(1, 1, "", "", two_users[0], "true", directory="/")
        begun = command.start(ordered(launch, workspace, known), Free().join)
        begun.status.setblocking(True)
        said = begun.status.recv(command.LONGEST_MESSAGE)
        begun.status.close()
        os.waitpid(begun.pid, 0)
        for path in workspace.glob("1.1.*"):
            path.unlink()
        return said

    workspace.chmod(0o777)
    user = command.parse_child_message(begin())
    assert user == resolve(two_users[0], None)
    monkeypatch.setattr(command, "resolve", lambda *_, **__: pytest.fail("it was looked up"))
    assert begin(user) == b"!"


def test_nobody_is_believed_to_be_a_user_who_says_nonsense():
    assert [str(command.parse_child_message(said)) for said in (b'{"name": "ada"}', b"[1]", b"?")] == [
        'the child said b\'{"name": "ada"}\'',
        "the child said b'[1]'",
        "the child said b'?'",
    ]
