"""The kernel's `perf_event_open`, by ctypes: counters of the processor and of the kernel."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

from oarlock.node.sources.files import kept

HARDWARE, SOFTWARE, CACHE = 0, 1, 3
FOR_CGROUP = 4
"""Flag: the process id is the descriptor of a cgroup's directory."""
TIMES, GROUP = 1 | 2, 8
"""Read formats: with the time enabled and running, and all events of a group at once."""

_CLOSE_ON_EXEC = 8
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "ppc64": 319, "s390x": 331, "i686": 336}
_WORD_BYTES = 8
_libc = ctypes.CDLL(None, use_errno=True)


class EventCounts(NamedTuple):
    """One reading of a group. Times are nanoseconds; `running` is less than `enabled` when counters were shared."""

    enabled: int
    running: int
    values: tuple[int, ...]


def open_event(
    kind: int, config: int, *, pid: int, cpu: int, leader: int = -1, flags: int = 0, read_format: int = TIMES | GROUP
) -> int:
    """Open a counter, counting from now on, in the group of `leader` or as a leader; give its descriptor."""
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf events are not known on {platform.machine()}")
    attributes = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, config, 0, 0, read_format, 0, 0, 0, 0)
    arguments = (number, ctypes.c_char_p(attributes), pid, cpu, leader, ctypes.c_ulong(flags | _CLOSE_ON_EXEC))
    fd: int = _libc.syscall(*arguments)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return kept(fd)


def read_group(leader: int, events: int) -> EventCounts:
    """Read all events of a group with one call."""
    words = 3 + events
    _, enabled, running, *values = struct.unpack(f"={words}Q", os.read(leader, words * _WORD_BYTES))
    return EventCounts(enabled, running, tuple(values))


def scaled(value: int, enabled: int, running: int) -> float | None:
    """Scale what was counted in part of the time to all of it; None when nothing was counted although it could be."""
    if running:
        return value * enabled / running
    return None if enabled else 0.0
