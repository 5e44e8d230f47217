"""Our part of systemd's tree: a delegated scope.

Where systemd is PID 1 the cgroup tree is its own, but for what it delegates. A scope outlives the login that made it,
and goes by itself when its last process ends.
"""

from __future__ import annotations

import os
import signal
import time

from oarlock.node.cgroup.drivers import read, wait_until, write

SLICE = "oarlock.slice"
SUPERVISORS = "supervisors"
_SECONDS = 8.0  # the server waits for us meanwhile
_TRIES, _PAUSE = 3, 0.2


def path(node: str) -> str:
    """Return the path of a node's scope below the root of the tree."""
    return f"/{SLICE}/oarlock-{node}.scope"


def enter(base: str, node: str) -> None:
    """Move the calling process into the scope of a node, which is made if need be; `OSError` where that cannot be.

    The scope of an earlier program is there as long as a job of it runs. It may go in the moment in which we come, and
    its name is free again a moment later: so there is a second try and a third.
    """
    end = time.monotonic() + _SECONDS
    for _ in range(_TRIES):
        try:
            _join(base + path(node))
        except FileNotFoundError:
            _make_and_join(base, node, end - time.monotonic())
        if _is_in(os.getpid(), node):
            return
        time.sleep(_PAUSE)
    raise OSError(f"systemd does not give us {path(node)}")


def _join(scope: str) -> None:
    """Enter the supervisors' group: a cgroup2 group that enables controllers for its children may hold no process."""
    try:
        os.mkdir(f"{scope}/{SUPERVISORS}")
    except FileExistsError:
        pass
    write(f"{scope}/{SUPERVISORS}/cgroup.procs", "0")


def _make_and_join(base: str, node: str, seconds: float) -> None:
    """Have systemd run a process that keeps the scope alive until we are in it."""
    reading, writing = os.pipe()
    holder = os.fork()
    if holder == 0:
        _hold(reading, node)
    try:
        wait_until(lambda: _is_in(holder, node) or _ended(holder), seconds)
        if _is_in(holder, node):
            _join(base + path(node))
    finally:
        os.close(reading)
        os.close(writing)
        _reap(holder)


def _hold(reading: int, node: str) -> None:
    """Become `cat`, in the scope: it ends when our end of its pipe is closed."""
    try:
        os.dup2(reading, 0)
        os.execvp("systemd-run", command(node))  # noqa: S607 - where it is differs between systems
    finally:
        os._exit(127)


def command(node: str) -> list[str]:
    """Return the command that makes the scope.

    Without TasksMax, systemd's default (15 % of the machine's processes) would limit all jobs together.
    """
    properties = ("Delegate=yes", "TasksMax=infinity", f"Description=Jobs of {node}")
    words = ["systemd-run", "--quiet", "--collect", "--scope", f"--slice={SLICE}", f"--unit=oarlock-{node}.scope"]
    return [*words, *(f"--property={setting}" for setting in properties), "cat"]


def _is_in(pid: int, node: str) -> bool:
    try:
        lines = read(f"/proc/{pid}/cgroup").splitlines()
    except OSError:
        return False
    return any(line.startswith("0::" + path(node)) for line in lines)


def _ended(pid: int) -> bool:
    """Return whether a child has ended; it stays a zombie until `_reap`."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _reap(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
