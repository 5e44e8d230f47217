"""The node's disks and file systems: what passes through a device, and how full a mounted file system is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from oarlock.node.sources.background import BackgroundSource
from oarlock.node.sources.files import Values, close_all, open_kept, read_list, read_once
from oarlock.node.sources.metrics import series

PERIOD_SECONDS = 30.0
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


def filesystems(period: float = PERIOD_SECONDS) -> BackgroundSource:
    """Measure file systems every `period` seconds, in a thread: a disk that hangs must not hold up a sample."""
    return BackgroundSource("filesystem", sizes, period)


def _unescaped(word: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 8)), word)
