"""Signals reach the processes of a job and nobody else, whatever becomes of their numbers."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.node.attempt.user.children import NoteWriter
from oarlock.node.cgroup import base, drivers
from tests.bed import needs_root

SPACES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")


@needs_root
@pytest.mark.parametrize("kind", ["tree", "freezer"])
def test_a_number_that_went_to_somebody_else_is_sent_no_signal(kind):
    if kind == "freezer" and kind not in drivers.mounted().v1:
        pytest.skip("this kernel has no freezer of the first kind")
    script = (sys.executable, Path(__file__).with_name("reuse.py"), kind, f"s{secrets.token_hex(4)}")
    ran = subprocess.run((*SPACES, *script), capture_output=True, text=True, check=False, env=os.environ)
    assert ran.stdout.split("\n")[:2] == ["spared", "arrived"], ran.stderr


@needs_root
def test_all_jobs_together_leave_processes_to_the_system():
    node = f"s{secrets.token_hex(4)}"
    driver = drivers.detect_driver(node)
    if "pids" in driver.missing:
        pytest.skip("processes cannot be limited here")
    [limit] = Path("/sys/fs/cgroup").glob(f"*/oarlock/{node}/pids.max")
    total = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert int(limit.read_text()) == base.allowed_processes() <= total * 3 // 4
    driver.leave()


def test_notes_for_a_file_that_hangs_cost_one_process_until_it_takes_them():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    notes = NoteWriter()
    begun = [notes.add(writing, f"note {number}\n") or notes.pid for number in range(18)]
    assert (len(set(begun)), begun[0] > 0, len(notes.pending)) == (1, True, 17)
    with os.fdopen(reading, "rb", buffering=0) as file:
        while (text := file.read(4096)) == b"x" * len(text):
            pass
        os.waitpid(notes.pid, 0)
        notes.pid = 0
        notes.go_on(writing)
        os.waitpid(notes.pid, 0)
        os.close(writing)
        text += file.readall()
    assert text.lstrip(b"x").decode() == "".join(f"note {number}\n" for number in range(18))


def test_a_note_that_is_never_taken_is_given_up():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    notes = NoteWriter(seconds=1)
    notes.add(writing, "note\n")
    assert os.waitpid(notes.pid, 0)[1] == signal.SIGALRM
    os.close(reading)
    os.close(writing)
