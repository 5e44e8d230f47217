"""The final counters of a job: what its cgroups counted until its end.

They have the names, units and parsers of the samples. Less is read, since it is read once at the end of every job.
"""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.node.sources.files import Values
from oarlock.node.sources.job import blockio, cpu, memory, tasks


def read_counters(directories: Mapping[str, str]) -> Values:
    """Read the counters of a job from its directory for each controller; what cannot be read is absent."""
    values: Values = {}
    for source in (cpu, memory, tasks, blockio):
        try:
            values.update(source.read_final(directories))
        except (OSError, ValueError):
            continue
    return values
