"""The time of an attempt, on a clock that the test holds."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.attempt.lease import CHECKPOINT, END, KILL, Lease
from tests.bed import needs_root

seconds = st.integers(1, 10_000)


def test_a_job_gets_its_signal_then_its_end_then_the_kill():
    lease = Lease(100, checkpoint=30)
    lease.begin(1000)
    assert [lease.due(at) for at in (1000, 1069.9, 1070)] == [None, None, CHECKPOINT]
    lease.signalled()
    assert [lease.due(at) for at in (1070, 1099.9, 1100)] == [None, None, END]
    lease.finish(1100, 20)
    assert [lease.due(at) for at in (1119.9, 1120, 1121, 1125)] == [None, KILL, None, KILL]


def test_nothing_is_due_before_the_job_began():
    assert Lease(1).due(1e9) is None


def test_told_twice_a_job_gets_no_more_time():
    lease = Lease(100)
    lease.begin(0)
    lease.finish(10, 20)
    lease.finish(25, 20)
    assert lease.next() == 30
    lease.finish(26, 0)
    assert lease.next() == 26


@given(seconds, st.lists(st.tuples(seconds, seconds), max_size=5))
def test_the_time_of_a_suspended_job_stands_still(walltime, pauses):
    lease, clock, begun = Lease(walltime), 0, 0
    lease.begin(begun)
    for run, pause in pauses:
        clock += run
        lease.suspend(clock)
        clock += pause
        assert lease.due(clock) is None
        lease.resume(clock)
    lasting = sum(pause for _, pause in pauses)
    assert lease.suspended == lasting
    assert lease.due(walltime + lasting - 0.5) is None
    assert lease.due(walltime + lasting) == END


@given(seconds, st.integers(0, 10_000), seconds)
def test_the_next_instant_is_the_first_at_which_something_is_due(walltime, checkpoint, begin):
    lease = Lease(walltime, checkpoint=checkpoint)
    lease.begin(begin)
    at = lease.next()
    assert lease.due(at) is not None
    assert lease.due(at - 0.001) is None or at < begin


@needs_root
def test_the_time_that_a_machine_slept_counts():
    # A time namespace whose clock says what that of a machine says that slept for two hours.
    slept = 7200
    shows = "import time; from oarlock.node.attempt import run; print(run.now() - time.monotonic())"
    awake, asleep = (
        float(subprocess.run([*spaces, sys.executable, "-c", shows], capture_output=True, text=True, check=True).stdout)
        for spaces in ((), ("unshare", "--time", "--fork", f"--boottime={slept}"))
    )
    assert abs(asleep - awake - slept) < 60
