"""The program that says which devices a group may use: its instructions, and what becomes of a kernel's no."""

import errno
import os

import pytest

from oarlock.node.cgroup import devices
from oarlock.node.cgroup.base import CgroupError
from oarlock.node.cgroup.devices import Device, device, program
from oarlock.node.cgroup.v2 import V2Driver
from oarlock.node.wire.messages import CgroupLimits


def _run(code, asked):
    """Do what the kernel would: give the answer of a program to kind, major and minor of a device."""
    registers, at = {1: asked}, 0
    for _ in range(1000):
        operation, pair, offset, value = _decoded(code, at)
        to, at = pair & 15, at + 1
        if operation == 0x61:
            registers[to] = registers[pair >> 4][offset // 4]
        elif operation == 0x57:
            registers[to] &= value
        elif operation == 0xB7:
            registers[to] = value
        elif operation == 0x55:
            at += offset if registers[to] != value else 0
        else:
            assert operation == 0x95
            return registers[0]
    raise AssertionError("it does not end")


def _decoded(code, at):
    one = code[8 * at : 8 * at + 8]
    return one[0], one[1], *(int.from_bytes(one[a:b], "little", signed=True) for a, b in ((2, 4), (4, 8)))


def test_the_program_says_no_to_what_is_denied_and_yes_to_everything_else():
    code = program([Device(2, 195, 0), Device(2, 195, 3), Device(1, 8, 16)])
    read, write = 2 << 16, 4 << 16
    denied = [(read | 2, 195, 0), (write | 2, 195, 3), (read | write | 1, 8, 16)]
    allowed = [(read | 2, 195, 1), (read | 1, 195, 0), (read | 2, 8, 16), (read | 2, 1, 3), (read | 2, 0, 195)]
    assert [_run(code, one) for one in denied] == [0] * 3
    assert [_run(code, one) for one in allowed] == [1] * 5
    assert _run(program([]), (2, 1, 3)) == 1


def test_a_file_that_is_no_device_denies_nothing(tmp_path):
    assert [device(path) for path in (str(tmp_path), str(tmp_path / "none"), "/etc/passwd")] == [None] * 3
    null = os.stat("/dev/null").st_rdev  # noqa: PTH116
    assert device("/dev/null") == Device(2, os.major(null), os.minor(null))


@pytest.fixture
def tree(tmp_path):
    """A tree of plain files, as far as making a group goes."""
    (tmp_path / "cgroup.controllers").write_text("cpuset memory pids")
    root = tmp_path / "oarlock" / "n1"
    root.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset memory pids")
    return tmp_path


def _refuse(*_):
    raise OSError(errno.EPERM, "Operation not permitted")


def test_where_the_kernel_takes_no_programs_jobs_still_run(tree, monkeypatch):
    monkeypatch.setattr(devices, "_loaded", _refuse)
    driver = V2Driver(str(tree), "n1")
    assert driver.missing == ("devices",)
    driver.create("ada_1", CgroupLimits(deny_devices=("/dev/zero",)))


def test_a_filter_that_cannot_be_attached_keeps_the_job_from_starting(tree, monkeypatch):
    monkeypatch.setattr(devices, "works", lambda: True)
    monkeypatch.setattr(devices, "deny", _refuse)
    driver = V2Driver(str(tree), "n1")
    driver.create("ada_1", CgroupLimits(deny_devices=("/dev/none-such",)))
    with pytest.raises(CgroupError, match=r"/dev/zero could not be denied to .*ada_2: .*not permitted"):
        driver.create("ada_2", CgroupLimits(deny_devices=("/dev/zero",)))
