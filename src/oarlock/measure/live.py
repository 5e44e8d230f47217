"""The last sample of each Oarlock node, kept in memory: as a page of metrics and as the usage of each job."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from oarlock.measure import names
from oarlock.measure.batch import JOB, JobFacts, JobOwner, MeasuredSubject, SampleBatch, user_number
from oarlock.measure.exposition import Exposition, merge_pages
from oarlock.measure.naming import Naming
from oarlock.node.measure.stream import IDLE_SECONDS
from oarlock.node.measure.wire import SampleDecoder, UnreadableSample
from oarlock.node.sources.probe import split

log = logging.getLogger(__name__)

MANAGER = "oarlock"
FAMILIES = ("oarlock", "slurm")
_FRESH_PERIODS, _FRESH_SECONDS, _FRESH_IDLE = 5, 10, 2.5


@dataclass(frozen=True, slots=True)
class MeasuredUsage:
    """What a job used so far, over all its nodes. Absent is not zero.

    `memory_bytes` is all that is charged to the job. Its own part (anonymous and shared memory) is what it would miss;
    the cache is given back when somebody else needs the room. `memory_own_peak_bytes` is the most that samples saw.
    """

    at: float
    nodes: tuple[str, ...]
    cpus: float | None = None
    cpu_seconds: float | None = None
    memory_bytes: float | None = None
    memory_own_bytes: float | None = None
    memory_cache_bytes: float | None = None
    memory_own_peak_bytes: float | None = None
    memory_peak_bytes: float | None = None
    memory_limit_bytes: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None


_SUMS = {
    "cpu_seconds": "cpu_seconds_total",
    "memory_bytes": "memory_usage_bytes",
    "memory_peak_bytes": "memory_peak_bytes",
}
_BOUNDS = {"cpus": "cpus", "memory_limit_bytes": "memory_limit_bytes"}
"""What a job may use: known only if every node says it."""


@dataclass(slots=True)
class _Latest:
    """The last sample of a node. `at` is when it arrived, by our clock."""

    at: float
    node: Mapping[str, float]
    jobs: dict[int, Mapping[str, float]] = field(default_factory=dict)
    own_peaks: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLook:
    """What a node does: CPU seconds of its jobs so far and, once two samples were seen, CPUs that each has in use.

    Memory is in bytes, power in watts; None where it is not measured.
    """

    at: float
    cpu_seconds: Mapping[int, float]
    cpus_in_use: Mapping[int, float]
    memory_total: float | None
    memory_available: float | None
    watts: float | None


class LiveUsage:
    """The last sample of every node. All but `page` is for one thread."""

    def __init__(self, period: float, cluster: str = "", families: Iterable[str] = FAMILIES) -> None:
        self._period = period
        self._agents: dict[str, tuple[str, float]] = {}  # clusters and periods of nodes that send by themselves
        self._cluster = cluster
        self._naming = Naming(names.select_families(families))
        self._latest: dict[str, _Latest] = {}
        self._decoders: dict[str, SampleDecoder] = {}
        self._facts: dict[int, JobFacts] = {}
        self._pages: dict[str, Exposition] = {}
        self._writing = threading.Lock()
        self._looks: dict[str, NodeLook] = {}
        self.refused: Counter[str] = Counter()

    def describe_agent(self, node: str, cluster: str, period: float) -> None:
        """Note that a node's samples come from an agent: of which cluster, and every how many seconds."""
        self._agents[node] = cluster, period

    def take(self, node: str, data: bytes, expected: Set[int], *, at: float) -> bool:
        """Store a node's sample and return whether it could be read; values of jobs that are not there are dropped."""
        try:
            sample = self.decoder(node).decode(data)
        except UnreadableSample as error:
            self._refuse(node, str(error))
            return False
        unexpected = sample.jobs.keys() - expected
        self.refused[node] += len(unexpected)
        jobs = {job: values for job, values in sample.jobs.items() if job not in unexpected}
        before = self._latest[node].own_peaks if node in self._latest else {}
        peaks = _own_peaks(before, jobs, expected)
        self._latest[node] = _Latest(at, sample.node, dict[int, Mapping[str, float]](jobs), peaks)
        return True

    def take_tables(self, node: str, data: bytes) -> bool:
        """Learn the tables of names in a frame without values; return whether it could be read."""
        try:
            self.decoder(node).parse(data)
        except UnreadableSample as error:
            self._refuse(node, str(error))
            return False
        return True

    def decoder(self, node: str) -> SampleDecoder:
        """Return what reads the samples of a node; it holds the tables of names that the node has sent."""
        decoder = self._decoders.get(node)
        if decoder is None:
            decoder = self._decoders[node] = SampleDecoder()
        return decoder

    def _refuse(self, node: str, why: str) -> None:
        self.refused[node] += 1
        log.warning("a sample was refused", extra={"node": node, "why": why})

    def ended(self, node: str, job: int) -> dict[str, float]:
        """Forget a job on a node where it is over; return the counters that only samples know, those that are known."""
        latest = self._latest.get(node)
        values = None if latest is None else latest.jobs.pop(job, None)
        if latest is None or values is None:
            return {}
        counters = {name: values.get(name) for name in ("read_bytes_total", "written_bytes_total")}
        counters |= {
            name: _all_devices(name, values) for name in ("block_read_bytes_total", "block_written_bytes_total")
        }
        counters["memory_own_peak_bytes"] = latest.own_peaks.pop(job, None)
        return {name: value for name, value in counters.items() if value is not None}

    def usage(self, job: int) -> MeasuredUsage | None:
        """Return what a job used so far; None when no node has reported it yet."""
        samples = {name: latest for name, latest in self._latest.items() if job in latest.jobs}
        if not samples:
            return None
        readings = [latest.jobs[job] for latest in samples.values()]
        sums = {field: _sum([values.get(metric) for values in readings]) for field, metric in _SUMS.items()}
        bounds = {field: [values.get(metric) for values in readings] for field, metric in _BOUNDS.items()}
        return MeasuredUsage(
            max(latest.at for latest in samples.values()),
            tuple(sorted(samples)),
            memory_own_bytes=_sum([own_memory(values) for values in readings]),
            memory_cache_bytes=_sum([_cache(values) for values in readings]),
            memory_own_peak_bytes=_sum([latest.own_peaks.get(job) for latest in samples.values()]),
            read_bytes=_sum([_traffic("read", values) for values in readings]),
            written_bytes=_sum([_traffic("written", values) for values in readings]),
            **sums,
            **{field: None if None in values else _sum(values) for field, values in bounds.items()},
        )

    def look(self, *, now: float) -> dict[str, NodeLook]:
        """Return what nodes do now. CPUs in use are known from the second look on: between two samples.

        What the last look saw is kept for that; a server that nobody looks at keeps nothing.
        """
        looks: dict[str, NodeLook] = {}
        for name, latest in self._latest.items():
            if now - latest.at > self._oldest(name, latest):
                continue
            counters = {
                job: values["cpu_seconds_total"] for job, values in latest.jobs.items() if "cpu_seconds_total" in values
            }
            looks[name] = _next_look(self._looks.get(name), latest, counters)
        self._looks = looks
        return looks

    def readings(self, job: int) -> list[tuple[str, float, Mapping[str, float]]]:
        """Return the last sample of a job on each of its nodes, with when it arrived."""
        present = [(name, latest) for name, latest in self._latest.items() if job in latest.jobs]
        return [(name, latest.at, _with_traffic(latest.jobs[job])) for name, latest in present]

    def unknown(self) -> set[int]:
        """Return the jobs whose owner is not known."""
        return {job for latest in self._latest.values() for job in latest.jobs} - self._facts.keys()

    def learn(self, facts: Mapping[int, JobFacts]) -> None:
        """Remember the owners of jobs, for as long as they are measured."""
        self._facts |= facts
        here = {job for latest in self._latest.values() for job in latest.jobs}
        self._facts = {job: known_facts for job, known_facts in self._facts.items() if job in here}

    def batches(self, *, now: float) -> list[SampleBatch]:
        """Return the current samples, node by node; old ones are forgotten. `page` makes text of them."""
        for name in [name for name, latest in self._latest.items() if now - latest.at > self._oldest(name, latest)]:
            del self._latest[name]
        return [self._batch(name, latest) for name, latest in sorted(self._latest.items())]

    def _oldest(self, node: str, latest: _Latest) -> float:
        """Return for how many seconds a sample is the present one; nodes without jobs send them less often."""
        _, period = self._agents.get(node, ("", self._period))
        oldest = period * _FRESH_PERIODS + _FRESH_SECONDS
        return oldest if latest.jobs or node in self._agents else max(oldest, _FRESH_IDLE * IDLE_SECONDS)

    def _batch(self, name: str, latest: _Latest) -> SampleBatch:
        subjects = [
            MeasuredSubject((MANAGER, name, str(job)), JOB, describe_job(job, self._facts[job]), values)
            for job, values in latest.jobs.items()
            if job in self._facts
        ]
        return SampleBatch(latest.at, name, subjects, {**latest.node, "jobs": len(latest.jobs)})

    def page(self, batches: Iterable[SampleBatch]) -> bytes:
        """Write the page of these batches. May run in any thread; one at a time works on it."""
        with self._writing:
            present = {batch.host: batch for batch in batches}
            self._pages = {host: self._pages.get(host) or self._new_page(host) for host in present}
            for host, batch in present.items():
                self._pages[host].take(batch)
            return b"".join(merge_pages(self._pages.values()))

    def _new_page(self, host: str) -> Exposition:
        cluster, _ = self._agents.get(host, (self._cluster, 0.0))
        return Exposition(self._naming, {"instance": host, **({"cluster": cluster} if cluster else {})})


