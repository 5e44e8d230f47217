"""Which driver this machine offers for the groups of jobs, and our part of systemd's tree.

Where systemd is PID 1 the cgroup tree is its own, but for what it delegates: a scope. It outlives the login that made
it, and goes by itself when its last process ends.
"""

from __future__ import annotations

import os
import signal
import time

from oarlock.node.cgroup.base import ROOT, CgroupDriver, CgroupMounts, read, wait_until, write
from oarlock.node.sources.files import UNIFIED, parse_hierarchies

SLICE = "oarlock.slice"
SUPERVISORS = "supervisors"
_SECONDS = 8.0  # the server waits for us meanwhile
_TRIES, _PAUSE = 3, 0.2


def mounts(mountinfo: str) -> CgroupMounts:
    """Read `/proc/self/mountinfo`. Several mounts of one hierarchy are one; the first counts."""
    places: dict[str, str] = {}
    for hierarchy in parse_hierarchies(mountinfo, wanted=None):
        for controller in hierarchy.controllers:
            places.setdefault(controller, hierarchy.root)
    v2 = places.pop(UNIFIED, None)
    return CgroupMounts(places, v2)


def detect(node: str, mounts: CgroupMounts, *, pretended: bool = False) -> CgroupDriver:
    """Return the strongest driver that works here; without a writable hierarchy, the one for process trees.

    `pretended`: other nodes share this machine, which has fewer CPUs than all of them together.
    """
    from oarlock.node.cgroup.processes import ProcessTreeDriver
    from oarlock.node.cgroup.v1 import V1Driver
    from oarlock.node.cgroup.v2 import V2Driver

    try:
        if mounts.v2 and unified(mounts):
            scope = scope_path(node) if os.path.isdir(mounts.v2 + scope_path(node)) else ""
            return V2Driver(mounts.v2, node, scope=scope, pretended=pretended)
        if mounts.v1:
            return V1Driver(mounts, node, pretended=pretended)
    except OSError:
        pass
    return ProcessTreeDriver(node, pretended=pretended)


def unified(mounts: CgroupMounts) -> bool:
    """Return whether the controllers are those of the cgroup2 tree."""
    return bool(mounts.v2) and (not mounts.v1 or "memory" in read(f"{mounts.v2}/cgroup.controllers").split())


def detect_driver(node: str, *, pretended: bool = False) -> CgroupDriver:
    """Return the driver for this machine."""
    return detect(node, mounted(), pretended=pretended)


def mounted() -> CgroupMounts:
    """Read where the hierarchies of this machine are."""
    return mounts(read("/proc/self/mountinfo"))


def leave_login_session(node: str, mounts: CgroupMounts, *, systemd: bool) -> None:
    """Leave the cgroup of the ssh session: logind may kill a session's cgroup when the connection ends.

    Only where systemd runs. Where the tree is systemd's it makes us a scope; where it does not, and in the older
    hierarchies, we make a group by hand. A hierarchy that cannot be written is left as it is.
    """
    if systemd and mounts.v2 and unified(mounts) and _in_scope(mounts.v2, node):
        return
    bases = [base for base in (mounts.v2, mounts.v1.get("name=systemd")) if base] if systemd else []
    for base in bases:
        path = f"{base}/{ROOT}/{node}/supervisors"
        try:
            os.makedirs(path, exist_ok=True)
            write(path + "/cgroup.procs", "0")
        except OSError:
            continue


def _in_scope(base: str, node: str) -> bool:
    try:
        enter_scope(base, node)
    except OSError:
        return False
    return True


def scope_path(node: str) -> str:
    """Return the path of a node's scope below the root of the tree."""
    return f"/{SLICE}/oarlock-{node}.scope"


def enter_scope(base: str, node: str) -> None:
    """Move the calling process into the scope of a node, which is made if need be; `OSError` where that cannot be.

    The scope of an earlier program is there as long as a job of it runs. It may go in the moment in which we come, and
    its name is free again a moment later: so there is a second try and a third.
    """
    end = time.monotonic() + _SECONDS
    for _ in range(_TRIES):
        try:
            _join(base + scope_path(node))
        except FileNotFoundError:
            _make_and_join(base, node, end - time.monotonic())
        if _is_in(os.getpid(), node):
            return
        time.sleep(_PAUSE)
    raise OSError(f"systemd does not give us {scope_path(node)}")


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
        _hold_scope(reading, node)
    try:
        wait_until(lambda: _is_in(holder, node) or _ended(holder), seconds)
        if _is_in(holder, node):
            _join(base + scope_path(node))
    finally:
        os.close(reading)
        os.close(writing)
        _reap(holder)


def _hold_scope(reading: int, node: str) -> None:
    """Become `cat`, in the scope: it ends when our end of its pipe is closed."""
    try:
        os.dup2(reading, 0)
        os.execvp("systemd-run", scope_command(node))  # noqa: S607 - where it is differs between systems
    finally:
        os._exit(127)


def scope_command(node: str) -> list[str]:
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
    return any(line.startswith("0::" + scope_path(node)) for line in lines)


def _ended(pid: int) -> bool:
    """Return whether a child has ended; it stays a zombie until `_reap`."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _reap(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
