"""The cgroup hierarchies of this machine: where each controller is mounted."""

from __future__ import annotations

from typing import NamedTuple

UNIFIED = "unified"
"""The name under which a job's version 2 directory stands among those of the version 1 controllers."""

MEASURED = frozenset({"cpuacct", "cpu", "cpuset", "memory", "blkio", "pids", "devices", "perf_event", UNIFIED})
"""Controllers whose files some source reads."""


class Hierarchy(NamedTuple):
    """One mounted tree of cgroups: version 2 has a single one, version 1 one for each set of controllers."""

    root: str
    controllers: tuple[str, ...]


def mounted(mountinfo: str) -> list[Hierarchy]:
    """Read `/proc/self/mountinfo`. A hierarchy that is mounted twice (OAR does that) is given once."""
    hierarchies: dict[str, Hierarchy] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        device, root = before.split()[2], before.split()[4]
        names = _controllers(kind, options.split()[-1] if options else "")
        if names:
            hierarchies.setdefault(device, Hierarchy(_unescaped(root), names))
    return list(hierarchies.values())


def of_this_machine(proc: str = "/proc") -> list[Hierarchy]:
    """Return the hierarchies that are mounted now, as this process sees them."""
    with open(f"{proc}/self/mountinfo") as file:
        return mounted(file.read())


def _controllers(kind: str, options: str) -> tuple[str, ...]:
    if kind == "cgroup2":
        return (UNIFIED,)
    if kind != "cgroup":
        return ()
    return tuple(option for option in options.split(",") if option in MEASURED)


def _unescaped(path: str) -> str:
    """Undo the octal escapes of a space, a tab, a newline and a backslash in a mount point."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
