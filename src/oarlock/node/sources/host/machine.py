"""The node as a whole, from /proc: CPU time, memory, load, paging, disks, and how full file systems are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from oarlock.node.sources.files import Values, close_all, open_kept, read_list, read_once, read_record
from oarlock.node.sources.probe import BackgroundSource, series

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
"""Columns of the `cpu` line of /proc/stat; guest time is inside user and nice already."""

_OWN_MODES = MODES[:8]
_CPU_KEYS = [series("cpu_seconds_total", mode=mode) for mode in MODES]
_STAT = {
    "intr": "interrupts_total",
    "ctxt": "context_switches_total",
    "processes": "forks_total",
    "procs_running": "processes_running",
    "procs_blocked": "processes_blocked",
}
_VMSTAT = {
    "pgpgin": ("page_in_bytes_total", 1024),
    "pgpgout": ("page_out_bytes_total", 1024),
    "pswpin": ("swap_in_pages_total", 1),
    "pswpout": ("swap_out_pages_total", 1),
    "pgfault": ("page_faults_total", 1),
    "pgmajfault": ("major_page_faults_total", 1),
    "oom_kill": ("oom_kills_total", 1),
}
MEMINFO = (
    "MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapCached", "Active", "Inactive", "Active(anon)",
    "Inactive(anon)", "Active(file)", "Inactive(file)", "Unevictable", "Mlocked", "SwapTotal", "SwapFree", "Dirty",
    "Writeback", "AnonPages", "Mapped", "Shmem", "KReclaimable", "Slab", "SReclaimable", "SUnreclaim", "KernelStack",
    "PageTables", "NFS_Unstable", "Bounce", "WritebackTmp", "CommitLimit", "Committed_AS", "VmallocTotal",
    "VmallocUsed", "Percpu", "HardwareCorrupted", "AnonHugePages", "ShmemHugePages", "Hugepagesize", "Hugetlb",
)  # fmt: skip
"""Lines of /proc/meminfo that are kept."""


class MachineSource:
    """Five files of /proc, kept open."""

    name = "machine"

    def __init__(self, proc: str = "/proc") -> None:
        user_hz = os.sysconf("SC_CLK_TCK")
        parsers = {
            "stat": lambda text: stat(text, user_hz), "meminfo": meminfo, "vmstat": vmstat,
            "loadavg": loadavg, "uptime": uptime,
        }  # fmt: skip
        opened = [(open_kept(proc, name), parse) for name, parse in parsers.items()]
        self._files = [(fd, parse) for fd, parse in opened if fd is not None]

    def read(self, values: Values) -> None:
        """Read all files."""
        for fd, parse in self._files:
            values.update(parse(read_record(fd, 16384).decode("ascii", "replace")))

    def close(self) -> None:
        """Close all files."""
        close_all(*(fd for fd, _ in self._files))


class CoreSource:
    """/proc/stat, CPU by CPU: some programs count the CPUs of a node by it. Off unless asked for: it is much text."""

    name = "cores"

    def __init__(self, proc: str = "/proc") -> None:
        self._user_hz = os.sysconf("SC_CLK_TCK")
        self._fd = open_kept(proc, "stat")

    def read(self, values: Values) -> None:
        """Read all CPUs that are online."""
        if self._fd is not None:
            values.update(core_times(read_record(self._fd, 16384).decode("ascii", "replace"), self._user_hz))

    def close(self) -> None:
        """Close the file."""
        close_all(self._fd)


def core_times(text: str, user_hz: int) -> Values:
    """Read the lines of single CPUs in /proc/stat; guest time is left out, as it is inside user and nice."""
    values: Values = {}
    for line in text.splitlines():
        word, *fields = line.split()
        if word.startswith("cpu") and word != "cpu":
            for mode, ticks in zip(_OWN_MODES, fields):
                values[series("core_cpu_seconds_total", core=word[3:], mode=mode)] = int(ticks) / user_hz
    return values


def stat(text: str, user_hz: int) -> Values:
    """Read /proc/stat: ticks in the file, seconds in a reading."""
    values: Values = {}
    for line in text.splitlines():
        word, *fields = line.split()
        if word == "cpu":
            values.update((key, int(ticks) / user_hz) for key, ticks in zip(_CPU_KEYS, fields))
        elif word in _STAT:
            values[_STAT[word]] = int(fields[0])
    return values


def meminfo(text: str) -> Values:
    """Read /proc/meminfo: kB in the file, bytes in a reading."""
    rows = (line.split() for line in text.splitlines())
    sizes = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[2:] == ["kB"]}
    return {meminfo_metric(key): sizes[key] for key in MEMINFO if key in sizes}


def meminfo_metric(key: str) -> str:
    """Return the metric of a line of /proc/meminfo: `Active(file)` → `meminfo_active_file_bytes`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace("(", "_").replace(")", "")
    return f"meminfo_{words.lower()}_bytes"


