"""The scope that systemd makes for us. systemd itself is played by a script here, and is real in tests/vm."""

import os
import secrets
from pathlib import Path

import pytest

from oarlock.node.cgroup import base, drivers
from oarlock.node.cgroup.base import CgroupMounts
from oarlock.node.cgroup.drivers import detect
from oarlock.node.cgroup.v2 import V2Driver
from oarlock.node.measure import layout
from oarlock.node.measure.layout import OARLOCK
from oarlock.node.wire.messages import CgroupLimits
from tests.bed import needs_root, script
from tests.waiting import wait_until

TREE = drivers.mounted().v2

pytestmark = [needs_root, pytest.mark.skipif(TREE is None, reason="no cgroup2 tree here")]


@pytest.fixture
def node():
    name = f"t{secrets.token_hex(4)}"
    yield name
    at = Path(f"{TREE}{drivers.scope_path(name)}")
    for group in (*at.glob("*/"), at, at.parent):
        wait_until(lambda group=group: not group.exists() or removed(group), what=f"removing {group}")


def removed(group):
    try:
        group.rmdir()
    except OSError:
        return any(group.glob("*/"))  # other tests have theirs in the slice
    return True


@pytest.fixture
def systemd(tmp_path, monkeypatch, node):
    """A systemd-run that makes a group where systemd would make it; what it was asked is in a file."""
    script(
        tmp_path / "systemd-run",
        f'echo "$*" >> {tmp_path}/asked\n'
        f"at={TREE}{drivers.scope_path(node)}\nmkdir -p $at && echo $$ > $at/cgroup.procs && exec cat",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def entered(node):
    """Enter in a child, and say where it is then, or what it raised; and what else is in the scope."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            drivers.enter_scope(TREE, node)
            said = base.read("/proc/self/cgroup").splitlines()[-1] + str(
                base.processes(TREE + drivers.scope_path(node))
            )
        except OSError as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    said = os.read(reading, 4096).decode()
    os.close(reading)
    return said


def test_systemd_makes_the_scope_and_whoever_held_it_open_is_gone(node, systemd):
    assert entered(node) == f"0::/oarlock.slice/oarlock-{node}.scope/supervisors[]"
    assert (systemd / "asked").read_text().split()[-1] == "cat"


def test_a_scope_that_is_there_is_entered_without_asking_again(node, systemd):
    assert entered(node) == entered(node)
    assert len((systemd / "asked").read_text().splitlines()) == 1


def test_a_systemd_that_refuses_is_asked_three_times_and_no_more(node, systemd):
    script(systemd / "systemd-run", f"echo asked >> {systemd}/asked; exit 1")
    assert entered(node) == f"systemd does not give us /oarlock.slice/oarlock-{node}.scope"
    assert (systemd / "asked").read_text() == "asked\n" * 3


def test_without_limits_of_its_own_and_with_all_controllers():
    words = drivers.scope_command("n1")
    assert words[0] == "systemd-run"
    assert {"--scope", "--property=Delegate=yes", "--property=TasksMax=infinity", "--unit=oarlock-n1.scope"} < {*words}


def test_a_node_knows_its_own_jobs_in_a_scope_and_by_hand_and_nobody_elses():
    known = layout.layout_of_node("n.1")
    paths = ("oarlock.slice/oarlock-n.1.scope/ada_7", "oarlock/n.1/ada_7", "oarlock.slice/oarlock-nx1.scope/ada_7")
    assert [bool(known.match(path)) for path in paths] == [True, True, False]


def test_groups_are_made_in_the_scope_that_systemd_removes(node):
    at = Path(f"{TREE}{drivers.scope_path(node)}")
    at.mkdir(parents=True)
    driver = detect(node, CgroupMounts({}, TREE))
    group = driver.create("ada_7", CgroupLimits())
    place = OARLOCK.match(group.path)
    assert (group.path, (place.host, place.user, place.job)) == (
        f"{drivers.scope_path(node)}/ada_7",
        (node, "ada", "7"),
    )
    group.remove()
    driver.leave()
    assert (isinstance(driver, V2Driver), at.exists()) == (True, True)
