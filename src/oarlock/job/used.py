"""What jobs used in the end: the last counters of each node's report, kept with the job."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oarlock.node.messages import Report
from oarlock.store import summaries
from oarlock.store.summaries import Summary
from oarlock.store.tx import Tx

_FIELDS = {
    "cpu_seconds": float,
    "memory_peak_bytes": int,
    "read_bytes": int,
    "written_bytes": int,
}


def keep(tx: Tx, reports: Sequence[Report], *, now: int) -> None:
    """Add the counters of reports to the summaries of their jobs; a node that reports twice counts once."""
    told = [report for report in reports if report.counters]
    if not told:
        return
    found = {one.job_id: json.loads(one.detail) for one in summaries.of_jobs(tx, {report.job for report in told})}
    for report in told:
        nodes = found.setdefault(report.job, {}).setdefault("nodes", {})
        nodes[report.node] = report.counters
    summaries.save(tx, [_summary(job, detail, now) for job, detail in found.items()])


def _summary(job: int, detail: Mapping[str, Any], now: int) -> Summary:
    """Add up what the nodes counted; what none of them counted stays absent."""
    counters: Sequence[Mapping[str, float]] = list(detail["nodes"].values())
    sums: dict[str, Any] = {}
    for field, kind in _FIELDS.items():
        values = [one[field] for one in counters if field in one]
        sums[field] = kind(sum(values)) if values else None
    return Summary(job_id=job, date=now, detail=json.dumps(detail, separators=(",", ":")), **sums)