def vmstat(text: str) -> Values:
    """Read /proc/vmstat."""
    rows = (line.split() for line in text.splitlines())
    return {_VMSTAT[word][0]: int(value) * _VMSTAT[word][1] for word, value in rows if word in _VMSTAT}


def loadavg(text: str) -> Values:
    """Read /proc/loadavg."""
    load_1, five, fifteen, tasks, _ = text.split()
    runnable, _, threads = tasks.partition("/")
    return {
        "load_1min": float(load_1), "load_5min": float(five), "load_15min": float(fifteen),
        "threads_runnable": int(runnable), "threads": int(threads),
    }  # fmt: skip


def uptime(text: str) -> Values:
    """Read /proc/uptime. Idle time is the sum over all CPUs."""
    up, idle = text.split()
    return {"uptime_seconds": float(up), "idle_seconds_total": float(idle)}


FILESYSTEM_SECONDS = 30.0
_SECTOR_BYTES = 512  # in /proc/diskstats, whatever the device's own sectors are
_COLUMNS = {
    3: ("disk_reads_total", 1),
    5: ("disk_read_bytes_total", _SECTOR_BYTES),
    7: ("disk_writes_total", 1),
    9: ("disk_written_bytes_total", _SECTOR_BYTES),
}
_NO_DISK = re.compile(r"(?:ram|zram|loop|fd|sr)\d+")
_IN_MEMORY = "tmpfs"
_KERNELS_OWN = re.compile(r"/(?:dev|proc|sys|run)(?:/.*)?")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class DiskSource:
    """/proc/diskstats: whole disks. A partition is left out, as its traffic is part of its disk's."""

    name = "disk"

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._fd = open_kept(proc, "diskstats")
        self._sys = sys
        self._is_disk: dict[str, bool] = {}

    def read(self, values: Values) -> None:
        """Read all disks."""
        if self._fd is None:
            return
        for device, fields in disks(read_list(self._fd).decode("ascii", "replace")):
            if device not in self._is_disk:
                partition = os.path.exists(f"{self._sys}/class/block/{device}/partition")
                self._is_disk[device] = not partition and not _NO_DISK.fullmatch(device)
            if self._is_disk[device]:
                values.update((series(name, device=device), value) for name, value in fields)

    def close(self) -> None:
        """Close the file."""
        close_all(self._fd)


def disks(text: str) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Read /proc/diskstats: each device with its readings."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > max(_COLUMNS):
            yield words[2], [(name, int(words[at]) * unit) for at, (name, unit) in _COLUMNS.items()]


class LocalMount(NamedTuple):
    """A mounted file system."""

    device: str
    mountpoint: str
    fstype: str


def local_mounts(text: str) -> list[LocalMount]:
    """Read /proc/mounts: file systems on devices of this machine, or in its memory, each device once.

    File systems of the network are left out: they belong to a server, and asking one that is gone would wait for ever.
    """
    mounts: dict[str, LocalMount] = {}
    for line in text.splitlines():
        device, mountpoint, fstype, *_ = (_unescaped(word) for word in line.split())
        in_memory = fstype == _IN_MEMORY and not _KERNELS_OWN.fullmatch(mountpoint)
        if in_memory or device.startswith("/dev/") or fstype in {"zfs", "btrfs"}:
            mounts.setdefault(mountpoint if in_memory else device, LocalMount(device, mountpoint, fstype))
    return list(mounts.values())


def sizes(proc: str = "/proc") -> Values:
    """Measure every local file system."""
    values: Values = {}
    for mount in local_mounts(read_once(f"{proc}/self/mounts") or ""):
        try:
            statistics = os.statvfs(mount.mountpoint)
        except OSError:  # it was unmounted, or hides from us
            continue
        blocks = (("size", statistics.f_blocks), ("free", statistics.f_bfree), ("available", statistics.f_bavail))
        for name, count in blocks:
            values[series(f"filesystem_{name}_bytes", **mount._asdict())] = count * statistics.f_frsize
    return values


def filesystems(period: float = FILESYSTEM_SECONDS) -> BackgroundSource:
    """Measure file systems every `period` seconds, in a thread: a disk that hangs must not hold up a sample."""
    return BackgroundSource("filesystem", sizes, period)


def _unescaped(word: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 8)), word)
