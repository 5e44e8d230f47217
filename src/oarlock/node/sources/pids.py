"""How many tasks (processes and their threads) a job has, how many it may have, and how many it was refused."""

from __future__ import annotations

import os
from collections.abc import Mapping

from oarlock.node.cgroup.hierarchies import UNIFIED
from oarlock.node.sources.files import Values, close_all, open_in, read_seldom
from oarlock.node.sources.parse import limit, word_values
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
