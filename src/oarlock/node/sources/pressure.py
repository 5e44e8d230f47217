"""Pressure stall information of a job (version 2): how long its tasks waited for CPU, memory or disks."""

from __future__ import annotations

import os

from oarlock.node.cgroup.hierarchies import UNIFIED
from oarlock.node.sources.files import Values, close_all, open_all
from oarlock.node.sources.parse import U64_MOST
from oarlock.node.sources.probe import Probe, ProbedJob

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
