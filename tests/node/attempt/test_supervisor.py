"""The supervisor where no node is needed to see what it does; the rest is in tests/server/nodes/test_local_node.py."""

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from oarlock.node.attempt.link import ProgramLink
from oarlock.node.attempt.run import AttemptRun, memory_kill, now
from oarlock.node.attempt.spool import create_entry
from oarlock.node.attempt.supervisor import Supervisor
from oarlock.node.attempt.user.command import StartedCommand, status_sockets
from oarlock.node.cgroup.processes import ProcessTreeDriver, descendants
from oarlock.node.wire.messages import EXITED, Launch, NodeSettings, Report


class Told:
    """A spawner's news of a child that runs, and nothing after it."""

    main = 0

    def __init__(self, fd):
        self.fd = fd

    def reset(self):
        self.main = 0

    def fds(self):
        return [self.fd]

    def reap(self):
        if not self.main:
            self.main = len(os.read(self.fd, 4))


def test_a_kill_for_memory_names_the_limit_or_the_node():
    assert memory_kill(1, 3 << 29) == (
        "the kernel killed a process of the job for want of memory; the job reached its limit of 1536 MiB"
    )
    assert memory_kill(3, None) == (
        "the kernel killed 3 processes of the job for want of memory; the node had none left"
    )


@pytest.fixture
def supervisor(tmp_path):
    ours, theirs = socket.socketpair()
    wake, waking = os.pipe()
    os.set_blocking(wake, False)
    settings = NodeSettings("n1", str(tmp_path / "spool"), str(tmp_path / "run"))
    link = ProgramLink(ours)
    yield Supervisor(settings, ProcessTreeDriver("n1"), "boot", link, wake)
    theirs.close()
    with pytest.raises(SystemExit):  # without work, and nobody there to give it any
        link.wait([], 1000)
    os.close(wake)
    os.close(waking)


def begin(supervisor):
    supervisor._run = AttemptRun(supervisor._tools, Launch(1, 1, "00", "", "ada", "true"), (1, 1))
    return supervisor._run


def test_a_child_that_closes_its_socket_is_seen_at_once(supervisor):
    news, telling = os.pipe()
    supervisor._children = Told(news)
    supervisor._tools = supervisor._tools._replace(children=supervisor._children)
    run = begin(supervisor)
    run._stderr = 99
    ours, theirs = status_sockets()
    os.write(telling, b"pid!")
    threading.Timer(0.2, theirs.close).start()
    began = time.monotonic()
    run._wait_for_exec(StartedCommand(None, ours), now() + 60)
    assert 0.1 < time.monotonic() - began < 10  # it would look again by itself after fifteen seconds
    for fd in (news, telling):
        os.close(fd)
    ours.close()


def test_many_signals_to_a_job_whose_stderr_hangs_cost_one_process(supervisor):
    reading, hanging = os.pipe()
    os.set_blocking(hanging, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(hanging, b"x" * 4096)
    os.set_blocking(hanging, True)
    run = begin(supervisor)
    run._stderr = hanging
    before = descendants(os.getpid()).keys()
    for _ in range(18):
        run.note("was sent signal 10")
    [writer] = descendants(os.getpid()).keys() - before
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    os.close(reading)
    os.close(hanging)


@pytest.mark.parametrize("removed", [True, False], ids=["spool removed", "disk full"])
def test_a_report_that_cannot_be_written_is_logged_and_given_up(tmp_path, monkeypatch, removed):
    lines, waits = [], []
    monkeypatch.setattr("syslog.syslog", lambda _level, line: lines.append(line))
    (tmp_path / "spool").mkdir()
    entry = create_entry(str(tmp_path / "spool"), (7, 2), b"{}", "00" * 32)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    if removed:
        Path(entry.path).unlink()
    lost = SimpleNamespace(connected=False, send_event=lambda _: None)
    report = Report(7, 2, "n1", "boot", EXITED, status=256)
    alone = SimpleNamespace(_link=lost, _run=SimpleNamespace(report=report), _wait=lambda until, _: waits.append(until))
    for method in ("_save", "_is_hopeless", "_log_unsaved"):
        setattr(alone, method, getattr(Supervisor, method).__get__(alone))
    alone._save(entry, b"{}", now() + 0.05)
    entry.close()
    reason = f"could not be written to {entry.path}: No space left on device; outcome exited, status 256"
    assert lines == [f"the report of job 7 (attempt 2) {reason}"]
    assert bool(waits) is not removed
