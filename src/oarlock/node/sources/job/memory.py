"""Memory of a job: used, peak, limit, what it consists of, swap, and how often it hit its limit."""

from __future__ import annotations

import os
from collections.abc import Mapping

from oarlock.node.sources.files import (
    UNIFIED,
    Values,
    WordPositions,
    close_all,
    limit,
    open_all,
    read_record,
    read_seldom,
    word_values,
)
from oarlock.node.sources.probe import Probe, ProbedJob

_NUMBER_BYTES, _TEXT_BYTES, _STAT_BYTES = 32, 448, 4096
_INFINITE = float("inf")
_NEAR = 15 / 16

STAT_V1: Mapping[bytes, str] = {
    b"total_cache": "memory_cache_bytes",
    b"total_rss": "memory_anonymous_bytes",
    b"total_rss_huge": "memory_huge_bytes",
    b"total_shmem": "memory_shared_bytes",
    b"total_mapped_file": "memory_mapped_bytes",
    b"total_swap": "memory_swap_bytes",
    b"total_pgfault": "page_faults_total",
    b"total_pgmajfault": "major_page_faults_total",
    b"total_inactive_file": "memory_inactive_file_bytes",
    b"total_active_file": "memory_active_file_bytes",
    b"total_unevictable": "memory_unevictable_bytes",
}
"""Lines of version 1's `memory.stat`. Those without `total_` leave out what is inside the job's directory."""

STAT_V2: Mapping[bytes, str] = {
    b"anon": "memory_anonymous_bytes",
    b"file": "memory_cache_bytes",
    b"kernel_stack": "memory_kernel_stack_bytes",
    b"pagetables": "memory_page_tables_bytes",
    b"shmem": "memory_shared_bytes",
    b"file_mapped": "memory_mapped_bytes",
    b"swapcached": "memory_swap_cached_bytes",
    b"anon_thp": "memory_huge_bytes",
    b"inactive_file": "memory_inactive_file_bytes",
    b"active_file": "memory_active_file_bytes",
    b"unevictable": "memory_unevictable_bytes",
    b"slab_reclaimable": "memory_slab_reclaimable_bytes",
    b"pgfault": "page_faults_total",
    b"pgmajfault": "major_page_faults_total",
    b"pswpin": "swap_in_pages_total",
    b"pswpout": "swap_out_pages_total",
}
"""Lines of version 2's `memory.stat`."""

EVENTS_V2: Mapping[bytes, str] = {
    b"max": "memory_limit_hits_total",
    b"oom": "memory_oom_events_total",
    b"oom_kill": "memory_oom_kills_total",
}
"""Lines of version 2's `memory.events`."""

_OOM_CONTROL_V1 = {b"oom_kill": "memory_oom_kills_total"}  # Linux 4.13 and later
_PEAK, _LIMIT = "memory_peak_bytes", "memory_limit_bytes"


class MemorySource:
    """The memory controller of either version."""

    name = "memory"
    controllers = frozenset({"memory", UNIFIED})

    def __init__(self) -> None:
        # One kernel, one order of lines: what is learnt from the first job holds for all.
        self._v1, self._v2 = WordPositions(STAT_V1), WordPositions(STAT_V2)

    def open(self, job: ProbedJob) -> Probe | None:
        """Open what this job has."""
        directories = job.directories
        if "memory" in directories:
            return MemoryV1(directories, self._v1)
        if UNIFIED in directories:
            return MemoryV2(directories, self._v2)
        return None


