"""Without a writable cgroup: the job is the tree of processes below its supervisor.

The supervisor asks the kernel to be given the orphans of its tree, so that a process that left its session and lost
its parent is still found. CPUs are bound by affinity; memory and processes are not limited.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Collection

from oarlock.node.cgroup.base import ONLINE_CPUS, CgroupError, read, select_cpus, wait_until
from oarlock.node.cgroup.signals import send
from oarlock.node.sources.files import Values, cpu_list
from oarlock.node.sources.job.cpu import times
from oarlock.node.wire.messages import CgroupLimits

# Linux 3.4 and later; orphans come to the nearest such process instead of to PID 1.
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_SECONDS = 10.0
_FREEZE_SECONDS = 10.0


def adopt_orphans() -> None:
    """Become the parent of whatever is orphaned below the calling process."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(top: int) -> dict[int, str]:
    """Return the descendants of a process with their states, zombies left out."""
    children: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            state, parent = read(f"/proc/{name}/stat").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append((int(name), state))
    states: dict[int, str] = {}
    todo = [top]
    while todo:
        more = dict(children.get(todo.pop(), []))
        states.update(more)
        todo += more
    return states


def _end_leftovers(path: str) -> bool:
    """Kill what an earlier supervisor of the job left (it has the same OAR_CPUSET); return true if nothing was left."""
    left = _marked(path)
    send(signal.SIGKILL, lambda: _marked(path), left)
    return not left


def _marked(path: str) -> list[int]:
    mark, pids = f"OAR_CPUSET={path}".encode(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        pids.append(int(name))
            except OSError:
                continue
    return pids


class ProcessTree:
    """A job as the processes below its supervisor."""

    procs_files: tuple[str, ...] = ()
    return_files: tuple[str, ...] = ()

    def __init__(self, path: str, cpus: set[int]) -> None:
        self.path, self._cpus, self._top = path, cpus, os.getpid()
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)
        adopt_orphans()

    def join(self) -> None:
        os.sched_setaffinity(0, self._cpus)

    def pids(self) -> list[int]:
        return list(descendants(self._top))

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        send(number, self.pids, pids)

    def freeze(self) -> None:
        if not wait_until(self._stopped, _FREEZE_SECONDS):
            self.thaw()
            raise CgroupError(f"the processes of {self.path} did not stop within {_FREEZE_SECONDS:.0f} s")

    def _stopped(self) -> bool:
        """Stop what is not stopped; true when nothing could move any more, what was forked meanwhile included.

        A process that waits in the kernel (D) stops before it comes back; a parent in `vfork` waits there for a child
        that we stopped, so it must not be waited for.
        """
        states = {pid: state for pid, state in descendants(self._top).items() if state not in "Tt"}
        # Those that fork while they are stopped have children in the next list: the caller asks until none is left.
        send(signal.SIGSTOP, self.pids, list(states))
        return all(state == "D" for state in states.values())

    def thaw(self) -> None:
        send(signal.SIGCONT, self.pids)

    def kill(self) -> None:
        send(signal.SIGKILL, self.pids)

    def wait_empty(self, seconds: float) -> bool:
        def emptied() -> bool:
            # Nothing holds still here: what was forked meanwhile is killed in the next round.
            self.kill()
            return not self.pids()

        return wait_until(emptied, seconds)

    def counters(self) -> Values:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = now.ru_utime - self._before.ru_utime, now.ru_stime - self._before.ru_stime
        return times(user + system, user, system)

    def remove(self) -> None:
        """Nothing was made."""


class ProcessTreeDriver:
    """Confine jobs without cgroups."""

    kind = "processes"
    missing: tuple[str, ...] = ("memory", "pids", "devices")

    def __init__(self, node: str, *, pretended: bool = False) -> None:
        self._root, self._pretended = f"/{node}", pretended

    def create(self, name: str, limits: CgroupLimits) -> ProcessTree:
        there = sorted(os.sched_getaffinity(0)) or cpu_list(read(ONLINE_CPUS).encode())
        cpus = set(select_cpus(limits.cpus, there, pretended=self._pretended))
        path = f"{self._root}/{name}"
        wait_until(lambda: _end_leftovers(path), _LEFTOVER_SECONDS)
        return ProcessTree(path, cpus)

    def leave(self) -> None:
        """Nothing was made."""
