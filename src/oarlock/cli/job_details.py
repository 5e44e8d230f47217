"""Everything about one job, a line a field, as `oarstat -f` prints it."""

from __future__ import annotations

from oarlock.cli.time_format import date, walltime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BRIEF = frozenset({
    "Job_Id", "array_id", "array_index", "assigned_network_address", "assigned_resources", "command", "cpuset_name",
    "dependencies", "jobType", "launchingDirectory", "message", "name", "owner", "project", "properties", "queue",
    "reservation", "resubmit_job_id", "startTime", "state", "stderr_file", "stdout_file", "submissionTime", "types",
})  # fmt: skip
"""The fields that the formats for programs give without -f."""


_UNTIL_KNOWN = frozenset({"exit_code", "reserved_resources", "startTime", "stopTime", "cpuset_name", "memory_limit"})
"""Fields that are left out until they are known."""


def details(job: Any) -> list[str]:
    """Lay out a job; an empty line ends it."""
    lines = [f"Job_Id: {job['Job_Id']}"]
    for name, value in _fields(job):
        # OAR leaves these out until they are known, and prints all others even if they are empty.
        if value is not None or name not in _UNTIL_KNOWN:
            lines.append(f"    {name} = {'' if value is None else value}")
    lines += [f"{date(event['at'])}> {event['type']}:{event['description']}" for event in job.get("events") or ()]
    return [*lines, ""]


def _fields(job: Any) -> list[tuple[str, object]]:
    """Return the fields under the names and in the order of `oarstat -f`."""
    same = job.get
    return [
        ("job_array_id", same("array_id")),
        ("job_array_index", same("array_index")),
        ("name", same("name")),
        ("project", same("project")),
        ("owner", same("owner")),
        ("state", same("state")),
        ("wanted_resources", same("wanted_resources")),
        ("types", ", ".join(same("types") or ())),
        ("dependencies", _joined(same("dependencies"), " ")),
        ("assigned_resources", _joined(same("assigned_resources"), "+")),
        ("assigned_hostnames", _joined(same("assigned_network_address"), "+")),
        ("queue", same("queue")),
        ("command", same("command")),
        ("exit_code", _exit_code(same("exit_code"))),
        ("launchingDirectory", same("launchingDirectory")),
        ("stdout_file", same("stdout_file")),
        ("stderr_file", same("stderr_file")),
        ("jobType", same("jobType")),
        ("properties", same("properties")),
        ("reservation", same("reservation")),
        ("reserved_resources", _joined(same("reserved_resources"), "+") or None),
        ("walltime", walltime(same("walltime") or 0)),
        ("submissionTime", _date(same("submissionTime"))),
        ("startTime", _date(same("startTime"))),
        ("stopTime", _date(same("stopTime"))),
        ("cpuset_name", same("cpuset_name")),
        ("memory_limit", _memory_limit(same("memory_limits"))),
        ("initial_request", same("initial_request")),
        ("message", same("message")),
        ("scheduledStart", _date(same("scheduledStart")) or "no prediction"),
        ("resubmit_job_id", same("resubmit_job_id")),
        ("events", ""),
    ]


def _memory_limit(limits: Any) -> str | None:
    """Return how much memory the job may use: one value if it is the same on all nodes, else one a node."""
    amounts = {node: f"{size >> 20} MiB" for node, size in (limits or {}).items()}
    if len(set(amounts.values())) <= 1:
        each = " on each node" if len(amounts) > 1 else ""
        return next((f"{amount}{each}" for amount in amounts.values()), None)
    return ", ".join(f"{amount} on {node}" for node, amount in amounts.items())


def _joined(values: Any, between: str) -> str:
    return between.join(str(value) for value in values or ())


def _date(instant: int | None) -> str | None:
    return date(instant) if instant else None


def _exit_code(status: int | None) -> str | None:
    """Show a wait status with its parts: exit value, signal, whether a core was written."""
    return None if status is None else f"{status} ({status >> 8 & 255},{status & 127},{status >> 7 & 1})"


def priority(weighed: Any) -> list[str]:
    """Return the lines of a priority, one a term."""
    lines = [f"Priority: {weighed['total']:.3f}"]
    for term in weighed["terms"]:
        product = f"{term['factor']:.3f} × {term['weight']:g} = {term['value']:.3f}"
        lines.append(f"  {term['name']:<9} {product:<24} {term['says']}")
    return lines
