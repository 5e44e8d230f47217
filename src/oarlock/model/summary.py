"""What is kept of a job's measurements when the curves are gone: the form of a summary's `detail`, and its totals.

A summary has two sources: what nodes report when an attempt is over (`attempts`: the kernel's last counters), and what
samples said while it ran (`measured`). Both are kept by attempt and node, so that a second attempt never replaces the
first. Absent is not zero. `docs/reference/summaries.md` explains every key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from oarlock.model.software import SoftwareUse

Counters = Mapping[str, float]
Found = TypeVar("Found")

_START_SECONDS = 0.1  # of CPU time that may pass before the clock of an attempt runs
_EARLIER = "0"
"""The attempt number of counters that were stored before attempts were distinguished."""


class GpuMeasured(Struct, omit_defaults=True, kw_only=True):
    """A GPU that a job had on a node. Ratios are parts of the time in which the GPU computed.

    Idle is below 1 %. `idle_seconds` is the longest idle stretch, `idle_after_work_seconds` the longest one after the
    GPU had worked, `idle_now_seconds` the one that the last sample is in.
    """

    model: str = ""
    seconds: float = 0.0
    busy_mean_ratio: float | None = None
    busy_most_ratio: float | None = None
    busy_least_10min_ratio: float | None = None
    idle_seconds: float = 0.0
    idle_after_work_seconds: float = 0.0
    idle_now_seconds: float = 0.0
    memory_mean_bytes: float | None = None
    memory_most_bytes: float | None = None
    memory_total_bytes: float | None = None


class NodeMeasured(Struct, omit_defaults=True, kw_only=True):
    """What samples said of one attempt of a job on one node.

    `since` and `until` are the first and the last sample (epoch seconds), `seconds` the time between samples without
    holes. Counters count from the beginning of the attempt. `cores` is held, `…_cores` are cores busy.
    """

    since: float = 0.0
    until: float = 0.0
    samples: int = 0
    seconds: float = 0.0
    cores: float | None = None
    node_cores: int | None = None
    cpu_seconds: float | None = None
    cpu_most_cores: float | None = None
    cpu_least_10min_cores: float | None = None
    cpu_idle_seconds: float = 0.0
    cpu_idle_now_seconds: float = 0.0
    core_least_seconds: float | None = None
    core_mean_seconds: float | None = None
    core_most_seconds: float | None = None
    memory_asked_bytes: float | None = None
    memory_own_mean_bytes: float | None = None
    memory_own_most_bytes: float | None = None
    memory_cache_mean_bytes: float | None = None
    memory_cache_most_bytes: float | None = None
    memory_peak_bytes: float | None = None
    memory_near_samples: int | None = None
    memory_limit_hits: float | None = None
    oom_kills: float | None = None
    runnable_mean_threads: float | None = None
    runnable_most_threads: float | None = None
    processes_most: float | None = None
    threads_most: dict[str, int] = {}
    executable_cpu_seconds: dict[str, float] = {}
    open_files_mean: float | None = None
    open_files_most: float | None = None
    scratch_samples: int | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    calls: float | None = None
    calls_most_10min_per_second: float | None = None
    network_received_bytes: float | None = None
    network_sent_bytes: float | None = None
    gpus: dict[str, GpuMeasured] = {}


class DayUsage(Struct, kw_only=True):
    """What a job, or a group of jobs, held and used on a day (UTC). Times are in seconds of a core, byte or GPU."""

    jobs: int = 0
    core_seconds: float = 0.0
    core_busy_seconds: float = 0.0
    memory_asked_byte_seconds: float = 0.0
    memory_used_byte_seconds: float = 0.0
    gpu_seconds: float = 0.0
    gpu_busy_seconds: float = 0.0
    energy_joules: float = 0.0


class MeasuredJob(Struct, kw_only=True):
    """What samples said of a job: by attempt and node, and what of it belongs to which day (epoch seconds, UTC)."""

    nodes: dict[str, dict[str, NodeMeasured]] = {}
    days: dict[int, DayUsage] = {}


class EnergyOfJob(Struct, omit_defaults=True, kw_only=True):
    """How the energy of a job was measured, and for how many seconds of its nodes."""

    methods: tuple[str, ...] = ()
    seconds: float = 0.0


class SummaryDetail(Struct, omit_defaults=True, kw_only=True):
    """The JSON of `job_summaries.detail`. `days` and `software` are what the sums by day have of this job."""

    attempts: dict[str, dict[str, dict[str, float]]] = {}
    measured: dict[str, dict[str, NodeMeasured]] = {}
    days: dict[int, DayUsage] = {}
    energy: EnergyOfJob | None = None
    nodes: dict[str, dict[str, float]] = {}
    software: list[SoftwareUse] = []


class UsageTotals(Struct, frozen=True, kw_only=True):
    """What all attempts of a job used. Absent is not zero.

    Times, traffic and calls are added up over attempts and nodes. Memory is added up over the nodes of an attempt, and
    is that of the attempt that had most. What is held, and means, are those of the last attempt that tells them.
    `cpu_seconds_offered` is what the CPUs of all attempts could have given in the time that they ran. `coverage` is the
    part of that time that samples stand for. `memory_near_ratio` is the part of samples with own memory above 95 % of
    the limit. `cpu_most_cores` is the most between two samples, `cpu_least_10min_ratio` that of the node whose cores
    had least to do for ten minutes. `core_…_ratio` are the least, mean and most busy core of all nodes, where the
    kernel counts by core.
    """

    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    cpus: int | None = None
    cpu_seconds: float | None = None
    cpu_seconds_offered: float | None = None
    cpu_most_cores: float | None = None
    cpu_least_10min_ratio: float | None = None
    core_least_ratio: float | None = None
    core_mean_ratio: float | None = None
    core_most_ratio: float | None = None
    memory_peak_bytes: int | None = None
    memory_own_peak_bytes: int | None = None
    memory_own_mean_bytes: int | None = None
    memory_cache_mean_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_near_ratio: float | None = None
    memory_limit_hits: int | None = None
    oom_kills: int | None = None
    runnable_mean_threads: float | None = None
    processes_most: int | None = None
    threads_most: dict[str, int] = {}
    open_files_mean: float | None = None
    open_files_most: int | None = None
    scratch_used: bool | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    calls: int | None = None
    calls_most_10min_per_second: float | None = None
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    gpus: int | None = None
    gpu_seconds: float | None = None
    gpu_busy_seconds: float | None = None
    samples: int = 0
    coverage: float | None = None


_decoder = msgspec.json.Decoder(SummaryDetail)
_encoder = msgspec.json.Encoder()


def parse_detail(text: str) -> SummaryDetail:
    """Parse the `detail` of a summary."""
    detail = _decoder.decode(text)
    if detail.nodes:
        detail.attempts = {_EARLIER: detail.nodes, **detail.attempts}
        detail.nodes = {}
    return detail


def write_detail(detail: SummaryDetail) -> str:
    """Write the `detail` of a summary."""
    return _encoder.encode(detail).decode()


def merged_counters(detail: SummaryDetail, *, ran: float | None = None) -> dict[str, dict[str, dict[str, float]]]:
    """Return counters by attempt and node: reported ones, and those of samples where these saw more, or alone.

    `ran` is how long the last attempt has run so far, for nodes that have not reported its end.
    """
    merged = {attempt: {node: dict(row) for node, row in nodes.items()} for attempt, nodes in detail.attempts.items()}
    for attempt, measured_nodes in detail.measured.items():
        nodes = merged.setdefault(attempt, {})
        for node, measured in measured_nodes.items():
            row = nodes.setdefault(node, {})
            for name, field in _COUNTERS.items():
                value = getattr(measured, field)
                if value is not None and value > row.get(name, -1.0):
                    row[name] = value
    if merged and ran is not None:
        for row in merged[_last(merged)].values():
            row.setdefault("seconds", ran)
    return merged


def least_start(start: float, measured: Mapping[str, Mapping[str, NodeMeasured]]) -> float:
    """Return when a job began at the latest, of which nobody told: its CPUs cannot have given more than all their time.

    An agent that is started later than a job finds counters that have gone on for long.
    """
    nodes = [node for by_node in measured.values() for node in by_node.values()]
    return min(
        [start, *(node.until - node.cpu_seconds / node.cores for node in nodes if node.cores and node.cpu_seconds)]
    )


_COUNTERS = {
    "cpus": "cores",
    "cpu_seconds_total": "cpu_seconds",
    "memory_peak_bytes": "memory_peak_bytes",
    "memory_own_peak_bytes": "memory_own_most_bytes",
    "memory_limit_bytes": "memory_asked_bytes",
    "read_bytes_total": "read_bytes",
    "written_bytes_total": "written_bytes",
}
"""What reports and samples both know."""


def totals(detail: SummaryDetail, *, ran: float | None = None) -> UsageTotals:
    """Add up what the attempts of a job counted; what none of them counted stays absent."""
    return totals_of(detail, merged_counters(detail, ran=ran))


def totals_of(detail: SummaryDetail, by_attempt: Mapping[str, Mapping[str, Counters]]) -> UsageTotals:
    """Add up what the attempts of a job counted, whose counters are merged already."""
    if not by_attempt:
        return UsageTotals()
    everywhere = [row for nodes in by_attempt.values() for row in nodes.values()]
    last = list(by_attempt[_last(by_attempt)].values())
    seconds = [_highest(row.get("seconds") for row in nodes.values()) for nodes in by_attempt.values()]
    measured = [node for nodes in detail.measured.values() for node in nodes.values()]
    means = list(detail.measured[_last(detail.measured)].values()) if detail.measured else []
    gpus = [gpu for node in measured for gpu in node.gpus.values()]
    return UsageTotals(
        nodes=tuple(sorted({node for nodes in by_attempt.values() for node in nodes})),
        seconds=None if None in seconds else sum(value or 0 for value in seconds),
        cpus=_whole(_sum("cpus", last, all_of_them=True)),
        cpu_seconds=_sum("cpu_seconds_total", everywhere),
        cpu_seconds_offered=_offered(everywhere),
        cpu_most_cores=_added(means, "cpu_most_cores"),
        cpu_least_10min_ratio=_least_use(means),
        memory_peak_bytes=_peak("memory_peak_bytes", by_attempt),
        memory_own_peak_bytes=_peak("memory_own_peak_bytes", by_attempt),
        memory_limit_bytes=_whole(_sum("memory_limit_bytes", last, all_of_them=True)),
        memory_own_mean_bytes=_whole(_added(means, "memory_own_mean_bytes")),
        memory_cache_mean_bytes=_whole(_added(means, "memory_cache_mean_bytes")),
        memory_near_ratio=_near(measured),
        memory_limit_hits=_whole(_added(measured, "memory_limit_hits")),
        oom_kills=_whole(_added(measured, "oom_kills")),
        runnable_mean_threads=_added(means, "runnable_mean_threads"),
        processes_most=_whole(_added(means, "processes_most")),
        threads_most=_most_threads(measured),
        open_files_mean=_added(means, "open_files_mean"),
        open_files_most=_whole(_added(means, "open_files_most")),
        scratch_used=_scratch(measured),
        read_bytes=_traffic("read", everywhere),
        written_bytes=_traffic("written", everywhere),
        calls=_whole(_added(measured, "calls")),
        calls_most_10min_per_second=_added(means, "calls_most_10min_per_second"),
        network_received_bytes=_whole(_added(measured, "network_received_bytes")),
        network_sent_bytes=_whole(_added(measured, "network_sent_bytes")),
        gpus=sum(len(node.gpus) for node in means) or None,
        gpu_seconds=sum(gpu.seconds for gpu in gpus) if gpus else None,
        gpu_busy_seconds=_busy_seconds(gpus),
        samples=sum(node.samples for node in measured),
        coverage=_coverage(measured, everywhere),
        **_core_ratios(detail, by_attempt),
    )


def _last(by_attempt: Mapping[str, Found]) -> str:
    return max(by_attempt, key=int)


def _peak(name: str, by_attempt: Mapping[str, Mapping[str, Counters]]) -> int | None:
    """Return the sum over the nodes of the attempt that had most."""
    return _whole(_highest([_sum(name, nodes.values()) for nodes in by_attempt.values()]))


def _sum(name: str, counters: Iterable[Counters], *, all_of_them: bool = False) -> float | None:
    values = [row.get(name) for row in counters]
    present = [value for value in values if value is not None]
    return None if not present or (all_of_them and len(present) < len(values)) else sum(present)


def _added(nodes: Iterable[NodeMeasured], name: str) -> float | None:
    """Add up one field of nodes. A plain loop: thousands of jobs are summarised at once."""
    total: float | None = None
    for node in nodes:
        value = getattr(node, name)
        if value is not None:
            total = value if total is None else total + value
    return total


def _traffic(direction: str, counters: Iterable[Counters]) -> int | None:
    """Add up what was read or written. Processes count a write at once and devices later; both may miss something."""
    names = f"{direction}_bytes_total", f"block_{direction}_bytes_total"
    values = [highest for row in counters if (highest := _highest(map(row.get, names))) is not None]
    return int(sum(values)) if values else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max([value for value in values if value is not None], default=None)


def _offered(counters: Sequence[Counters]) -> float | None:
    if not all("cpus" in row and "seconds" in row for row in counters):
        return None
    return sum(offered_by(row) for row in counters)


def offered_by(row: Counters) -> float:
    """Return the CPU seconds that the CPUs of a node could have given (`cpus` in `seconds`).

    The kernel counts from the fork, and the clock runs from the command: a job of a few milliseconds may have used more
    than its time. One that has more CPUs than it asked for, since nothing binds it, uses more for longer than that.
    """
    offered, used = row["cpus"] * row["seconds"], row.get("cpu_seconds_total", 0.0)
    return used if offered < used <= offered + _START_SECONDS * row["cpus"] else offered


def _least_use(measured: Iterable[NodeMeasured]) -> float | None:
    """Return how busy the cores of a node were in their least busy ten minutes, on the node where that is least."""
    used = [
        node.cpu_least_10min_cores / node.cores
        for node in measured
        if node.cores and node.cpu_least_10min_cores is not None
    ]
    return min(used, default=None)


def _busy_seconds(gpus: Iterable[GpuMeasured]) -> float | None:
    computed = [gpu.busy_mean_ratio * gpu.seconds for gpu in gpus if gpu.busy_mean_ratio is not None]
    return sum(computed) if computed else None


def _near(measured: Iterable[NodeMeasured]) -> float | None:
    """Return the part of samples near the limit, on the node where it is largest."""
    parts = [node.memory_near_samples / node.samples for node in measured if node.memory_near_samples is not None]
    return max(parts, default=None)


def _most_threads(measured: Iterable[NodeMeasured]) -> dict[str, int]:
    """Return the most threads of each executable on one node."""
    most: dict[str, int] = {}
    for node in measured:
        for exe, count in node.threads_most.items():
            most[exe] = max(count, most.get(exe, 0))
    return most


def _scratch(measured: Iterable[NodeMeasured]) -> bool | None:
    counts = [node.scratch_samples for node in measured if node.scratch_samples is not None]
    return any(counts) if counts else None


def _core_ratios(detail: SummaryDetail, by_attempt: Mapping[str, Mapping[str, Counters]]) -> dict[str, float | None]:
    """Return how busy the least busy core was, all on average, and the busiest, in the last attempt."""
    if not detail.measured:
        return {}
    attempt = _last(detail.measured)
    ratios = []
    for name, node in detail.measured[attempt].items():
        seconds = by_attempt[attempt][name].get("seconds") or node.until - node.since
        if node.core_least_seconds is None or seconds <= 0:
            return {}
        cores = node.core_least_seconds, node.core_mean_seconds or 0.0, node.core_most_seconds or 0.0
        ratios.append((cores[0] / seconds, cores[1] / seconds, cores[2] / seconds, node.cores or 1.0))
    whole = sum(ratio[3] for ratio in ratios)
    return {
        "core_least_ratio": min(ratio[0] for ratio in ratios),
        "core_mean_ratio": sum(ratio[1] * ratio[3] for ratio in ratios) / whole,
        "core_most_ratio": max(ratio[2] for ratio in ratios),
    }


def _coverage(measured: Iterable[NodeMeasured], counters: Iterable[Counters]) -> float | None:
    """Return the part of the run time on all nodes that samples stand for, each for the time since the one before."""
    ran = _sum("seconds", counters)
    if not ran:
        return None
    stood_for = sum(node.seconds * node.samples / (node.samples - 1) for node in measured if node.samples > 1)
    return min(stood_for / ran, 1.0)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