def _next_look(before: NodeLook | None, latest: _Latest, counters: Mapping[int, float]) -> NodeLook:
    in_use: Mapping[int, float] = {}
    if before is not None and before.at == latest.at:
        in_use = before.cpus_in_use
    elif before is not None:
        seconds = latest.at - before.at
        in_use = {
            job: max(0.0, value - before.cpu_seconds[job]) / seconds
            for job, value in counters.items()
            if job in before.cpu_seconds
        }
    node = latest.node
    watts = _sum(value for series, value in node.items() if split(series)[0] == "power_watts")
    return NodeLook(
        latest.at,
        counters,
        in_use,
        node.get("meminfo_mem_total_bytes"),
        node.get("meminfo_mem_available_bytes"),
        watts,
    )


def describe_job(job: int, facts: JobFacts) -> JobOwner:
    """Return the owner of a job, as it stands in the labels of its series."""
    number, manager = facts.job or str(job), facts.manager or MANAGER
    return JobOwner(number, facts.user, user_number(facts.user), facts.account, "", facts.name, manager)


def own_memory(values: Mapping[str, float]) -> float | None:
    """Return the memory that a job holds itself: anonymous, and shared (which the kernel counts as cache)."""
    anonymous = values.get("memory_anonymous_bytes")
    return None if anonymous is None else anonymous + values.get("memory_shared_bytes", 0)


