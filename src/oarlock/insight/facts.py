"""What findings can ask about a job: named numbers, computed from its summary and from what is known of it besides.

Absent is not zero: a fact that nobody measured is None, and a condition on it is neither true nor false.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from oarlock.model.summary import GpuMeasured, NodeMeasured, SummaryDetail, UsageTotals, totals

FactValue = int | float | str | None
Facts = Mapping[str, FactValue]

_MEMORY_MARGIN = 1.2  # what is advised above what was used
_CORES_MARGIN = 1.05
_TIME_MARGIN = 1.5
_TIME_STEP = 600
_MEMORY_STEP = 1 << 28
_UNUSED = 0.01  # a GPU that was never busier than this did nothing
_UNUSED_SECONDS = 600


class FactKind(StrEnum):
    """What a fact counts, which decides how it is written for people."""

    COUNT = "count"
    SHARE = "share"  # 1 is all of it
    SECONDS = "seconds"
    BYTES = "bytes"
    JOULES = "joules"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class FactDefinition:
    """The kind of a fact, and one sentence."""

    kind: FactKind
    says: str


class JobContext(Struct, frozen=True, kw_only=True):
    """What is known of a job beside its measurements.

    `run_seconds` is so far or in the end. `cores`, `gpus` and `nodes` are those it holds or held. `usual_energy_joules`
    is the median of at least five earlier runs of the same name. `node_memory_bytes` is the memory of each of its
    nodes, where it is known. Of jobs of other resource managers `walltime`, `cores` and `succeeded` may be unknown.
    """

    walltime: int | None
    run_seconds: float
    nodes: int
    cores: int | None
    gpus: int = 0
    is_over: bool = False
    succeeded: bool | None = False
    walltime_chosen: bool = True
    exceeded_walltime: bool = False
    node_events: int = 0
    short_jobs_that_day: int | None = None
    energy_joules: float | None = None
    usual_energy_joules: float | None = None
    node_memory_bytes: Mapping[str, float] = {}


def _count(says: str) -> FactDefinition:
    return FactDefinition(FactKind.COUNT, says)


def _share(says: str) -> FactDefinition:
    return FactDefinition(FactKind.SHARE, says)


def _seconds(says: str) -> FactDefinition:
    return FactDefinition(FactKind.SECONDS, says)


def _bytes(says: str) -> FactDefinition:
    return FactDefinition(FactKind.BYTES, says)


FACTS: Mapping[str, FactDefinition] = {
    "samples": _count("samples that were taken, over all nodes"),
    "is_over": _count("1 if the job is over, 0 while it runs"),
    "succeeded": _count("1 if it ended with exit code 0"),
    "run_seconds": _seconds("how long it ran so far"),
    "walltime_seconds": _seconds("the walltime that was asked for"),
    "walltime_chosen": _count("0 if the walltime is the default, since the request named none"),
    "walltime_share": _share("run time of walltime"),
    "walltime_exceeded": _count("1 if it was ended because its walltime was over"),
    "walltime_advised_seconds": _seconds("half as much again as it ran, in steps of ten minutes"),
    "nodes": _count("nodes held"),
    "nodes_needed": _count("nodes that would have had the cores it held; NULL where nodes differ"),
    "cores": _count("cores held"),
    "cores_busy": _count("cores busy on average"),
    "cores_advised": _count("cores that would have sufficed, with a little to spare, if fewer"),
    "cores_per_node": _count("cores held on each node, on average"),
    "node_share": _share("cores held of all cores of its nodes"),
    "cpu_share": _share("cores busy of cores held"),
    "cpu_idle_seconds": _seconds("the longest time in which a node of the job did nothing"),
    "cpu_steadiness": _share("mean use of CPU of the highest, on the node where that is lowest"),
    "core_evenness": _share("use of the least busy core of that of the mean core, where cores are counted"),
    "runnable_per_core": _share("threads that could run, on average, a core held"),
    "threads_exe": FactDefinition(FactKind.TEXT, "the executable that had most threads a core"),
    "threads_most": _count("the threads that it had on one node"),
    "threads_per_core": _count("these threads a core held on that node"),
    "memory_asked_bytes": _bytes("memory that the job may use"),
    "memory_own_bytes": _bytes("the most own memory (anonymous and shared) at one time"),
    "memory_share": _share("the most own memory of the memory asked for"),
    "memory_above_share": _share("memory asked for of the node's memory for as many cores"),
    "memory_advised_bytes": _bytes("a fifth more than was used"),
    "memory_near_share": _share("samples with own memory above 95 % of the limit"),
    "oom_kills": _count("processes that the kernel ended for want of memory"),
    "gpus": _count("GPUs held"),
    "gpu_share": _share("mean use of the GPUs"),
    "gpus_unused": _count("GPUs that were never busy in ten minutes or more"),
    "gpus_per_node": _count("the most GPUs held on one node"),
    "gpu_idle_seconds": _seconds("the longest time in which all GPUs that had worked were idle"),
    "gpu_idle_now_seconds": _seconds("how long all GPUs have been idle until now"),
    "open_files": _count("the most files open at one time"),
    "bytes_per_open_file": _bytes("bytes read and written a file that was open"),
    "moved_bytes": _bytes("bytes read and written"),
    "scratch_used": _count("1 if files below the scratch directories were seen open"),
    "calls_per_second": _count("the most calls for reading and writing a second, over ten minutes"),
    "short_jobs": _count("jobs of its owner that ran less than five minutes on the day it began"),
    "node_events": _count("events of its nodes from an hour before it began to an hour after its end"),
    "energy_joules": FactDefinition(FactKind.JOULES, "energy used"),
    "energy_of_usual": _share("energy of the median of at least five earlier runs of the same name"),
}
"""Every name that a condition or a text of `findings.toml` may use."""


def facts_of(context: JobContext, detail: SummaryDetail) -> dict[str, FactValue]:
    """Compute every fact of a job."""
    used = totals(detail, ran=context.run_seconds)
    nodes = _last_attempt(detail)
    facts: dict[str, FactValue] = dict.fromkeys(FACTS)
    facts |= _run(context, used)
    facts |= _cpu(context, used, nodes)
    facts |= _memory(context, used, nodes)
    facts |= _gpus(context, nodes)
    facts |= _files(used)
    return facts


def _last_attempt(detail: SummaryDetail) -> Mapping[str, NodeMeasured]:
    return detail.measured[max(detail.measured, key=int)] if detail.measured else {}


def _fewer_cores(busy: float | None, cores: int | None) -> int | None:
    """Return how many cores would have sufficed, with a little to spare; None unless these are fewer than it had."""
    advised = None if busy is None else max(1, math.ceil(busy * _CORES_MARGIN))
    return None if advised is None or cores is None or advised >= cores else advised


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _run(context: JobContext, used: UsageTotals) -> dict[str, FactValue]:
    steps = math.ceil(context.run_seconds * _TIME_MARGIN / _TIME_STEP)
    return {
        "samples": used.samples,
        "is_over": int(context.is_over),
        "succeeded": None if context.succeeded is None else int(context.succeeded),
        "run_seconds": context.run_seconds,
        "walltime_seconds": context.walltime,
        "walltime_chosen": int(context.walltime_chosen),
        "walltime_share": _ratio(context.run_seconds, context.walltime),
        "walltime_exceeded": int(context.exceeded_walltime),
        "walltime_advised_seconds": max(steps, 1) * _TIME_STEP,
        "node_events": context.node_events,
        "short_jobs": context.short_jobs_that_day,
        "energy_joules": context.energy_joules,
        "energy_of_usual": _ratio(context.energy_joules, context.usual_energy_joules),
    }


def _cpu(context: JobContext, used: UsageTotals, nodes: Mapping[str, NodeMeasured]) -> dict[str, FactValue]:
    share = _ratio(used.cpu_seconds, used.cpu_seconds_offered)
    cores = context.cores
    busy = None if share is None or cores is None else share * cores
    node_cores = [node.node_cores for node in nodes.values()]
    per_node = _ratio(cores, context.nodes)
    same_nodes = len(set(node_cores)) == 1 and bool(node_cores[0])
    exe = _busiest_executable(nodes)
    return {
        "nodes": context.nodes,
        "cores": cores,
        "cores_per_node": per_node,
        "nodes_needed": math.ceil(cores / node_cores[0]) if cores and same_nodes and node_cores[0] else None,
        "node_share": _ratio(cores, sum(map(int, filter(None, node_cores)))) if all(node_cores) else None,
        "cores_busy": busy,
        "cores_advised": _fewer_cores(busy, cores),
        "cpu_share": share,
        "cpu_idle_seconds": max((node.cpu_idle_seconds for node in nodes.values()), default=None),
        "cpu_steadiness": min(filter(None, map(_steadiness, nodes.values())), default=None),
        "core_evenness": _ratio(used.core_least_ratio, used.core_mean_ratio),
        "runnable_per_core": _ratio(used.runnable_mean_threads, cores),
        "threads_exe": exe and exe[0],
        "threads_most": exe and exe[1],
        "threads_per_core": exe and exe[2],
    }


def _steadiness(node: NodeMeasured) -> float | None:
    return _ratio(_ratio(node.cpu_seconds, node.seconds), node.cpu_most_cores)


def _busiest_executable(nodes: Mapping[str, NodeMeasured]) -> tuple[str, int, float] | None:
    """Return the executable with most threads a core, how many it had, and how many a core."""
    counted = [
        (exe, count, count / node.cores)
        for node in nodes.values()
        if node.cores
        for exe, count in node.threads_most.items()
    ]
    return max(counted, key=lambda entry: entry[2], default=None)


def _memory(context: JobContext, used: UsageTotals, nodes: Mapping[str, NodeMeasured]) -> dict[str, FactValue]:
    own = used.memory_own_peak_bytes
    advised = None if own is None else max(1, math.ceil(own * _MEMORY_MARGIN / _MEMORY_STEP)) * _MEMORY_STEP
    return {
        "memory_asked_bytes": used.memory_limit_bytes,
        "memory_own_bytes": own,
        "memory_share": _ratio(own, used.memory_limit_bytes),
        "memory_above_share": _above_share(context, nodes),
        "memory_advised_bytes": advised,
        "memory_near_share": used.memory_near_ratio,
        "oom_kills": used.oom_kills,
    }


def _above_share(context: JobContext, nodes: Mapping[str, NodeMeasured]) -> float | None:
    """Return the memory asked for, measured by what belongs to the cores held; the largest of all nodes."""
    shares = [
        node.memory_asked_bytes / (total * node.cores / node.node_cores)
        for name, node in nodes.items()
        if (total := context.node_memory_bytes.get(name)) and node.memory_asked_bytes and node.cores and node.node_cores
    ]
    return max(shares, default=None)


def _gpus(context: JobContext, nodes: Mapping[str, NodeMeasured]) -> dict[str, FactValue]:
    gpus = [gpu for node in nodes.values() for gpu in node.gpus.values()]
    if not gpus:
        return {"gpus": context.gpus}
    shares = [gpu.busy_mean_ratio for gpu in gpus if gpu.busy_mean_ratio is not None]
    is_known = len(shares) == len(gpus)
    worked = [gpu for gpu in gpus if not _is_unused(gpu)]
    return {
        "gpus": len(gpus),
        "gpu_share": sum(shares) / len(gpus) if is_known else None,
        "gpus_unused": sum(map(_is_unused, gpus)) if is_known else None,
        "gpus_per_node": max(len(node.gpus) for node in nodes.values()),
        "gpu_idle_seconds": min((gpu.idle_after_work_seconds for gpu in worked), default=None),
        "gpu_idle_now_seconds": min(gpu.idle_now_seconds for gpu in gpus) if is_known else None,
    }


def _is_unused(gpu: GpuMeasured) -> bool:
    return gpu.busy_most_ratio is not None and gpu.busy_most_ratio < _UNUSED and gpu.seconds >= _UNUSED_SECONDS


def _files(used: UsageTotals) -> dict[str, FactValue]:
    directions = [count for count in (used.read_bytes, used.written_bytes) if count is not None]
    moved = sum(directions) if len(directions) == 2 else None
    return {
        "open_files": used.open_files_most,
        "moved_bytes": moved,
        "bytes_per_open_file": _ratio(moved, used.open_files_most),
        "scratch_used": None if used.scratch_used is None else int(used.scratch_used),
        "calls_per_second": used.calls_most_10min_per_second,
    }
