"""CPU time of a job: total, user, system, by core; how many CPUs it may use; how much it was throttled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from oarlock.node.sources.files import (
    UNIFIED,
    Values,
    close_all,
    cpu_list,
    open_all,
    open_in,
    read_record,
    read_seldom,
    word_values,
)
from oarlock.node.sources.probe import Probe, ProbedJob, series

_NANO, _MICRO = 1e9, 1e6
_NUMBER_BYTES, _TEXT_BYTES, _BY_CPU_BYTES = 32, 448, 448

_WORDS_V1 = [b"user", b"system"]
_TIMES_V2 = {
    b"usage_usec": "cpu_seconds_total",
    b"user_usec": "cpu_user_seconds_total",
    b"system_usec": "cpu_system_seconds_total",
}
_PERIODS = {
    b"nr_periods": "cpu_periods_total",
    b"nr_throttled": "cpu_throttled_periods_total",
    b"nr_bursts": "cpu_burst_periods_total",
}
_HELD_BACK = {
    b"throttled_time": ("cpu_throttled_seconds_total", _NANO),
    b"throttled_usec": ("cpu_throttled_seconds_total", _MICRO),
    b"burst_time": ("cpu_burst_seconds_total", _NANO),
    b"burst_usec": ("cpu_burst_seconds_total", _MICRO),
}
_CPUSETS = (("cpuset", "cpuset.effective_cpus"), ("cpuset", "cpuset.cpus"), (UNIFIED, "cpuset.cpus.effective"))


class CpuSource:
    """`cpuacct`, `cpu` and `cpuset` of version 1, or `cpu.stat` of version 2; version 1 wins, as it counts by core."""

    name = "cpu"
    controllers = frozenset({"cpuacct", "cpu", "cpuset", UNIFIED})

    def __init__(self, user_hz: int | None = None) -> None:
        self._user_hz = user_hz or os.sysconf("SC_CLK_TCK")

    def open(self, job: ProbedJob) -> Probe | None:
        """Open what this job has."""
        directories = job.directories
        if "cpuacct" in directories:
            return CpuV1(directories, self._user_hz)
        if UNIFIED in directories:
            return CpuV2(directories)
        return None


class CpuV1(Probe):
    """The total in nanoseconds; user and system time in ticks.

    `cpuacct.usage_user` and `usage_sys` have nanoseconds too, but are sampled at the clock's tick: on Linux 6.18 they
    were 3.3 % off, where `cpuacct.stat` adds up to the total within a tick.
    """

    __slots__ = ("_by_cpu", "_cores", "_directories", "_stat", "_throttled", "_throttling", "_total", "_usage",
                 "_user_hz")  # fmt: skip
    beats = True

    def __init__(self, directories: Mapping[str, str], user_hz: int) -> None:
        self._directories, self._user_hz = directories, user_hz
        self._usage = b""
        self._throttling: Values = {}
        self._cores: list[tuple[int, str]] = []
        account = directories.get("cpuacct")
        self._total, self._stat, self._by_cpu, self._throttled = open_all(
            (account, "cpuacct.usage"), (account, "cpuacct.stat"), (account, "cpuacct.usage_percpu"),
            (directories.get("cpu"), "cpu.stat"),
        )  # fmt: skip

    def beat(self) -> bytes:
        """Read the total."""
        self._usage = b"" if self._total is None else os.pread(self._total, _NUMBER_BYTES, 0)
        return self._usage

    def read(self, values: Values, *, thorough: bool) -> None:
        """Read the parts that make up the total."""
        if self._usage:
            values.update(usage_v1(self._usage))
        if self._stat is not None:
            values.update(stat_v1(os.pread(self._stat, _TEXT_BYTES, 0), self._user_hz))
        if self._throttled is not None:
            # Without a quota it never changes, and most jobs have none.
            if thorough or self._throttling.get("cpu_periods_total"):
                self._throttling = throttling(os.pread(self._throttled, _TEXT_BYTES, 0))
            values.update(self._throttling)
        if thorough:
            self._cores = _read_cores(self._directories)
        if self._cores:
            values["cpus"] = len(self._cores)
        if self._by_cpu is not None and self._cores:
            by_cpu = read_record(self._by_cpu, _BY_CPU_BYTES).split()
            for cpu, key in self._cores:
                values[key] = int(by_cpu[cpu]) / _NANO

    def close(self) -> None:
        """Close all files."""
        close_all(self._total, self._stat, self._by_cpu, self._throttled)


class CpuV2(Probe):
    """`cpu.stat`. The kernel counts no time by core there: each core gets an even share, as portals expect."""

    __slots__ = ("_cores", "_directories", "_stat", "_text")
    beats = True

    def __init__(self, directories: Mapping[str, str]) -> None:
        self._directories = directories
        self._text = b""
        self._cores: list[tuple[int, str]] = []
        self._stat = open_in(directories, UNIFIED, "cpu.stat")

    def beat(self) -> bytes:
        """Read the whole file; it is one."""
        self._text = b"" if self._stat is None else os.pread(self._stat, _TEXT_BYTES, 0)
        return self._text

    def read(self, values: Values, *, thorough: bool) -> None:
        """Parse the file that `beat` read."""
        if self._text:
            values.update(stat_v2(self._text))
        if thorough:
            self._cores = _read_cores(self._directories)
        total = values.get("cpu_seconds_total")
        if self._cores:
            values["cpus"] = len(self._cores)
            if total is not None:
                values.update((key, total / len(self._cores)) for _, key in self._cores)

    def close(self) -> None:
        """Close the file."""
        close_all(self._stat)


def read_final(directories: Mapping[str, str]) -> Values:
    """Read what a job used in all and how many CPUs it had, from the files that its samples are read from."""
    values: Values = {}
    usage = read_seldom(directories, "cpuacct", "cpuacct.usage")
    if usage is not None:
        values.update(usage_v1(usage))
        values.update(stat_v1(read_seldom(directories, "cpuacct", "cpuacct.stat") or b"", os.sysconf("SC_CLK_TCK")))
    else:
        values.update(times_v2(word_values(read_seldom(directories, UNIFIED, "cpu.stat") or b"")))
    cores = _read_cores(directories)
    return {**values, "cpus": len(cores)} if cores else values


def usage_v1(text: bytes) -> Values:
    """Read `cpuacct.usage`: nanoseconds."""
    return {"cpu_seconds_total": int(text) / _NANO}


def stat_v1(text: bytes, user_hz: int) -> Values:
    """Read `cpuacct.stat`: ticks, sampled, so that their sum may exceed the exact total."""
    words = text.split()
    if words[::2] != _WORDS_V1:
        raise ValueError(f"{text!r} does not say user and system time")
    return {"cpu_user_seconds_total": int(words[1]) / user_hz, "cpu_system_seconds_total": int(words[3]) / user_hz}


def stat_v2(text: bytes) -> Values:
    """Read `cpu.stat` of version 2: microseconds."""
    values = times_v2(word_values(text))
    values.update(throttling(text))
    return values


def times(total: float, user: float, system: float) -> Values:
    """Return CPU seconds under their names."""
    return dict(zip(_TIMES_V2.values(), (total, user, system)))


def times_v2(fields: Mapping[bytes, int]) -> Values:
    """Return the times among the fields of `cpu.stat`."""
    return {name: fields[word] / _MICRO for word, name in _TIMES_V2.items() if word in fields}


def throttling(text: bytes) -> Values:
    """Read the quota's part of `cpu.stat`: nanoseconds in version 1, microseconds in version 2."""
    fields = word_values(text)
    values: Values = {name: fields[word] for word, name in _PERIODS.items() if word in fields}
    for word, (name, unit) in _HELD_BACK.items():
        if word in fields:
            values[name] = fields[word] / unit
    return values


def cores(text: bytes) -> list[tuple[int, str]]:
    """Read a cpuset's list into CPU numbers, each with the name of its series."""
    return [(cpu, _core_series(cpu)) for cpu in cpu_list(text)]


@cache
def _core_series(cpu: int) -> str:
    """Return the name of a core's series; one string shared by all jobs."""
    return series("core_cpu_seconds_total", core=str(cpu))


def _read_cores(directories: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the CPUs that a job may use, from the first file there is; none where there is no cpuset."""
    for controller, name in _CPUSETS:
        text = read_seldom(directories, controller, name)
        if text is not None:
            return cores(text)
    return []
