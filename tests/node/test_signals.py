"""Signals reach the processes of a job and nobody else, whatever becomes of their numbers."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.node import cgroup
from tests.bed import needs_root

SPACES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")


@needs_root
@pytest.mark.parametrize("kind", ["tree", "freezer"])
def test_a_number_that_went_to_somebody_else_is_sent_no_signal(kind):
    if kind == "freezer" and kind not in cgroup.mounted().v1:
        pytest.skip("this kernel has no freezer of the first kind")
    script = (sys.executable, Path(__file__).with_name("reuse.py"), kind, f"s{secrets.token_hex(4)}")
    ran = subprocess.run((*SPACES, *script), capture_output=True, text=True, check=False, env=os.environ)
    assert ran.stdout.split("\n")[:2] == ["spared", "arrived"], ran.stderr


@needs_root
def test_all_jobs_together_leave_processes_to_the_system():
    node = f"s{secrets.token_hex(4)}"
    driver = cgroup.here(node)
    if "pids" in driver.missing:
        pytest.skip("processes cannot be limited here")
    [limit] = Path("/sys/fs/cgroup").glob(f"**/oarlock/{node}/pids.max")
    total = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert int(limit.read_text()) == cgroup.allowed_processes() <= total * 3 // 4
    driver.leave()
