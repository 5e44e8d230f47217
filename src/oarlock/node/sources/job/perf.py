"""Events of the processor and the kernel, counted by `perf_event_open` for each job: a group of counters a CPU."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oarlock.node.sources.files import UNIFIED, Values, close_all, cpu_list, kept, read_once
from oarlock.node.sources.probe import Probe, ProbedJob

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
    # A shorter structure than the kernel's own is taken: its size, the second field, says which version it is.
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


log = logging.getLogger(__name__)

_MISSES = 1 << 16
_NANO = 1e9

EVENTS: Mapping[str, tuple[int, int]] = {
    "cpu_cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache_references": (HARDWARE, 2),
    "cache_misses": (HARDWARE, 3),
    "branch_instructions": (HARDWARE, 4),
    "branch_misses": (HARDWARE, 5),
    "bus_cycles": (HARDWARE, 6),
    "ref_cpu_cycles": (HARDWARE, 9),
    "cache_l1d": (CACHE, 0),
    "cache_ll": (CACHE, 2),
    "cache_dtlb": (CACHE, 3),
    "cache_itlb": (CACHE, 4),
    "cache_bpu": (CACHE, 5),
    "cache_node": (CACHE, 6),
    # Colmet's next three are parts of a cache event's code, not events: they count what cache_l1d and cache_ll do.
    "cache_op_read": (CACHE, 0),
    "cache_op_prefetch": (CACHE, 2),
    "cache_result_access": (CACHE, 0),
    "cpu_clock": (SOFTWARE, 0),
    "task_clock": (SOFTWARE, 1),
    "page_faults": (SOFTWARE, 2),
    "context_switches": (SOFTWARE, 3),
    "cpu_migrations": (SOFTWARE, 4),
    "page_faults_min": (SOFTWARE, 5),
    "page_faults_maj": (SOFTWARE, 6),
    "alignment_faults": (SOFTWARE, 7),
    "emulation_faults": (SOFTWARE, 8),
    "dummy": (SOFTWARE, 9),
    "bpf_output": (SOFTWARE, 10),
    # Ours beyond Colmet's list.
    "stalled_cycles_frontend": (HARDWARE, 7),
    "stalled_cycles_backend": (HARDWARE, 8),
    "cache_l1d_misses": (CACHE, 0 | _MISSES),
    "cache_ll_misses": (CACHE, 2 | _MISSES),
    "cgroup_switches": (SOFTWARE, 11),
}
"""Event names and what the kernel calls them (type, code)."""

BEYOND_COLMET = frozenset(list(EVENTS)[-5:])
"""Events that Colmet does not have."""

CLOCKS = frozenset({"cpu_clock", "task_clock"})
"""Events that count nanoseconds."""

DEFAULT = ("instructions", "cpu_cycles", "cache_misses", "branch_misses", "task_clock")
_NOT_OFFERED = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.ENOSYS})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM})
_DOES_NOT_FIT = frozenset({errno.EINVAL, errno.ENOSPC})


def metric(event: str) -> str:
    """Return the name of an event's metric."""
    return f"perf_{event}_seconds_total" if event in CLOCKS else f"perf_{event}_total"


def online_cpus(sys: str = "/sys") -> list[int]:
    """Return the CPUs on which events can be counted."""
    text = read_once(f"{sys}/devices/system/cpu/online")
    return cpu_list(text.encode()) if text else list(range(os.cpu_count() or 1))


