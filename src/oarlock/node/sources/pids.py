"""How many tasks (processes and their threads) a job has, and how many it may have."""

from __future__ import annotations

import os
from collections.abc import Mapping

from oarlock.node.cgroup.hierarchies import UNIFIED
from oarlock.node.sources.files import Values, close_all, open_in, read_seldom
from oarlock.node.sources.parse import limit
from oarlock.node.sources.probe import Probe, ProbedJob

_NUMBER_BYTES = 32


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

    __slots__ = ("_controller", "_current", "_directories", "_limit")

    def __init__(self, current: int, directories: Mapping[str, str], controller: str) -> None:
        self._current, self._directories, self._controller = current, directories, controller
        self._limit: int | None = None

    def read(self, values: Values, *, thorough: bool) -> None:
        """Read the number, and now and then the limit."""
        values["tasks"] = int(os.pread(self._current, _NUMBER_BYTES, 0))
        if thorough:
            maximum = read_seldom(self._directories, self._controller, "pids.max")
            self._limit = None if maximum is None else limit(maximum)
        if self._limit is not None:
            values["tasks_limit"] = self._limit

    def close(self) -> None:
        """Close the file."""
        close_all(self._current)
