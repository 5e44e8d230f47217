"""CPU time and memory of each step of a job, where a resource manager gives steps a cgroup of their own (Slurm).

A step may end long before its job: its files going away is no end of the job, and its series end with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from oarlock.node.sources.files import UNIFIED, Values, close_all, is_end, open_all
from oarlock.node.sources.job.cpu import stat_v2
from oarlock.node.sources.probe import Probe, ProbedJob, series

MOST = 64
"""Most steps of a job that have series of their own; each costs two open files."""

_PREFIX = "step_"
_BYTES = 448
_NANO = 1e9


class _Step(NamedTuple):
    """A step's open files, and the names of its series."""

    cpu: int | None
    memory: int | None
    cpu_series: str
    memory_series: str


class StepSource:
    """`cpuacct` and `memory` of version 1, or `cpu.stat` and `memory.current` of version 2, of each step."""

    name = "steps"
    controllers = frozenset({"cpuacct", "memory", UNIFIED})

    def open(self, job: ProbedJob) -> Probe | None:
        """Watch for steps; most jobs never have any, which costs next to nothing."""
        return Steps(job)


class Steps(Probe):
    """The steps of one job that run now."""

    __slots__ = ("_incomplete", "_job", "_seen", "_steps")

    def __init__(self, job: ProbedJob) -> None:
        self._job = job
        self._seen: Sequence[str] | None = None
        self._steps: dict[str, _Step] = {}
        self._incomplete = False

    def read(self, values: Values, *, thorough: bool) -> None:
        """Read every step; those that ended meanwhile are closed."""
        if thorough or self._incomplete or self._job.process_directories is not self._seen:
            self._look()
        for name, step in list(self._steps.items()):
            try:
                _read(step, values)
            except OSError as error:
                if not is_end(error):
                    raise
                self._drop(name)

    def close(self) -> None:
        """Close all files."""
        for name in list(self._steps):
            self._drop(name)

    def _look(self) -> None:
        self._seen = self._job.process_directories
        present = steps(self._seen)
        for name, step in list(self._steps.items()):
            if name not in present or None in step:  # its directory in another hierarchy may have come later
                self._drop(name)
        for name in present:
            if name not in self._steps:
                self._steps[name] = self._open(name)
        # Only the directories of one hierarchy are watched; a resource manager may make the others a moment later.
        self._incomplete = self._has_both() and any(None in step for step in self._steps.values())

    def _has_both(self) -> bool:
        directories = self._job.directories
        return {"cpuacct", "memory"} <= directories.keys()

    def _open(self, name: str) -> _Step:
        step = name[len(_PREFIX) :]
        names = series("step_cpu_seconds_total", step=step), series("step_memory_usage_bytes", step=step)
        directories = self._job.directories
        if "cpuacct" in directories:
            files = open_all((f"{directories['cpuacct']}/{name}", "cpuacct.usage"),
                             (f"{directories.get('memory')}/{name}", "memory.usage_in_bytes"))  # fmt: skip
        else:
            at = f"{directories.get(UNIFIED)}/{name}"
            files = open_all((at, "cpu.stat"), (at, "memory.current"))
        return _Step(files[0], files[1], *names)

    def _drop(self, name: str) -> None:
        step = self._steps.pop(name)
        close_all(step.cpu, step.memory)


def steps(directories: Sequence[str]) -> list[str]:
    """Return the steps among the directories of a job, of which the first is its own; at most `MOST`."""
    home = f"{directories[0]}/" if directories else ""
    inside = (path[len(home) :] for path in directories if path.startswith(home))
    return [name for name in inside if name.startswith(_PREFIX) and "/" not in name][:MOST]


def _read(step: _Step, values: Values) -> None:
    if step.cpu is not None:
        text = os.pread(step.cpu, _BYTES, 0)
        spent = int(text) / _NANO if text[:1].isdigit() else stat_v2(text).get("cpu_seconds_total")
        if spent is not None:
            values[step.cpu_series] = spent
    if step.memory is not None:
        values[step.memory_series] = int(os.pread(step.memory, _BYTES, 0))