def _cache(values: Mapping[str, float]) -> float | None:
    cache = values.get("memory_cache_bytes")
    return None if cache is None else max(0.0, cache - values.get("memory_shared_bytes", 0))


def _traffic(direction: str, values: Mapping[str, float]) -> float | None:
    """Return what a job read from storage, or wrote to it.

    Processes are believed first: the kernel counts a write there when it is made. A block device sees it later, and
    on version 1 not at all for the job, so that a 0 there is not known to be one.
    """
    at_processes = values.get(f"{direction}_bytes_total")
    if at_processes is not None:
        return at_processes
    return _all_devices(f"block_{direction}_bytes_total", values)


def _with_traffic(values: Mapping[str, float]) -> Mapping[str, float]:
    """Return values with what the job read and wrote, wherever that is counted."""
    traffic = {f"{direction}_bytes_total": _traffic(direction, values) for direction in ("read", "written")}
    return {**values, **{name: value for name, value in traffic.items() if value is not None}}


def _all_devices(metric: str, values: Mapping[str, float]) -> float | None:
    return sum(value for series, value in values.items() if split(series)[0] == metric) or None


def _own_peaks(
    before: Mapping[int, float], jobs: Mapping[int, Mapping[str, float]], expected: Set[int]
) -> dict[int, float]:
    """Return the most own memory that samples of a node saw of each job that is still there."""
    own = {job: own_memory(values) for job, values in jobs.items()}
    peaks = {job: max(before.get(job, 0.0), own.get(job) or 0.0) for job in expected if job in before or own.get(job)}
    return {job: peak for job, peak in peaks.items() if peak}


def _sum(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None
