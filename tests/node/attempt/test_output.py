"""The end of an output: read as its user, from a plain file, within a deadline."""

import os
import signal

import pytest

from oarlock.node.attempt.user import output
from oarlock.node.attempt.user.output import LONGEST, OutputRequest
from oarlock.node.wire.messages import NodeRequestRefused
from tests.bed import needs_root

pytestmark = needs_root


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
def show(two_users, wake):
    def show_(path, **more):
        return output.run(OutputRequest(**{"user": two_users[0], "path": str(path), **more}), wake, lowest_uid=1000)

    return show_


@pytest.fixture
def folder(workspace):
    workspace.chmod(0o777)
    return workspace


def test_the_end_of_a_file_is_read_with_its_size(show, folder):
    file = folder / "OAR.7.stdout"
    file.write_bytes(b"x" * 10 + b"y" * (LONGEST - 4) + b"end\n")
    file.chmod(0o644)
    shown = show(file)
    assert (shown["size"], len(shown["out"]), shown["says"]) == (LONGEST + 10, LONGEST, "")
    assert shown["out"].startswith("yyy")
    assert shown["out"].endswith("end\n")


def test_bytes_that_are_no_text_are_replaced(show, folder):
    file = folder / "binary"
    file.write_bytes(b"\xff\x00\x1b[31mred")
    file.chmod(0o644)
    assert show(file)["out"] == "\ufffd\x00\x1b[31mred"


def test_a_file_that_its_user_cannot_read_is_not_shown(show, folder):
    file = folder / "secret"
    file.write_text("of root")
    file.chmod(0o600)
    assert show(file) == {"out": "", "size": 0, "says": f"{file}: Permission denied"}


def test_links_pipes_folders_and_devices_are_not_followed(show, folder):
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe", 0o666)
    (folder / "pipe").chmod(0o666)
    for path in (folder / "link", folder / "pipe", folder, "/dev/zero", folder / "missing"):
        shown = show(path)
        assert (path, shown["out"], shown["says"] != "") == (path, "", True)


def test_a_user_who_is_not_who_the_server_says_is_refused(show, folder):
    file = folder / "file"
    file.write_text("x")
    file.chmod(0o644)
    assert "uid" in show(file, uid=4711)["says"]
    assert "root" in show(file, user="root")["says"] or "uid" in show(file, user="root")["says"]


@pytest.mark.parametrize(
    "body", [{}, {"user": "ada"}, {"user": "ada", "path": "relative"}, {"user": "ada", "path": "/a\0b"},
             {"user": "ada", "path": "/x", "uid": "0"}, {"user": 7, "path": "/x"}]
)  # fmt: skip
def test_requests_that_make_no_sense_are_refused(body):
    with pytest.raises(NodeRequestRefused):
        output.read(body)
