"""Block device traffic of a job: bytes and requests, read and written, by device."""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.node.sources.files import UNIFIED, Values, close_all, open_all, open_in, read_list, read_once, read_seldom
from oarlock.node.sources.probe import Probe, ProbedJob, series

Traffic = dict[tuple[str, str], int]
"""(metric, major:minor) → value."""

_READ, _WRITTEN = "block_read_bytes_total", "block_written_bytes_total"
_BYTES_V1 = {b"Read": _READ, b"Write": _WRITTEN}
_REQUESTS_V1 = {b"Read": "block_reads_total", b"Write": "block_writes_total"}
_WORDS_V2 = {
    b"rbytes": _READ,
    b"wbytes": _WRITTEN,
    b"rios": "block_reads_total",
    b"wios": "block_writes_total",
}


class BlockIoSource:
    """`blkio.throttle` of version 1, `io.stat` of version 2. Devices are called as in `/proc/diskstats`."""

    name = "blockio"
    controllers = frozenset({"blkio", UNIFIED})

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._names: dict[str, str] = {}

    def open(self, job: ProbedJob) -> Probe | None:
        """Open what this job has."""
        directories = job.directories
        requests, bytes_ = open_all(
            (directories.get("blkio"), "blkio.throttle.io_serviced_recursive"),
            (directories.get("blkio"), "blkio.throttle.io_service_bytes_recursive"),
        )
        if requests is not None:
            return BlockIo(self, requests, bytes_)
        close_all(bytes_)
        stat = open_in(directories, UNIFIED, "io.stat")
        return None if stat is None else BlockIo(self, stat, None)

    def device(self, number: str) -> str:
        """Return a device's name; `major:minor` if it is unknown."""
        if number not in self._names:
            self._names = device_names(read_once(f"{self._proc}/diskstats") or "")
            self._names.setdefault(number, number)
        return self._names[number]


class BlockIo(Probe):
    """One job's traffic. Most jobs seldom touch a disk: while it made no request, nothing else is read or parsed."""

    __slots__ = ("_bytes", "_last", "_requests", "_source", "_text")

    def __init__(self, source: BlockIoSource, requests: int, bytes_: int | None) -> None:
        self._source = source
        self._bytes, self._requests = bytes_, requests
        self._text: bytes | None = None
        self._last: Values = {}

    def read(self, values: Values, *, thorough: bool) -> None:  # noqa: ARG002
        """Read both files of version 1, or the one of version 2."""
        text = read_list(self._requests)
        if text != self._text:
            self._text = text
            traffic = stat_v2(text) if self._bytes is None else throttle_v1(read_list(self._bytes), text)
            self._last = {series(name, device=self._source.device(d)): value for (name, d), value in traffic.items()}
        values.update(self._last)

    def close(self) -> None:
        """Close the files."""
        close_all(self._bytes, self._requests)


def read_final(directories: Mapping[str, str]) -> Values:
    """Read how many bytes a job read and wrote, all devices together.

    Written bytes of 0 are left out, as they do not prove that nothing was written: what a job wrote into the page cache
    reaches the disk later, and version 1 charges it to nobody.
    """
    v1 = read_seldom(directories, "blkio", "blkio.throttle.io_service_bytes_recursive")
    v2 = read_seldom(directories, UNIFIED, "io.stat") if v1 is None else None
    if v1 is None and v2 is None:
        return {}
    traffic = stat_v2(v2) if v2 is not None else throttle_v1(v1 or b"", b"")
    sums = {name: sum(value for (metric, _), value in traffic.items() if metric == name) for name in (_READ, _WRITTEN)}
    return {name: value for name, value in sums.items() if value or name != _WRITTEN}


def throttle_v1(bytes_: bytes, requests: bytes) -> Traffic:
    """Read `blkio.throttle.io_service_bytes_recursive` and `io_serviced_recursive`: `8:0 Read 4096` a line."""
    traffic: Traffic = {}
    for text, names in ((bytes_, _BYTES_V1), (requests, _REQUESTS_V1)):
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in names:
                traffic[names[words[1]], words[0].decode()] = int(words[2])
    return traffic


def stat_v2(text: bytes) -> Traffic:
    """Read `io.stat`: `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 …` a line."""
    traffic: Traffic = {}
    for line in text.splitlines():
        device, *fields = line.split()
        for field in fields:
            word, _, value = field.partition(b"=")
            if word in _WORDS_V2:
                traffic[_WORDS_V2[word], device.decode()] = int(value)
    return traffic


def device_names(diskstats: str) -> dict[str, str]:
    """Read `/proc/diskstats` into `major:minor` → name."""
    rows = (line.split() for line in diskstats.splitlines())
    return {f"{row[0]}:{row[1]}": row[2] for row in rows if len(row) > 2}
