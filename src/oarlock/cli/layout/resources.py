"""Resources as `oarnodes` and `oarstat -p` print them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT_BY_THE_SYSTEM = frozenset({
    "resource_id", "state", "state_num", "next_state", "finaud_decision", "next_finaud_decision", "last_job_date",
    "expiry_date", "suspended_jobs", "scheduler_priority",
})  # fmt: skip
"""Columns that say how a resource fares, not what it is."""


def properties(resource: Any) -> dict[str, Any]:
    """Return the properties that describe a resource, by name."""
    return {name: resource[name] for name in sorted(resource) if name not in KEPT_BY_THE_SYSTEM}


def resource_lines(resource: Any, jobs: list[int]) -> list[str]:
    """Lay out a resource and the jobs on it; an empty line ends it."""
    named = properties(resource) | ({"jobs": joined(jobs)} if jobs else {})
    pairs = ", ".join(f"{name}={'' if named[name] is None else named[name]}" for name in sorted(named))
    return [
        f"network_address : {resource['network_address']}",
        f"resource_id : {resource['resource_id']}",
        f"state : {resource['state']}",
        *([f"jobs: {joined(jobs)}"] if jobs else []),
        f"properties : {pairs}",
        "",
    ]


def joined(jobs: list[int]) -> str:
    """Return the jobs on a resource as one value."""
    return ", ".join(str(job_id) for job_id in jobs)


def state(resource: Any, now: int) -> str:
    """Return the state of a resource; one that is Absent and available until later is on standby."""
    standby = resource["state"] == "Absent" and (resource.get("cm_availability") or 0) > now
    return f"{resource['state']} (standby)" if standby else str(resource["state"])
