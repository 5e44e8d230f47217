"""The node as a whole, from /proc: CPU time, memory, load, paging."""

from __future__ import annotations

import os
import re

from oarlock.node.sources.files import Values, close_all, open_kept, read_record
from oarlock.node.sources.metrics import series

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
"""Columns of the `cpu` line of /proc/stat; guest time is inside user and nice already."""

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
    found = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[2:] == ["kB"]}
    return {meminfo_metric(key): found[key] for key in MEMINFO if key in found}


def meminfo_metric(key: str) -> str:
    """Give the metric of a line of /proc/meminfo: `Active(file)` → `meminfo_active_file_bytes`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace("(", "_").replace(")", "")
    return f"meminfo_{words.lower()}_bytes"


def vmstat(text: str) -> Values:
    """Read /proc/vmstat."""
    rows = (line.split() for line in text.splitlines())
    return {_VMSTAT[word][0]: int(value) * _VMSTAT[word][1] for word, value in rows if word in _VMSTAT}


def loadavg(text: str) -> Values:
    """Read /proc/loadavg."""
    one, five, fifteen, tasks, _ = text.split()
    runnable, _, threads = tasks.partition("/")
    return {
        "load_1min": float(one), "load_5min": float(five), "load_15min": float(fifteen),
        "threads_runnable": int(runnable), "threads": int(threads),
    }  # fmt: skip


def uptime(text: str) -> Values:
    """Read /proc/uptime. Idle time is the sum over all CPUs."""
    up, idle = text.split()
    return {"uptime_seconds": float(up), "idle_seconds_total": float(idle)}
