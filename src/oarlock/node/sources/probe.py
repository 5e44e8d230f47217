"""What a source of measurements is: opened once a job, asked once a sample, closed at the job's end.

A reading is called by its metric's name alone, or with labels as in `core_cpu_seconds_total{core="3"}`. What each
metric means stands in `measure/metrics.toml`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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


STALE_AFTER = 3
"""Periods after which an old answer is no answer any more."""


class BackgroundSource:
    """Measure periodically in a thread of its own; samples use the latest answer and never wait.

    A failure is raised in the sampler once, and the measurement tried again at the next period.
    """

    def __init__(self, name: str, ask: Callable[[], Values], period: float) -> None:
        import threading  # not above: supervisors load this module for the final counters and start no thread

        self.name = name
        self._ask, self._period = ask, period
        self._answer: tuple[float, Values] | None = None
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"measure-{name}", daemon=True)
        self._thread.start()

    def read(self, values: Values) -> None:
        """Add the latest answer to `values`, if it is not too old."""
        failure, self._failure = self._failure, None
        answer = self._answer
        if answer and time.monotonic() - answer[0] < self._period * STALE_AFTER:
            values.update(answer[1])
        # After the values: a failure now does not make the last answer wrong.
        if failure:
            raise failure

    def close(self) -> None:
        """End the thread; a question under way is not waited for."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._answer = (time.monotonic(), self._ask())
            except Exception as error:  # noqa: BLE001  the thread must go on; `read` raises it in the sampler
                self._failure = error
            self._over.wait(self._period)


def series(name: str, /, **labels: str) -> str:
    """Return the key of a reading. Labels keep the order in which they are passed."""
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def split(key: str) -> tuple[str, str]:
    """Cut a series into its name and its labels as they are written, without braces."""
    name, _, inside = key.partition("{")
    return name, inside[:-1]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
