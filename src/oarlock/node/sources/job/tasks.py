"""Tasks (processes and their threads) of a job: how many, how many it may have, and how long they had to wait."""

from __future__ import annotations

import os
from collections.abc import Mapping

from oarlock.node.sources.files import (
    U64_MOST,
    UNIFIED,
    Values,
    close_all,
    limit,
    open_all,
    open_in,
    read_seldom,
    word_values,
)
from oarlock.node.sources.probe import Probe, ProbedJob

_NUMBER_BYTES = 32
_NEAR = 15 / 16


class PidsSource:
    """The pids controller, which has the same files in both versions."""

    name = "pids"
    controllers = frozenset({"pids", UNIFIED})

    def open(self, job: ProbedJob) -> Probe | None:
        """Open what this job has."""
        for controller in ("pids", UNIFIED):
            current = open_in(job.directories, controller, "pids.current")
            if current is not None:
                return Pids(current, job.directories, controller)
        return None


class Pids(Probe):
    """One job's number of tasks."""

    __slots__ = ("_controller", "_current", "_directories", "_limit", "_refused")

    def __init__(self, current: int, directories: Mapping[str, str], controller: str) -> None:
        self._current, self._directories, self._controller = current, directories, controller
        self._limit: int | None = None
        self._refused: Values = {}

    def read(self, values: Values, *, thorough: bool) -> None:
        """Read the number; now and then the limit, and near the limit how often it was hit."""
        tasks = values["tasks"] = int(os.pread(self._current, _NUMBER_BYTES, 0))
        if thorough:
            maximum = read_seldom(self._directories, self._controller, "pids.max")
            self._limit = None if maximum is None else limit(maximum)
        if self._limit is not None:
            values["tasks_limit"] = self._limit
        if thorough or (self._limit is not None and tasks > self._limit * _NEAR):
            self._refused = refused(read_seldom(self._directories, self._controller, "pids.events"))
        values.update(self._refused)

    def close(self) -> None:
        """Close the file."""
        close_all(self._current)


def read_final(directories: Mapping[str, str]) -> Values:
    """Read how many tasks a job was refused in all."""
    return refused(read_seldom(directories, "pids" if "pids" in directories else UNIFIED, "pids.events"))


def refused(text: bytes | None) -> Values:
    """Read `pids.events`: how often a task was not made because of the limit."""
    fields = word_values(text or b"")
    return {"tasks_refused_total": fields[b"max"]} if b"max" in fields else {}


_MICRO = 1e6
_TEXT_BYTES = 256
_SHARES = ("some", "full")
RESOURCES = ("cpu", "memory", "io")


class PressureSource:
    """`cpu.pressure`, `memory.pressure`, `io.pressure`; absent when the kernel was started without PSI."""

    name = "pressure"
    controllers = frozenset({UNIFIED})

    def open(self, job: ProbedJob) -> Probe | None:
        """Open what this job has."""
        directory = job.directories.get(UNIFIED)
        opened = open_all(*((directory, f"{resource}.pressure") for resource in RESOURCES))
        files = [(resource, fd) for resource, fd in zip(RESOURCES, opened) if fd is not None]
        return Pressure(files) if files else None


class Pressure(Probe):
    """One job's three files."""

    __slots__ = ("_files",)

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self._files = files

    def read(self, values: Values, *, thorough: bool) -> None:  # noqa: ARG002
        """Read what was waited in all."""
        for resource, fd in self._files:
            for share, microseconds in totals(os.pread(fd, _TEXT_BYTES, 0)).items():
                values[f"{resource}_pressure_{share}_seconds_total"] = microseconds / _MICRO

    def close(self) -> None:
        """Close all files."""
        close_all(*(fd for _, fd in self._files))


def totals(text: bytes) -> dict[str, int]:
    """Read a pressure file into the microseconds that some, and that all (`full`), tasks waited."""
    waited = {}
    for line in text.decode("ascii").splitlines():
        share, *fields = line.split() or [""]
        total = next((field[6:] for field in fields if field.startswith("total=")), None)
        if share not in _SHARES or total is None:
            continue  # a later kernel may say more
        if not total.isdigit() or int(total) > U64_MOST:
            raise ValueError(f"{line!r} is not a line of a pressure file")
        waited[share] = int(total)
    return waited
