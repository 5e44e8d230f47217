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

_NO_NODE = "(no node)"


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


def summary(resources: list[Any], jobs: dict[str, list[int]], now: int) -> dict[str, Any]:
    """Count the resources of each node and of each state: how many there are, how many are in use, by which jobs."""
    from oarlock.cli.layout.readable import natural_order

    nodes: dict[str, dict[str, Any]] = {}
    totals: dict[str, dict[str, int]] = {}
    seen: dict[str, set[str]] = {}
    for resource in resources:
        name, label = resource["network_address"] or _NO_NODE, state(resource, now)
        own = jobs.get(str(resource["resource_id"]), [])
        node = nodes.setdefault(name, {"states": {}, "resources": 0, "used": 0, "jobs": []})
        node["states"][label] = node["states"].get(label, 0) + 1
        node["jobs"] = sorted({*node["jobs"], *own})
        total = totals.setdefault(label, {"nodes": 0, "resources": 0, "used": 0})
        for counts in (node, total):
            counts["resources"] += 1
            counts["used"] += bool(own)
        seen.setdefault(label, set()).add(name)
    for label, names in seen.items():
        totals[label]["nodes"] = len(names - {_NO_NODE})
    return {"nodes": dict(sorted(nodes.items(), key=lambda pair: natural_order(pair[0]))), "totals": totals}


def summary_lines(counted: dict[str, Any]) -> list[str]:
    """Lay out a summary: nodes that fare alike share a line, then the totals by state."""
    from oarlock.cli.layout.readable import table
    from oarlock.model.nodeset import fold

    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, node in counted["nodes"].items():
        states = node["states"]
        label = " ".join(f"{word}:{states[word]}" for word in sorted(states)) if len(states) > 1 else next(iter(states))
        groups.setdefault((label, node["resources"], node["used"], len(node["jobs"])), []).append(name)
    nodes = [(fold(names), len(names), *what) for what, names in groups.items()]
    totals = [(label, *counts.values()) for label, counts in sorted(counted["totals"].items())]
    return [
        *table((_wide("Nodes", [row[0] for row in nodes]), ("Count", 5, "%5s"), *_columns(nodes, 2), _JOBS), nodes),
        "",
        *table((_wide("State", [row[0] for row in totals]), ("Nodes", 5, "%5s"), *_USE), totals),
    ]


_JOBS = ("Jobs", 5, "%5s")
_USE = (("Resources", 9, "%9s"), ("In use", 6, "%6s"))
_WIDEST = 40


def _columns(rows: list[tuple[Any, ...]], at: int) -> tuple[tuple[str, int, str], ...]:
    return (_wide("State", [row[at] for row in rows]), *_USE)


def _wide(head: str, values: list[str]) -> tuple[str, int, str]:
    """Return a column as wide as its values, but not wider than a line can bear."""
    width = min(max(map(len, (head, *values))), _WIDEST)
    return head, width, f"%-{width}s"
