"""What passes through the node's networks: interfaces, InfiniBand ports, Lustre mounts."""

from __future__ import annotations

import os
from collections.abc import Iterator

from oarlock.node.sources.files import Values, close_all, list_directory, open_briefly, open_kept, read_list
from oarlock.node.sources.probe import series

_NUMBER_BYTES = 32
_WORD_BYTES = 4  # InfiniBand counts data in words of four bytes, on Omni-Path cards too
_COLUMNS = {0: "bytes", 1: "packets", 2: "errors", 3: "dropped"}
_PORT_FILES = {
    "port_rcv_data": ("infiniband_received_bytes_total", _WORD_BYTES),
    "port_xmit_data": ("infiniband_transmitted_bytes_total", _WORD_BYTES),
    "port_rcv_packets": ("infiniband_received_packets_total", 1),
    "port_xmit_packets": ("infiniband_transmitted_packets_total", 1),
}
_LLITE_ROOTS = ("proc/fs/lustre/llite", "sys/kernel/debug/lustre/llite")
_LLITE = {
    "read_bytes": ("lustre_reads_total", "lustre_read_bytes_total"),
    "write_bytes": ("lustre_writes_total", "lustre_written_bytes_total"),
}


class NetworkSource:
    """/proc/net/dev: every interface, the loopback too."""

    name = "network"

    def __init__(self, proc: str = "/proc") -> None:
        self._fd = open_kept(f"{proc}/net", "dev")

    def read(self, values: Values) -> None:
        """Read all interfaces."""
        if self._fd is not None:
            values.update(interfaces(read_list(self._fd).decode("ascii", "replace")))

    def close(self) -> None:
        """Close the file."""
        close_all(self._fd)


class InfinibandSource:
    """Counters of every port, in bytes and packets."""

    name = "infiniband"

    def __init__(self, sys: str = "/sys") -> None:
        self._files = list(_port_files(f"{sys}/class/infiniband"))

    def read(self, values: Values) -> None:
        """Read all ports; one that is down may refuse to be read."""
        for key, factor, fd in self._files:
            try:
                values[key] = int(os.pread(fd, _NUMBER_BYTES, 0)) * factor
            except (OSError, ValueError):
                continue

    def close(self) -> None:
        """Close all files."""
        close_all(*(fd for _, _, fd in self._files))


class LustreSource:
    """Client statistics of every mounted Lustre file system; mounts may come and go."""

    name = "lustre"

    def __init__(self, root: str = "/") -> None:
        self._roots = [os.path.join(root, path) for path in _LLITE_ROOTS]

    def read(self, values: Values) -> None:
        """Read all mounts; two mounts of one file system are added up."""
        for root in self._roots:
            for mount in list_directory(root):
                fd = open_briefly(f"{root}/{mount}", "stats")
                if fd is None:
                    continue
                try:
                    counters = llite(read_list(fd).decode("ascii", "replace"))
                finally:
                    os.close(fd)
                for name, value in counters.items():
                    key = series(name, fs=mount.rpartition("-")[0] or mount)
                    values[key] = values.get(key, 0) + value

    def close(self) -> None:
        """Nothing is kept open: a mount would be held."""


def interfaces(text: str) -> Values:
    """Read /proc/net/dev: two lines of headings, then eight columns received and eight transmitted."""
    values: Values = {}
    for line in text.splitlines()[2:]:
        interface, _, rest = line.partition(":")
        fields = rest.split()
        for at, what in _COLUMNS.items():
            values[series(f"network_received_{what}_total", interface=interface.strip())] = int(fields[at])
            values[series(f"network_transmitted_{what}_total", interface=interface.strip())] = int(fields[at + 8])
    return values


def llite(text: str) -> Values:
    """Read a `stats` file of llite: calls in the second column, bytes in the last."""
    values: Values = {}
    for line in text.splitlines():
        word, *fields = line.split()
        if word in _LLITE and len(fields) > 1:
            calls, amount = _LLITE[word]
            values[calls], values[amount] = int(fields[0]), int(fields[-1])
    return values


def _port_files(root: str) -> Iterator[tuple[str, int, int]]:
    for device in list_directory(root):
        for port in list_directory(f"{root}/{device}/ports"):
            for file, (name, factor) in _PORT_FILES.items():
                fd = open_kept(f"{root}/{device}/ports/{port}/counters", file)
                if fd is not None:
                    yield series(name, device=device, port=port), factor, fd
