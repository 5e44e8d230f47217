"""What this process may read: a sentence for each source that it cannot measure with, and the permission it lacks."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_CAPABILITY_BITS = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_ENERGY = "/sys/class/powercap/intel-rapl:0/energy_uj"
_MANAGEMENT = "/dev/ipmi0"


class Permissions(NamedTuple):
    """What this process may do."""

    capabilities: frozenset[str]
    perf_paranoid: int | None
    unreadable: frozenset[str]  # files that are there and may not be read


def process_permissions() -> Permissions:
    """Return the permissions of this process."""
    unreadable = {path for path in (_ENERGY, _MANAGEMENT) if os.path.exists(path) and not os.access(path, os.R_OK)}  # noqa: PTH110
    return Permissions(
        parse_capabilities(Path("/proc/self/status").read_text()), _read_number(_PARANOID), frozenset(unreadable)
    )


def parse_capabilities(status: str) -> frozenset[str]:
    """Read the effective capabilities that matter here out of /proc/PID/status."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    mask = int(line.split()[1], 16)
    return frozenset(name for name, bit in _CAPABILITY_BITS.items() if mask >> bit & 1)


def missing_permissions(sources: Iterable[str], permissions: Permissions) -> Iterator[str]:
    """Yield a sentence for each source that cannot be read, with the permission it needs."""
    sources, has = set(sources), permissions.capabilities
    if "processes" in sources and "CAP_SYS_PTRACE" not in has:
        yield "I/O, open files and executables of other users' processes cannot be read: CAP_SYS_PTRACE is needed"
    may_count = has & {"CAP_PERFMON", "CAP_SYS_ADMIN"} or (
        permissions.perf_paranoid is not None and permissions.perf_paranoid <= 0
    )
    if "perf" in sources and not may_count:
        yield "events cannot be counted: CAP_PERFMON, or kernel.perf_event_paranoid at most 0, is needed"
    if "rapl" in sources and _ENERGY in permissions.unreadable and not may_count:
        yield "energy of the processors cannot be read: CAP_PERFMON, or CAP_DAC_READ_SEARCH, is needed"
    if "ipmi" in sources and _MANAGEMENT in permissions.unreadable:
        yield f"the management controller cannot be asked: {_MANAGEMENT} may not be opened"


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
