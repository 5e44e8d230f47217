"""Groups of the cgroup2 tree. On a hybrid machine, where all controllers are v1, the tree still kills and freezes."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection
from types import ModuleType

from oarlock.node.cgroup.base import (
    ONLINE_CPUS,
    ROOT,
    CgroupError,
    allowed_processes,
    current_procs_files,
    format_cpu_list,
    frozen,
    join_cgroup,
    processes,
    read,
    remove,
    retry_if_vanished,
    select_cpus,
    write,
)
from oarlock.node.cgroup.signals import send
from oarlock.node.sources.files import UNIFIED, Values, cpu_list, word_values
from oarlock.node.sources.job.final import read_counters
from oarlock.node.wire.messages import CgroupLimits

WANTED = ("cpuset", "cpu", "memory", "pids", "io")
_FREEZE_SECONDS = 10.0


def controllers(path: str) -> set[str]:
    """Return the controllers that a group may enable for its children."""
    return set(read(path + "/cgroup.controllers").split())


class V2Tree:
    """One group of the tree and what needs no controller: join, list, freeze, kill, watch."""

    def __init__(self, base: str, path: str) -> None:
        self.path, self.at = path, base + path
        self.procs_files: tuple[str, ...] = (self.at + "/cgroup.procs",)

    def make(self) -> None:
        """Make the directory; empty and replace one that is left over."""
        try:
            os.mkdir(self.at)
        except FileExistsError:
            self.kill()
            if not self.wait_empty(_FREEZE_SECONDS):
                raise CgroupError(f"{self.at} still holds processes of an earlier attempt") from None
            remove(self.at)
            os.mkdir(self.at)

    def join(self) -> None:
        join_cgroup(self.procs_files)

    def pids(self) -> list[int]:
        return processes(self.at)

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        send(number, self.pids, pids, lambda: frozen(self))

    def freeze(self) -> None:
        # The freezer of version 2 came with Linux 5.2, and answers in cgroup.events once every process stands still.
        write(self.at + "/cgroup.freeze", "1")
        if not self._wait(b"frozen", 1, _FREEZE_SECONDS):
            self.thaw()
            raise CgroupError(f"{self.at} did not freeze within {_FREEZE_SECONDS:.0f} s")

    def thaw(self) -> None:
        write(self.at + "/cgroup.freeze", "0")

    def kill(self) -> None:
        try:
            write(self.at + "/cgroup.kill", "1")
        except FileNotFoundError:  # Linux before 5.14, or the group is gone
            self._kill_listed()

    def _kill_listed(self) -> None:
        """Kill what is listed until nothing is; frozen, so that nothing forks meanwhile."""
        while self.pids():
            write(self.at + "/cgroup.freeze", "1")
            send(signal.SIGKILL, self.pids)
            write(self.at + "/cgroup.freeze", "0")
            time.sleep(0.001)

    def wait_empty(self, seconds: float) -> bool:
        return self._wait(b"populated", 0, seconds)

    def _wait(self, name: bytes, value: int, seconds: float) -> bool:
        """Wait for a value in `cgroup.events`; the kernel announces changes by POLLPRI."""
        try:
            fd = os.open(self.at + "/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            watch = select.poll()
            watch.register(fd, select.POLLPRI)  # re-armed by each read of the file
            end = time.monotonic() + seconds
            while word_values(os.pread(fd, 512, 0)).get(name) != value:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                watch.poll(min(left, 1.0) * 1000)
        finally:
            os.close(fd)
        return True

    def remove(self) -> None:
        remove(self.at)


class V2Cgroup(V2Tree):
    """A job on a machine whose controllers are all v2."""

    return_files: tuple[str, ...] = ()

    def limit(self, limits: CgroupLimits, cpus: list[int]) -> None:
        """Write the limits that this tree has files for."""
        wanted = {"cpuset.cpus": format_cpu_list(cpus)}
        if limits.memory is not None:
            # No swap: over its limit a job would go on there, and slow the node down for everybody.
            wanted.update({"memory.max": str(limits.memory), "memory.swap.max": "0"})
        if limits.pids is not None:
            wanted["pids.max"] = str(limits.pids)
        for name, value in wanted.items():
            try:
                write(f"{self.at}/{name}", value)
            except FileNotFoundError:
                continue

    def counters(self) -> Values:
        return read_counters({UNIFIED: self.at})


class V2Driver:
    """Groups of a machine with the unified hierarchy."""

    kind = "v2"

    def __init__(self, base: str, node: str, *, scope: str = "", pretended: bool = False) -> None:
        """`scope` is a group that systemd leaves to us; without one the whole tree is ours to change."""
        self._base, self._root, self._pretended = base, scope or f"/{ROOT}/{node}", pretended
        self._ours = (scope,) if scope else ("", f"/{ROOT}", self._root)
        retry_if_vanished(self._prepare)
        have = controllers(base + self._root)
        if _device_filter().works():
            have.add("devices")
        self.missing = tuple(name for name in ("cpuset", "memory", "pids", "devices") if name not in have)
        self._available_cpus = cpu_list(read_cpus(base + self._root).encode())
        self._return_files = current_procs_files({"": base}, read("/proc/self/cgroup"))

    def _prepare(self) -> None:
        """Make the root and hand every controller down to it, so that jobs can be limited."""
        os.makedirs(self._base + self._root, exist_ok=True)
        for path in self._ours:
            for name in WANTED:
                try:
                    # One write a controller: the kernel takes all that a write names or nothing of it.
                    write(f"{self._base}{path}/cgroup.subtree_control", f"+{name}")
                except OSError:
                    continue
        try:
            # All jobs together leave the system some processes, whatever limits they have.
            write(f"{self._base}{self._root}/pids.max", str(allowed_processes()))
        except OSError:  # no such controller, or a machine whose only group this is
            pass

    def create(self, name: str, limits: CgroupLimits) -> V2Cgroup:
        cpus = select_cpus(limits.cpus, self._available_cpus, pretended=self._pretended)
        group = V2Cgroup(self._base, f"{self._root}/{name}")
        group.return_files = self._return_files
        retry_if_vanished(lambda: self._make(group))
        group.limit(limits, cpus)
        if "devices" not in self.missing:
            _deny(group, limits.deny_devices)
        return group

    def _make(self, group: V2Cgroup) -> None:
        try:
            group.make()
        except FileNotFoundError:
            self._prepare()
            raise

    def leave(self) -> None:
        """A scope is removed by systemd, with whatever empty groups are in it."""
        if len(self._ours) > 1:
            leave([self._base], self._root)


def _device_filter() -> ModuleType:
    """Load what limits devices: nodes with v1 hierarchies, which use the rest of this module, need none of it."""
    from oarlock.node.cgroup import devices

    return devices


def _deny(group: V2Cgroup, paths: tuple[str, ...]) -> None:
    filters = _device_filter()
    denied = [device for path in paths if (device := filters.device(path)) is not None]
    try:
        if denied:
            filters.deny(group.at, denied)
    except OSError as error:
        raise CgroupError(f"{', '.join(paths)} could not be denied to {group.at}: {error}") from error


def leave(bases: list[str], root: str) -> None:
    """Remove the roots of a node, and the root of all, where nothing is left in them."""
    for base in bases:
        for path in (root, f"/{ROOT}"):
            try:
                os.rmdir(base + path)
            except OSError:
                break


def read_cpus(root: str) -> str:
    """Read which CPUs jobs may have: those of the root of their groups, else those of the machine."""
    try:
        return read(root + "/cpuset.cpus.effective")
    except OSError:
        return read(ONLINE_CPUS)
