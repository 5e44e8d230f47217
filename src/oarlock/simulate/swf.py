"""The Standard Workload Format of the Parallel Workloads Archive: a line a job, eighteen numbers; `;` begins a comment.

Alea's form adds a list of nodes, a queue and a request (`2:ppn=8:x86_64`), which then says what the job asks for.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from oarlock.simulate.trace import Trace, TraceJob, by_submission, flat, parts

_FIELDS = 18
_ALEA_FIELDS = 21
_PPN = re.compile(r"([0-9]+):ppn=([0-9]+)")
_MACHINE = re.compile(r";\s*Max(?:Procs|Nodes):\s*([0-9]+)")


class _Skipped(Exception):
    """A line that no job can be made of; the text is the reason."""


class _RequestedNodes(NamedTuple):
    nodes: int
    cores: int


def read(lines: Iterable[str], name: str) -> Trace:
    """Read the lines of a file. What is no job (too short, never ran, no processors) is skipped and counted."""
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    machine: int | None = None
    for line in lines:
        if line.startswith(";"):
            if match := _MACHINE.match(line):
                machine = max(machine or 0, int(match[1]))
            continue
        fields = line.split()
        if not fields:
            continue
        try:
            jobs.append(_job(fields))
        except _Skipped as reason:
            skipped[str(reason)] += 1
    return Trace(name, by_submission(jobs), machine, None, dict(skipped))


def _job(fields: list[str]) -> TraceJob:
    """Make a job of a line. Asked-for values are preferred; used ones stand in where they are missing (-1)."""
    if len(fields) < _FIELDS:
        raise _Skipped("short line")
    try:
        number, submitted, waited, run, used, _, _, requested, walltime = _numbers(fields[:9])
    except ValueError:
        raise _Skipped("not a number") from None
    processors = requested if requested > 0 else used
    if processors <= 0:
        raise _Skipped("no processors")
    if run < 0:
        raise _Skipped("never ran")
    walltime = walltime if walltime > 0 else max(run, 1)
    grown = _requested_nodes(fields)
    return TraceJob(
        number=number,
        submitted=submitted,
        run=min(run, walltime),  # whoever ran over was ended; we count what was asked
        walltime=walltime,
        shape=parts(*grown) if grown else flat(processors),
        processors=grown.nodes * grown.cores if grown else processors,
        user=fields[11],
        project=fields[12],
        waited=waited if waited >= 0 else None,
    )


def _numbers(fields: list[str]) -> list[int]:
    """Read whole numbers; a few traces have fractions of seconds."""
    try:
        return [int(field) for field in fields]
    except ValueError:
        return [int(float(field)) for field in fields]


def _requested_nodes(fields: list[str]) -> _RequestedNodes | None:
    match = _PPN.match(fields[_ALEA_FIELDS - 1]) if len(fields) >= _ALEA_FIELDS else None
    return _RequestedNodes(int(match[1]), int(match[2])) if match else None
