"""What a supervisor says to the node program, and when."""

import os
import select
import socket
import time

import pytest

from oarlock.node.attempt.link import MOMENT, ProgramLink
from oarlock.node.attempt.sessions.session_table import SessionTable
from oarlock.node.attempt.user.children import ChildProcesses
from oarlock.node.wire.channel import ANSWER, EVENT, FrameReader

LAUNCHING = {"state": "launching"}
STARTED = {"event": "started"}
EXITED = {"event": "exited"}


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        yield ProgramLink(ours), theirs


def heard(line, *, within=0.0):
    """Give what one read finds, as kinds and bodies."""
    if not select.select([line], [], [], within)[0]:
        return []
    return [(frame.kind, frame.body()) for frame in FrameReader().feed(line.recv(1 << 16))]


def test_what_may_wait_is_said_together_with_what_may_not(ends):
    link, program = ends
    link.answer(1, LAUNCHING, may_wait=True)
    link.send_event(STARTED, may_wait=True)
    assert heard(program) == []
    link.send_event(EXITED)
    assert heard(program) == [(ANSWER, LAUNCHING), (EVENT, STARTED), (EVENT, EXITED)]


def test_the_end_of_a_job_without_sessions_writes_once(ends, tmp_path):
    link, program = ends
    sessions = SessionTable(link, ChildProcesses(), lambda _: None, str(tmp_path))
    link.send_event(STARTED, may_wait=True)
    sessions.finish((1, 1), "")
    assert heard(program) == []
    link.send_event(EXITED)
    assert heard(program) == [(EVENT, STARTED), (EVENT, EXITED)]


def test_what_may_wait_waits_for_no_longer_than_a_moment(ends):
    link, program = ends
    since = time.monotonic()
    link.send_event(STARTED, may_wait=True)
    while not (said := heard(program)):
        assert link.wait([], -1) == []
    assert (said, time.monotonic() - since >= MOMENT) == ([(EVENT, STARTED)], True)


def test_whoever_is_woken_before_goes_on_holding_it_back(ends):
    link, program = ends
    reading, writing = os.pipe()
    link.send_event(STARTED, may_wait=True)
    os.write(writing, b"!")
    assert link.wait([reading], 60_000) == []
    assert heard(program) == []
    os.close(reading)
    os.close(writing)


def test_whoever_is_about_to_do_something_long_speaks_first(ends):
    link, program = ends
    link.send_event(STARTED, may_wait=True)
    link.flush_now()
    link.flush_now()
    assert heard(program) == [(EVENT, STARTED)]


def test_without_a_program_there_is_nothing_to_say(ends, tmp_path):
    from oarlock.node.attempt.spool import SpoolEntry

    link, program = ends
    link.serve(SpoolEntry(str(tmp_path), (7, 1), -1))
    link.send_event(STARTED, may_wait=True)
    program.close()
    link.flush_now()
    link.send_event(EXITED, may_wait=True)
    link.flush_now()
    assert (link.connected, [path.name for path in tmp_path.iterdir()]) == (False, ["7.1.control"])
    link.serve(None)
    assert [*tmp_path.iterdir()] == []
