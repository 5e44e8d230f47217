"""What a source of measurements is: opened once a job, asked once a sample, closed at the job's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from oarlock.node.sources.files import Values


class ProbedJob(Protocol):
    """The job to measure, as discovery knows it. It is live: directories may be added while the job runs."""

    @property
    def directories(self) -> Mapping[str, str]:
        """Its directory for each controller; `unified` is version 2."""

    @property
    def process_directories(self) -> Sequence[str]:
        """The directories whose `cgroup.procs` hold its processes, its own first; another list when they change."""


class Probe:
    """One source's open files of one job.

    `beat` reads the cheapest sign of life and keeps it for `read`. While all signs of a job stay the same, the job
    got no CPU time and `read` is not called: what was read before is still true. `beats` says there is such a sign.
    `costly` says that `read_costly` has values of its own, which are read less often.
    """

    __slots__ = ()
    beats = False
    costly = False

    def beat(self) -> bytes:
        """Read what changes whenever something happened."""
        return b""

    def read(self, values: Values, *, thorough: bool) -> None:
        """Put the job's values into `values`. What seldom changes is read again only when `thorough`.

        OSError of a removed cgroup passes through: it is how the end of a job is noticed.
        """
        raise NotImplementedError

    def read_costly(self, values: Values) -> None:
        """Put into `values` what costs most to read."""

    def close(self) -> None:
        """Close the files."""


class JobSource(Protocol):
    """Makes probes. It is asked again when one of its `controllers` appears after the job did."""

    name: str
    controllers: frozenset[str]

    def open(self, job: ProbedJob) -> Probe | None:
        """Open a job's files; None when this job has nothing that this source could read."""


class NodeSource(Protocol):
    """Measures the node as a whole."""

    name: str

    def read(self, values: Values) -> None:
        """Put the node's values into `values`."""

    def close(self) -> None:
        """Release files and threads."""