class PerfSource:
    """Count these events for every job. Events that this machine does not offer are left out, with one log line."""

    name = "perf"
    controllers = frozenset({"perf_event", UNIFIED})

    def __init__(self, events: Sequence[str] = DEFAULT, cpus: Sequence[int] | None = None) -> None:
        unknown = [event for event in events if event not in EVENTS]
        if unknown:
            raise ValueError(f"there is no event `{unknown[0]}`; there are {', '.join(EVENTS)}")
        self.events = list(dict.fromkeys(events))
        self.cpus = online_cpus() if cpus is None else list(cpus)
        self._refused = self._said_missing = False

    def open(self, job: ProbedJob) -> Probe | None:
        """Open one group a CPU on the job's cgroup; None where that is not possible."""
        directory = job.directories.get("perf_event") or job.directories.get(UNIFIED)
        if directory is None:
            return NoEvents(self, job)
        if self._refused:
            return None
        cgroup = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        groups: list[EventGroup] = []
        try:
            for cpu in self.cpus:
                groups += self._open_cpu(cgroup, cpu)
        except BaseException:
            for group in groups:
                group.close()
            raise
        finally:
            os.close(cgroup)
        return Perf(groups) if groups else None

    def _open_cpu(self, cgroup: int, cpu: int) -> list[EventGroup]:
        groups: list[EventGroup] = []
        for event in list(self.events):
            try:
                _open_into(groups, event, cgroup, cpu)
            except OSError as error:
                if error.errno in _NOT_ALLOWED:
                    self._refuse(error)
                    return groups
                if error.errno == errno.ENODEV:
                    return groups  # this CPU is offline
                if error.errno not in _NOT_OFFERED:
                    for group in groups:
                        group.close()
                    raise
                self.events.remove(event)
                log.info("this machine does not count an event", extra={"event": event})
        return groups

    def say_missing(self, job: ProbedJob) -> None:
        """Log, once, that a job has no directory to count events for."""
        if not self._said_missing:
            self._said_missing = True
            log.warning(
                "events cannot be counted for %s: its resource manager makes no directory for it in the perf_event"
                " hierarchy",
                next(iter(job.directories.values()), "a job"),
            )

    def _refuse(self, error: OSError) -> None:
        self._refused = True
        log.warning("events cannot be counted: %s (CAP_PERFMON or perf_event_paranoid <= 0 is needed)", error.strerror)


class NoEvents(Probe):
    """A job without a directory for events. It may just not be made yet, so a warning waits for the second reading."""

    __slots__ = ("_job", "_readings", "_source")

    def __init__(self, source: PerfSource, job: ProbedJob) -> None:
        self._source, self._job = source, job
        self._readings = 0

    def read(self, values: Values, *, thorough: bool) -> None:  # noqa: ARG002
        """Count readings; the source opens the job anew when a directory appears."""
        self._readings += 1
        if self._readings == 2:
            self._source.say_missing(self._job)


class EventGroup:
    """Counters of one CPU that are read with one call."""

    __slots__ = ("_fds", "_last", "counted", "events")

    def __init__(self, event: str, leader: int) -> None:
        self.events = [event]
        self.counted = True
        self._fds = [leader]
        self._last = EventCounts(0, 0, ())

    @property
    def leader(self) -> int:
        """Return the descriptor by which the whole group is read."""
        return self._fds[0]

    def add(self, event: str, fd: int) -> None:
        """Add a counter that was opened with this group's leader."""
        self.events.append(event)
        self._fds.append(fd)

    def advance(self, totals: Values) -> None:
        """Add what was counted since the last time, scaled where counters were shared with others."""
        now = read_group(self.leader, len(self.events))
        before = self._last
        enabled, running = now.enabled - before.enabled, now.running - before.running
        self.counted = now.running > 0 or now.enabled == 0
        if running == 0 and enabled > 0:
            return  # it had no turn: what it counts next stands for this time too
        for event, value, old in zip(self.events, now.values, before.values or (0,) * len(now.values)):
            totals[event] = totals.get(event, 0.0) + (scaled(value - old, enabled, running) or 0.0)
        self._last = now

    def close(self) -> None:
        """Close the counters."""
        close_all(*self._fds)


class Perf(Probe):
    """The counters of one job."""

    __slots__ = ("_groups", "_totals")

    def __init__(self, groups: list[EventGroup]) -> None:
        self._groups = groups
        self._totals: Values = {}

    def read(self, values: Values, *, thorough: bool) -> None:  # noqa: ARG002
        """Add up all CPUs. An event that never had its turn on the hardware is left out."""
        counted: set[str] = set()
        for group in self._groups:
            group.advance(self._totals)
            if group.counted:
                counted.update(group.events)
        for event in counted:
            total = self._totals.get(event, 0.0)
            values[metric(event)] = total / _NANO if event in CLOCKS else total

    def close(self) -> None:
        """Stop counting."""
        for group in self._groups:
            group.close()


def _open_into(groups: list[EventGroup], event: str, cgroup: int, cpu: int) -> None:
    """Open a counter in the last group; in a group of its own when the hardware cannot count all at once."""
    kind, config = EVENTS[event]
    if groups:
        try:
            leader = groups[-1].leader
            fd = open_event(kind, config, pid=cgroup, cpu=cpu, leader=leader, flags=FOR_CGROUP)
        except OSError as error:
            if error.errno not in _DOES_NOT_FIT:
                raise
        else:
            groups[-1].add(event, fd)
            return
    fd = open_event(kind, config, pid=cgroup, cpu=cpu, flags=FOR_CGROUP)
    groups.append(EventGroup(event, fd))
