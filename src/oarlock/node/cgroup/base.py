"""What every kind of group for jobs can do, and the files of the kernel that all kinds share.

Groups are named `oarlock/<node>/<user>_<job>`: nodes that share a kernel (a laptop's demo) have a root each. Where
systemd owns the tree the root is a scope that it leaves to us (`drivers.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Callable, NamedTuple, Protocol

from oarlock.node.sources.files import Values
from oarlock.node.wire.messages import CgroupLimits

ROOT = "oarlock"
ONLINE_CPUS = "/sys/devices/system/cpu/online"


class CgroupError(Exception):
    """A group that could not be made, frozen or emptied; the text is a sentence for the event."""


class JobCgroup(Protocol):
    """The processes of one job, or of one script of the site, and their limits."""

    path: str  # below the root of every hierarchy, for OAR_CPUSET
    procs_files: tuple[str, ...]  # the `cgroup.procs` files that a process joins by
    return_files: tuple[str, ...]  # those by which it returns to the supervisors' groups; empty: it cannot

    def join(self) -> None:
        """Put the calling process in; everything it starts is in as well."""

    def pids(self) -> list[int]:
        """List the processes inside."""

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        """Send a signal to everything inside, or to those of it in `pids`; never to anybody else."""

    def freeze(self) -> None:
        """Freeze everything inside; raise `CgroupError` if that takes too long."""

    def thaw(self) -> None:
        """Resume what was frozen."""

    def kill(self) -> None:
        """Send KILL to everything inside, frozen or not; those that fork meanwhile do not escape."""

    def wait_empty(self, seconds: float) -> bool:
        """Wait until nothing is inside."""

    def counters(self) -> Values:
        """Return what was used so far, under the names of the samples; what cannot be read is absent."""

    def remove(self) -> None:
        """Remove the empty group."""


class Freezable(Protocol):
    """What can be frozen as a whole."""

    def freeze(self) -> None:
        """Stop everything inside."""

    def thaw(self) -> None:
        """Resume what was frozen."""


class CgroupDriver(Protocol):
    """Makes groups of one kind."""

    kind: str
    missing: tuple[str, ...]  # what it cannot limit here

    def create(self, name: str, limits: CgroupLimits) -> JobCgroup:
        """Make a group. One left over by an earlier attempt is emptied and made anew."""

    def leave(self) -> None:
        """Remove the root of this node if no group is left in it."""


class CgroupMounts(NamedTuple):
    """Where the hierarchies are: one path a v1 controller, and that of the cgroup2 tree."""

    v1: dict[str, str]
    v2: str | None


def read(path: str) -> str:
    """Read a small file of the kernel."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts).decode()


def write(path: str, text: str) -> None:
    """Write a value into a file of the kernel, in one piece."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def select_cpus(cpus: tuple[int, ...], available: list[int], *, pretended: bool) -> list[int]:
    """Return the CPUs of a job among those there are; all of them if it named none.

    On a pretended node numbers are taken modulo the CPUs of the machine. On a real one that would hide a wrong
    `cpuset` and let two jobs share a CPU, so a number that is not there raises `CgroupError`.
    """
    if pretended:
        return sorted({available[cpu % len(available)] for cpu in cpus} or available)
    if missing := sorted(set(cpus).difference(available)):
        raise CgroupError(
            f"the job's resources name CPU {format_cpu_list(missing)}, "
            f"but this node has CPU {format_cpu_list(available)} for jobs: "
            "correct their property `cpuset`"
        )
    return sorted(set(cpus) or available)


def format_cpu_list(cpus: list[int]) -> str:
    """Write sorted CPU numbers as the kernel does: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def join_cgroup(procs_files: tuple[str, ...]) -> None:
    """Put the calling process into a group by its `cgroup.procs` files."""
    for path in procs_files:
        write(path, "0" if path.endswith("cgroup.procs") else str(os.getpid()))


def processes(path: str) -> list[int]:
    """List the processes of a group; none if it is gone."""
    try:
        return [int(pid) for pid in read(path + "/cgroup.procs").split()]
    except (FileNotFoundError, OSError):
        return []


@contextmanager
def frozen(group: Freezable) -> Iterator[None]:
    """Freeze a group for the time of the context; one that cannot be frozen is left as it is."""
    try:
        group.freeze()
    except (CgroupError, OSError):
        yield
        return
    try:
        yield
    finally:
        group.thaw()


def allowed_processes() -> int:
    """Return how many processes and threads all jobs of this machine may have together: the rest is for the system."""
    total = min(int(read(f"/proc/sys/kernel/{name}")) for name in ("pid_max", "threads-max"))
    return total * 3 // 4


def remove(path: str) -> None:
    """Remove an empty group with the groups below it. The kernel may need a moment after the last process."""
    for _ in range(50):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            _remove_below(path)
            time.sleep(0.01)
        else:
            return
    raise CgroupError(f"{path} is empty but cannot be removed")


def _remove_below(path: str) -> None:
    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            _remove_below(entry.path)
            try:
                os.rmdir(entry.path)
            except OSError:
                pass


def current_procs_files(bases: dict[str, str], memberships: str) -> tuple[str, ...]:
    """Return the `cgroup.procs` of the groups that a process is in, from its `/proc/PID/cgroup`; `bases` by controller.

    The line of the cgroup2 tree names no controller.
    """
    files: list[str] = []
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        base = next((bases[name] for name in controllers.split(",") if name in bases), None)
        if base is not None:
            files.append(f"{base}{path.rstrip('/')}/cgroup.procs")
    return tuple(files)


def retry_if_vanished(step: Callable[[], None]) -> None:
    """Retry a step when a directory vanished under it: a program that ends removes the roots it finds empty."""
    for _ in range(10):
        try:
            step()
        except FileNotFoundError:
            time.sleep(0.001)
        else:
            return
    step()


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Poll `done()` with growing pauses; return false if it is not true within `seconds`."""
    end, pause = time.monotonic() + seconds, 0.0005
    while not done():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return True
