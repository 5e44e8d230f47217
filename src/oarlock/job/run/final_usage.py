"""The final usage of jobs: the last counters of each attempt on each node, stored with the job."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oarlock.node.wire.messages import Report
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting
from oarlock.store.queries.accounting import Summary

Counters = Mapping[str, float]

_HIGHEST = ("memory_peak_bytes", "memory_own_peak_bytes")
_EARLIER = "0"
"""The attempt number of counters that were stored before attempts were distinguished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What all attempts of a job used. Absent is not zero.

    Times and traffic are added up over attempts and nodes. Memory is added up over the nodes of an attempt, and is that
    of the attempt that had most. `cpus` and `memory_limit_bytes` are those of the last attempt. `cpu_seconds_offered`
    is what the CPUs of all attempts could have given in the time that they ran.
    """

    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    cpus: int | None = None
    cpu_seconds: float | None = None
    cpu_seconds_offered: float | None = None
    memory_peak_bytes: int | None = None
    memory_own_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


def keep(tx: Tx, reports: Sequence[Report], *, now: int) -> None:
    """Add the counters of reports to the summaries of their jobs; an attempt that a node reports twice counts once."""
    counted = [report for report in reports if report.counters]
    if not counted:
        return
    stored = {row.job_id: row.detail for row in accounting.summaries_of(tx, {report.job for report in counted})}
    kept = {job: attempts(stored.get(job, "{}")) for job in {report.job for report in counted}}
    for report in counted:
        ran = {} if report.ran is None else {"seconds": report.ran}
        nodes = kept[report.job].setdefault(str(report.attempt), {})
        # A report that comes again after a restart of the server lacks what samples had added to the first.
        nodes[report.node] = {**nodes.get(report.node, {}), **report.counters, **ran}
    accounting.save_summaries(tx, [_summary(job, kept[job], now) for job in sorted(kept)])


def attempts(detail: str) -> dict[str, dict[str, Counters]]:
    """Read a summary's detail into counters by attempt and node."""
    stored = json.loads(detail)
    earlier = {_EARLIER: stored["nodes"]} if "nodes" in stored else {}
    return {**earlier, **stored.get("attempts", {})}


def totals(by_attempt: Mapping[str, Mapping[str, Counters]]) -> UsageTotals:
    """Add up what the attempts of a job counted; what none of them counted stays absent."""
    if not by_attempt:
        return UsageTotals()
    everywhere = [counters for nodes in by_attempt.values() for counters in nodes.values()]
    last = list(by_attempt[max(by_attempt, key=int)].values())
    peaks: dict[str, Any] = {
        name: _whole(_highest(_sum(name, nodes.values()) for nodes in by_attempt.values())) for name in _HIGHEST
    }
    ran = [_highest(counters.get("seconds") for counters in nodes.values()) for nodes in by_attempt.values()]
    return UsageTotals(
        nodes=tuple(sorted({node for nodes in by_attempt.values() for node in nodes})),
        seconds=None if None in ran else sum(seconds or 0 for seconds in ran),
        cpus=_whole(_sum("cpus", last, all_of_them=True)),
        cpu_seconds=_sum("cpu_seconds_total", everywhere),
        cpu_seconds_offered=_offered(everywhere),
        memory_limit_bytes=_whole(_sum("memory_limit_bytes", last, all_of_them=True)),
        read_bytes=_traffic("read", everywhere),
        written_bytes=_traffic("written", everywhere),
        **peaks,
    )


def _summary(job: int, by_attempt: Mapping[str, Mapping[str, Counters]], now: int) -> Summary:
    usage = totals(by_attempt)
    return Summary(
        job_id=job,
        date=now,
        cpu_seconds=usage.cpu_seconds,
        memory_peak_bytes=usage.memory_peak_bytes,
        read_bytes=usage.read_bytes,
        written_bytes=usage.written_bytes,
        detail=json.dumps({"attempts": by_attempt}, separators=(",", ":")),
    )


def _sum(name: str, counters: Iterable[Counters], *, all_of_them: bool = False) -> float | None:
    values = [row.get(name) for row in counters]
    present = [value for value in values if value is not None]
    return None if not present or (all_of_them and len(present) < len(values)) else sum(present)


def _traffic(direction: str, counters: Iterable[Counters]) -> int | None:
    """Add up what was read or written. Processes count a write at once and devices later; both may miss something."""
    names = f"{direction}_bytes_total", f"block_{direction}_bytes_total"
    values = [highest for row in counters if (highest := _highest(map(row.get, names))) is not None]
    return int(sum(values)) if values else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _offered(counters: Sequence[Counters]) -> float | None:
    if not all("cpus" in row and "seconds" in row for row in counters):
        return None
    return sum(row["cpus"] * row["seconds"] for row in counters)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
