"""The way down from root: each step that fails ends it, and nothing of root is left."""

import contextlib
import errno
import os
import resource
import subprocess
import sys

import pytest

from oarlock.node.attempt.user import identity
from oarlock.node.attempt.user.identity import (
    CACHE_SECONDS,
    AccountCache,
    PrivilegesNotDropped,
    User,
    UserMissing,
    UserRefused,
    account,
    become,
    resolve,
)
from tests.bed import needs_root


def in_a_child(work):
    """Run `work` in a forked child; give what it returned, or the name of what it raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = repr(work())
        except BaseException as problem:  # noqa: BLE001 - the boundary of a forked child
            said = type(problem).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def exhausted():
    """Open files until there is no descriptor left."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with contextlib.suppress(OSError):
        while True:
            os.dup(2)


def test_an_account_that_does_not_exist_is_missing():
    with pytest.raises(UserMissing, match="nosuchuser"):
        account("nosuchuser")


def test_without_a_descriptor_nobody_knows_whether_an_account_exists():
    def work():
        exhausted()
        return account("nosuchuser")

    assert in_a_child(work) == "LookUpFailed"


@needs_root
@pytest.mark.parametrize("service", ["files", "files hesiod"])
def test_a_directory_that_is_away_does_not_say_that_an_account_is_missing(tmp_path, service):
    # Hesiod comes with the C library, and is away wherever nobody set it up.
    (tmp_path / "nsswitch.conf").write_text(f"passwd: {service}\ngroup: files\n")
    (tmp_path / "ask.py").write_text(ASK)
    mount = f"mount --bind {tmp_path}/nsswitch.conf /etc/nsswitch.conf && exec {sys.executable} {tmp_path}/ask.py"
    spaces = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount)
    said = subprocess.run(spaces, capture_output=True, text=True, check=False)
    assert said.stdout.split() == ["UserMissing" if service == "files" else "LookUpFailed"], said.stderr


ASK = """
from oarlock.node.attempt.user.identity import UserRefused, account
try:
    account("nosuchuser")
except UserRefused as refusal:
    print(type(refusal).__name__)
"""


@needs_root
def test_after_the_drop_every_id_is_the_users(two_users):
    ada = resolve(two_users[0], None)

    def work():
        become(ada)
        return os.getresuid(), os.getresgid(), sorted(os.getgroups())

    assert in_a_child(work) == repr(((ada.uid,) * 3, (ada.gid,) * 3, sorted(ada.groups)))


@needs_root
@pytest.mark.parametrize("call", ["setgroups", "setresgid", "setresuid"])
def test_a_call_that_fails_ends_the_way_down(two_users, monkeypatch, call):
    def failing(*_):
        raise OSError(errno.EAGAIN, "no more processes for this user")

    monkeypatch.setattr(os, call, failing)
    ada = resolve(two_users[0], None)
    assert in_a_child(lambda: become(ada)) == "BlockingIOError"


@needs_root
@pytest.mark.parametrize("call", ["setresgid", "setresuid"])
def test_a_call_that_lies_is_found_out(two_users, monkeypatch, call):
    monkeypatch.setattr(os, call, lambda *_: None)
    ada = resolve(two_users[0], None)
    assert in_a_child(lambda: become(ada)) == "PrivilegesNotDropped"


@needs_root
def test_root_that_could_come_back_is_found_out(two_users):
    ada = resolve(two_users[0], None)

    def work():
        os.setresuid(ada.uid, ada.uid, 0)
        identity._check_irreversible(ada)

    assert in_a_child(work) == PrivilegesNotDropped.__name__


@needs_root
@pytest.mark.parametrize(
    ("name", "uid", "says"),
    [
        ("root", None, "uid 0"),
        ("daemon", None, "jobs run as uid 1000 or above"),
        ("nobody-of-that-name", None, "not known on this node"),
    ],
)
def test_some_users_run_no_jobs(name, uid, says):
    with pytest.raises(UserRefused, match=says):
        resolve(name, uid)


@needs_root
def test_another_number_on_the_server_is_refused(two_users):
    with pytest.raises(UserRefused, match="has uid 4242 on the server"):
        resolve(two_users[0], 4242)


@needs_root
def test_a_plain_users_instance_runs_only_that_users_jobs(two_users):
    ada = resolve(two_users[0], None)

    def as_ada(name):
        become(ada)
        return resolve(name, None).uid

    assert in_a_child(lambda: as_ada(two_users[0])) == str(ada.uid)
    assert in_a_child(lambda: as_ada(two_users[1])) == "UserRefused"
    assert isinstance(ada, User)


ADA = User("ada", 1001, 1001, (1001, 50), "/home/ada", "/bin/sh")


def test_an_account_is_known_for_a_minute_under_the_uid_that_was_asked_for():
    met = AccountCache()
    assert met.get("ada", 1001, now=100.0) is None
    met.add(ADA, 1001, now=100.0)
    assert met.get("ada", 1001, now=100.0 + CACHE_SECONDS - 1) == ADA
    assert met.get("ada", 1001, now=100.0 + CACHE_SECONDS) is None
    assert (met.get("ada", None, now=100.0), met.get("bob", 1001, now=100.0)) == (None, None)


def test_accounts_that_are_not_asked_for_are_forgotten():
    met = AccountCache()
    met.add(ADA, None, now=100.0)
    met.add(ADA._replace(name="bob"), None, now=100.0 + CACHE_SECONDS)
    assert met.get("ada", None, now=100.0) is None