class MemoryV1(Probe):
    """Version 1, with its children counted in."""

    __slots__ = ("_counts_swap", "_directories", "_peak", "_positions", "_seldom", "_stat", "_usage", "_used")
    beats = True

    def __init__(self, directories: Mapping[str, str], positions: WordPositions) -> None:
        self._directories, self._positions = directories, positions
        self._used = b""
        self._seldom: Values = {}
        self._counts_swap = False  # the kernel may have been built or started without
        names = ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.stat")
        self._usage, self._peak, self._stat = open_all(*((directories.get("memory"), name) for name in names))

    def beat(self) -> bytes:
        """Read what is used now."""
        self._used = b"" if self._usage is None else os.pread(self._usage, _NUMBER_BYTES, 0)
        return self._used

    def read(self, values: Values, *, thorough: bool) -> None:
        """Read what it consists of."""
        if self._used:
            values["memory_usage_bytes"] = int(self._used)
        if self._peak is not None:
            values[_PEAK] = int(os.pread(self._peak, _NUMBER_BYTES, 0))
        if self._stat is not None:
            text = read_record(self._stat, _STAT_BYTES)
            self._positions.pick(text[max(0, text.find(b"total_")) :].split(), values)
        # A job that never came near its limit cannot have hit it.
        near = self._seldom.get(_LIMIT, _INFINITE) * _NEAR
        if thorough or values.get(_PEAK, 0) > near:
            self._read_seldom()
        values.update(self._seldom)
        if self._counts_swap:
            # Without anything on swap it is the memory, and no file has to be read.
            both = self._used if values.get("memory_swap_bytes") == 0 else self._read_both()
            if both:
                values["memory_with_swap_bytes"] = int(both)

    def _read_both(self) -> bytes | None:
        return read_seldom(self._directories, "memory", "memory.memsw.usage_in_bytes")

    def close(self) -> None:
        """Close all files."""
        close_all(self._usage, self._peak, self._stat)

    def _read_seldom(self) -> None:
        seldom = self._seldom = {}
        _put_limit(seldom, _LIMIT, read_seldom(self._directories, "memory", "memory.limit_in_bytes"))
        with_swap = read_seldom(self._directories, "memory", "memory.memsw.limit_in_bytes")
        self._counts_swap = with_swap is not None
        _put_limit(seldom, "memory_with_swap_limit_bytes", with_swap)
        hits = read_seldom(self._directories, "memory", "memory.failcnt")
        if hits is not None:
            seldom["memory_limit_hits_total"] = int(hits)
        seldom.update(counts(read_seldom(self._directories, "memory", "memory.oom_control"), _OOM_CONTROL_V1))


class MemoryV2(Probe):
    """Version 2."""

    __slots__ = ("_current", "_directories", "_events", "_peak", "_positions", "_seldom", "_stat", "_swap",
                 "_used")  # fmt: skip
    beats = True

    def __init__(self, directories: Mapping[str, str], positions: WordPositions) -> None:
        self._directories, self._positions = directories, positions
        self._used = b""
        self._seldom: Values = {}
        names = ("memory.current", "memory.peak", "memory.stat", "memory.swap.current", "memory.events")
        self._current, self._peak, self._stat, self._swap, self._events = open_all(
            *((directories.get(UNIFIED), name) for name in names)
        )

    def beat(self) -> bytes:
        """Read what is used now."""
        self._used = b"" if self._current is None else os.pread(self._current, _NUMBER_BYTES, 0)
        return self._used

    def read(self, values: Values, *, thorough: bool) -> None:
        """Read what it consists of."""
        if self._used:
            values["memory_usage_bytes"] = int(self._used)
        for fd, name in ((self._peak, _PEAK), (self._swap, "memory_swap_bytes")):
            if fd is not None:
                values[name] = int(os.pread(fd, _NUMBER_BYTES, 0))
        if self._stat is not None:
            self._positions.pick(read_record(self._stat, _STAT_BYTES).split(), values)
        if self._events is not None:
            values.update(counts(os.pread(self._events, _TEXT_BYTES, 0), EVENTS_V2))
        if thorough:
            self._seldom = {}
            _put_limit(self._seldom, _LIMIT, read_seldom(self._directories, UNIFIED, "memory.max"))
            swap = read_seldom(self._directories, UNIFIED, "memory.swap.max")
            _put_limit(self._seldom, "memory_swap_limit_bytes", swap)
        values.update(self._seldom)

    def close(self) -> None:
        """Close all files."""
        close_all(self._current, self._peak, self._stat, self._swap, self._events)


def read_final(directories: Mapping[str, str]) -> Values:
    """Read a job's peak, its limit and what was killed for memory, from the files that its samples are read from."""
    controller, names, events = _FINAL_V1 if "memory" in directories else _FINAL_V2
    peak, maximum, happened = (read_seldom(directories, controller, name) for name in names)
    values: Values = {} if peak is None else {_PEAK: int(peak)}
    _put_limit(values, _LIMIT, maximum)
    values.update(counts(happened, events))
    return values


_FINAL_V1 = "memory", ("memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"), _OOM_CONTROL_V1
_FINAL_V2 = UNIFIED, ("memory.peak", "memory.max", "memory.events"), EVENTS_V2


def counts(text: bytes | None, names: Mapping[bytes, str]) -> Values:
    """Read lines of `word number` that are called otherwise here; a file that is not there counts nothing."""
    fields = word_values(text or b"")
    return {name: fields[word] for word, name in names.items() if word in fields}


def _put_limit(values: Values, name: str, text: bytes | None) -> None:
    """Put a limit where there is one: no limit is no series."""
    value = None if text is None else limit(text)
    if value is not None:
        values[name] = value
