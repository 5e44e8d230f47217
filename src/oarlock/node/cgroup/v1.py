"""Groups of the v1 hierarchies: limits and counters. The cgroup2 tree kills and freezes where it is mounted."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Collection

from oarlock.node.cgroup.base import (
    ONLINE_CPUS,
    ROOT,
    CgroupError,
    CgroupMounts,
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
    wait_until,
    write,
)
from oarlock.node.cgroup.signals import send
from oarlock.node.cgroup.v2 import V2Tree, leave
from oarlock.node.sources.files import UNIFIED, Values, cpu_list
from oarlock.node.sources.job.final import read_counters
from oarlock.node.wire.messages import CgroupLimits

# In every job: limits, then what is only counted. The freezer serves where there is no cgroup2 tree.
_USED = ("cpuset", "memory", "pids", "cpuacct", "blkio", "perf_event")
_SECONDS = 10.0


class Freezer:
    """Kill and freeze by the v1 freezer, which has no notification: its state is polled."""

    def __init__(self, base: str, path: str) -> None:
        self.path, self.at = path, base + path
        self.procs_files: tuple[str, ...] = (self.at + "/cgroup.procs",)
        self._killed: frozenset[int] = frozenset()

    def make(self) -> None:
        os.mkdir(self.at)

    def join(self) -> None:
        join_cgroup(self.procs_files)

    def pids(self) -> list[int]:
        return processes(self.at)

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        send(number, self.pids, pids, lambda: frozen(self))

    def freeze(self) -> None:
        write(self.at + "/freezer.state", "FROZEN")
        if not wait_until(lambda: read(self.at + "/freezer.state").strip() == "FROZEN", _SECONDS):
            self.thaw()
            raise CgroupError(f"{self.at} did not freeze within {_SECONDS:.0f} s")

    def thaw(self) -> None:
        write(self.at + "/freezer.state", "THAWED")

    def kill(self) -> None:
        if self.pids():
            write(self.at + "/freezer.state", "FROZEN")
            self._killed = frozenset(self.pids())
            send(signal.SIGKILL, self.pids)
            # A process frozen by version 1 takes its KILL only once it is thawed.
            self.thaw()

    def wait_empty(self, seconds: float) -> bool:
        def emptied() -> bool:
            # A process that was forked while the freezer closed is caught in the next round. Those that have their
            # KILL are left alone: on a busy machine the next round would freeze them again before they ran to die.
            if not self._killed.issuperset(left := self.pids()):
                self.kill()
            return not left

        return not self.pids() or wait_until(emptied, seconds)

    def remove(self) -> None:
        remove(self.at)


class V1Cgroup:
    """A job in several hierarchies at once."""

    def __init__(self, path: str, hold: V2Tree | Freezer, at: dict[str, str], return_files: tuple[str, ...]) -> None:
        self.path, self._hold, self._at, self.return_files = path, hold, at, return_files
        self.procs_files = (*hold.procs_files, *(f"{place}/cgroup.procs" for place in dict.fromkeys(at.values())))

    def join(self) -> None:
        join_cgroup(self.procs_files)

    def pids(self) -> list[int]:
        return self._hold.pids()

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        self._hold.signal(number, pids)

    def freeze(self) -> None:
        self._hold.freeze()

    def thaw(self) -> None:
        self._hold.thaw()

    def kill(self) -> None:
        self._hold.kill()

    def wait_empty(self, seconds: float) -> bool:
        return self._hold.wait_empty(seconds)

    def counters(self) -> Values:
        unified = {UNIFIED: self._hold.at} if isinstance(self._hold, V2Tree) else {}
        return read_counters({**unified, **self._at})

    def remove(self) -> None:
        # First: while a process is left in it, this fails and the other groups stay as well.
        self._hold.remove()
        for at in self._at.values():
            remove(at)


class V1Driver:
    """Groups of a machine whose controllers are v1."""

    def __init__(self, mounts: CgroupMounts, node: str, *, pretended: bool = False) -> None:
        self._pretended, self._root = pretended, f"/{ROOT}/{node}"
        self._v1 = {name: mounts.v1[name] for name in _USED if name in mounts.v1}
        self._devices = mounts.v1.get("devices")
        self._tree, self._freezer = mounts.v2, mounts.v1.get("freezer")
        self.kind = "v1+v2" if self._tree else "v1"
        needed = ("cpuset", "memory", "pids", "devices")
        self.missing = tuple(name for name in needed if name not in mounts.v1)
        self._bases = list(dict.fromkeys([*self._v1.values(), self._held_by()]))
        retry_if_vanished(self._prepare)
        self._memberships, self._return_files_cache = read("/proc/self/cgroup"), dict[int, tuple[str, ...]]()
        self._available_cpus = cpu_list(
            read(self._v1["cpuset"] + "/cpuset.cpus" if "cpuset" in self._v1 else ONLINE_CPUS).encode()
        )

    def _held_by(self) -> str:
        base = self._tree or self._freezer
        if base is None:
            raise OSError("neither a cgroup2 tree nor a freezer: nothing could be killed as a whole")
        return base

    def _prepare(self) -> None:
        """Make the roots. A cpuset group holds no process before its CPUs and memories are named."""
        for base in self._bases + ([self._devices] if self._devices else []):
            os.makedirs(base + self._root, exist_ok=True)
        if "cpuset" in self._v1:
            for path in (f"/{ROOT}", self._root):
                _inherit_cpuset(self._v1["cpuset"] + path)
            write(f"{self._v1['cpuset']}{self._root}/cgroup.clone_children", "1")  # memories of jobs: those of the root
        if "pids" in self._v1:
            write(f"{self._v1['pids']}{self._root}/pids.max", str(allowed_processes()))

    def create(self, name: str, limits: CgroupLimits) -> V1Cgroup:
        path, cpus = f"{self._root}/{name}", select_cpus(limits.cpus, self._available_cpus, pretended=self._pretended)
        bases = self._v1 if not (limits.deny_devices and self._devices) else {**self._v1, "devices": self._devices}
        hold = V2Tree(self._tree, path) if self._tree else Freezer(self._held_by(), path)
        at = {control: base + path for control, base in bases.items()}
        group = V1Cgroup(path, hold, at, self._return_files(bases))
        retry_if_vanished(lambda: self._make(hold, group))
        self._limit(group, limits, cpus)
        return group

    def _return_files(self, bases: dict[str, str]) -> tuple[str, ...]:
        held = {"": self._tree} if self._tree else {"freezer": self._held_by()}
        key = len(bases)  # with the devices or without them
        if key not in self._return_files_cache:
            self._return_files_cache[key] = current_procs_files({**bases, **held}, self._memberships)
        return self._return_files_cache[key]

    def _make(self, hold: V2Tree | Freezer, group: V1Cgroup) -> None:
        try:
            self._make_all(hold, group)
        except FileNotFoundError:
            self._prepare()
            raise
        except FileExistsError:
            hold.kill()
            if not hold.wait_empty(_SECONDS):
                raise CgroupError(f"{hold.at} still holds processes of an earlier attempt") from None
            group.remove()
            self._make_all(hold, group)

    @staticmethod
    def _make_all(hold: V2Tree | Freezer, group: V1Cgroup) -> None:
        # First the tree that kills: what is in a job's other groups is then never outside of it.
        hold.make()
        for at in dict.fromkeys(group._at.values()):
            os.mkdir(at)

    def _limit(self, group: V1Cgroup, limits: CgroupLimits, cpus: list[int]) -> None:
        at = group._at
        if "cpuset" in at:
            write(at["cpuset"] + "/cpuset.cpus", format_cpu_list(cpus))
        if "memory" in at and limits.memory is not None:
            _limit_memory(at["memory"], limits.memory)
        if "pids" in at and limits.pids is not None:
            write(at["pids"] + "/pids.max", str(limits.pids))
        for path in limits.deny_devices if "devices" in at else ():
            _deny(at["devices"], path)

    def leave(self) -> None:
        leave(self._bases + ([self._devices] if self._devices else []), self._root)


def _limit_memory(at: str, limit: int) -> None:
    """Limit memory, and memory with swap to the same, so that swap is no way out."""
    write(at + "/memory.limit_in_bytes", str(limit))  # first: the kernel refuses a memsw limit below it
    try:
        write(at + "/memory.memsw.limit_in_bytes", str(limit))
    except FileNotFoundError:  # the kernel was built or started without swap accounting
        return


def _deny(at: str, path: str) -> None:
    """Deny a device by its file; where there is no such device there is nothing to deny."""
    try:
        info = os.stat(path)
    except OSError:
        return
    kinds = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}
    kind = kinds.get(stat.S_IFMT(info.st_mode))
    if kind is not None:
        write(at + "/devices.deny", f"{kind} {os.major(info.st_rdev)}:{os.minor(info.st_rdev)} rwm")


def _inherit_cpuset(path: str) -> None:
    above = os.path.dirname(path)
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not read(f"{path}/{name}").strip():
            write(f"{path}/{name}", read(f"{above}/{name}"))
