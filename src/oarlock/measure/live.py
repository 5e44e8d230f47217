"""What nodes of ours measure now: the last sample of each, kept in memory, told as a page and job by job."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from oarlock.measure import names
from oarlock.measure.batch import JOB, Batch, Subject
from oarlock.measure.exposition import Exposition, together
from oarlock.measure.naming import Naming
from oarlock.measure.owners import Facts, Owner, user_number
from oarlock.node.sampling import Unreadable, unpacked
from oarlock.node.sources.metrics import split

log = logging.getLogger(__name__)

MANAGER = "oarlock"
FAMILIES = ("oarlock", "slurm")
_FRESH_PERIODS, _FRESH_SECONDS = 5, 10
_MOST_SERIES = 200_000
"""Values of one node that are kept; users choose the names of executables, so a node may send any number."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a job used so far, over all its nodes. Absent is not zero."""

    at: float
    nodes: tuple[str, ...]
    cpu_seconds: float | None = None
    memory_bytes: float | None = None
    memory_peak_bytes: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None


_SUMS = {
    "cpu_seconds": "cpu_seconds_total",
    "memory_bytes": "memory_usage_bytes",
    "memory_peak_bytes": "memory_peak_bytes",
    "read_bytes": "block_read_bytes_total",
    "written_bytes": "block_written_bytes_total",
}


@dataclass(slots=True)
class _Latest:
    """The last sample of a node. `at` is when it arrived, by our clock."""

    at: float
    node: Mapping[str, float]
    jobs: dict[int, Mapping[str, float]] = field(default_factory=dict)


class Live:
    """The last sample of every node. All but `page` is for one thread."""

    def __init__(self, period: float, cluster: str = "", families: Iterable[str] = FAMILIES) -> None:
        self._oldest = period * _FRESH_PERIODS + _FRESH_SECONDS
        self._cluster = cluster
        self._naming = Naming(names.chosen(families))
        self._latest: dict[str, _Latest] = {}
        self._facts: dict[int, Facts] = {}
        self._pages: dict[str, Exposition] = {}
        self._writing = threading.Lock()
        self.refused: Counter[str] = Counter()

    def take(self, node: str, data: bytes, expected: Set[int], *, at: float) -> None:
        """Keep what a node sent; what it says of jobs that are not on it is dropped and counted."""
        try:
            sample = unpacked(data)
        except Unreadable as error:
            self._refuse(node, str(error))
            return
        if sum(map(len, sample.jobs.values())) + len(sample.node) > _MOST_SERIES:
            self._refuse(node, "there are too many values")
            return
        strangers = sample.jobs.keys() - expected
        self.refused[node] += len(strangers)
        jobs = {job: values for job, values in sample.jobs.items() if job not in strangers}
        self._latest[node] = _Latest(at, sample.node, dict[int, Mapping[str, float]](jobs))

    def _refuse(self, node: str, why: str) -> None:
        self.refused[node] += 1
        log.warning("a sample was refused", extra={"node": node, "why": why})

    def ended(self, node: str, job: int) -> None:
        """Forget what was measured of a job on a node where it is over."""
        if node in self._latest:
            self._latest[node].jobs.pop(job, None)

    def usage(self, job: int) -> Usage | None:
        """Give what a job used so far; None when no node told of it yet."""
        found = {name: latest for name, latest in self._latest.items() if job in latest.jobs}
        if not found:
            return None
        sums = {called: _sum(metric, [latest.jobs[job] for latest in found.values()])
                for called, metric in _SUMS.items()}  # fmt: skip
        return Usage(max(latest.at for latest in found.values()), tuple(sorted(found)), **sums)

    def unknown(self) -> set[int]:
        """Give the jobs of which it is not known whose they are."""
        return {job for latest in self._latest.values() for job in latest.jobs} - self._facts.keys()

    def learn(self, facts: Mapping[int, Facts]) -> None:
        """Remember whose jobs are, for as long as they are measured."""
        self._facts |= facts
        here = {job for latest in self._latest.values() for job in latest.jobs}
        self._facts = {job: known for job, known in self._facts.items() if job in here}

    def batches(self, *, now: float) -> list[Batch]:
        """Give what is known now, node by node; what is too old is forgotten. `page` makes text of it."""
        for name in [name for name, latest in self._latest.items() if now - latest.at > self._oldest]:
            del self._latest[name]
        return [self._batch(name, latest) for name, latest in sorted(self._latest.items())]

    def _batch(self, name: str, latest: _Latest) -> Batch:
        subjects = [
            Subject((MANAGER, name, str(job)), JOB, _owner(job, self._facts[job]), values)
            for job, values in latest.jobs.items()
            if job in self._facts
        ]
        return Batch(latest.at, name, subjects, {**latest.node, "jobs": len(latest.jobs)})

    def page(self, batches: Iterable[Batch]) -> bytes:
        """Write the page of these batches. May run in any thread; one at a time works on it."""
        with self._writing:
            present = {batch.host: batch for batch in batches}
            self._pages = {host: self._pages.get(host) or self._new_page(host) for host in present}
            for host, batch in present.items():
                self._pages[host].take(batch)
            return b"".join(together(self._pages.values()))

    def _new_page(self, host: str) -> Exposition:
        return Exposition(self._naming, {"instance": host, **({"cluster": self._cluster} if self._cluster else {})})


def _owner(job: int, facts: Facts) -> Owner:
    return Owner(str(job), facts.user, user_number(facts.user), facts.account, "", facts.name, MANAGER)


def _sum(metric: str, readings: Iterable[Mapping[str, float]]) -> float | None:
    """Add a metric up over nodes and devices."""
    found = [value for values in readings for series, value in values.items() if split(series)[0] == metric]
    return sum(found) if found else None
