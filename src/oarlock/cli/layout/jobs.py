"""Jobs as `oarstat` prints them: a table, everything about one, bars between two dates; what jobs and users used."""

from __future__ import annotations

from oarlock.cli.layout.readable import date, duration, table, walltime

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


def job_details(job: Any) -> list[str]:
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


def priority_lines(weighed: Any) -> list[str]:
    """Return the lines of a priority, one a term."""
    lines = [f"Priority: {weighed['total']:.3f}"]
    for term in weighed["terms"]:
        product = f"{term['factor']:.3f} × {term['weight']:g} = {term['value']:.3f}"
        lines.append(f"  {term['name']:<9} {product:<24} {term['says']}")
    return lines


_GANTT = (
    ("Job id", 9, "%-9s"), ("S", 1, "%1s"), ("User", 8, "%-8s"), ("Start", 19, "%-19s"), ("End", 19, "%-19s"),
    ("Resources", 20, "%s"),
)  # fmt: skip


_AWAY = (
    ("Node", 16, "%-16s"), ("State", 9, "%-9s"), ("Start", 19, "%-19s"), ("End", 19, "%-19s"),
    ("Resources", 20, "%s"),
)  # fmt: skip


def gantt_data(answer: Any) -> dict[str, Any]:
    """Return everything by number and under the names that programs expect here: those of OAR's tables."""
    addresses = {resource["resource_id"]: resource["network_address"] for resource in answer["resources"]}
    return {
        "jobs": {str(job["Job_Id"]): _bar(job, addresses) for job in answer["jobs"]},
        "resources": {str(resource["resource_id"]): resource for resource in answer["resources"]},
        "dead_resources": _away(answer["states"]),
    }


def _away(states: list[Any]) -> dict[str, list[list[Any]]]:
    """Return when each resource was not Alive, by number and in OAR's form: start, stop and state."""
    away: dict[str, list[list[Any]]] = {}
    for bar in states:
        away.setdefault(str(bar["resource_id"]), []).append([bar["startTime"], bar["stopTime"], bar["state"]])
    return away


def _bar(job: Any, addresses: dict[int, str]) -> dict[str, Any]:
    return {
        "job_id": job["Job_Id"],
        "state": job["state"],
        "user": job["owner"],
        "queue_name": job["queue"],
        "job_name": job["name"],
        "project": job["project"],
        "types": job["types"],
        "submission_time": job["submissionTime"],
        "start_time": job["startTime"],
        "stop_time": job["stopTime"],
        "walltime": job["walltime"],
        "resource_id": job["resources"],
        "command": job["command"],
        "job_type": job["jobType"],
        "launching_directory": job["launchingDirectory"],
        "properties": job["properties"],
        "network_address": [addresses[number] for number in job["resources"] if number in addresses],
    }


def gantt_table(answer: Any) -> list[str]:
    """Lay out the jobs by their start, then when resources could not be used, those of a node together."""
    jobs = sorted(answer["jobs"], key=lambda job: (job["startTime"], job["Job_Id"]))
    addresses = {resource["resource_id"]: resource["network_address"] for resource in answer["resources"]}
    away: dict[tuple[object, ...], list[str]] = {}
    for bar in answer["states"]:
        node = addresses.get(bar["resource_id"]) or "-"
        key = node, bar["state"], date(bar["startTime"]), date(bar["stopTime"])
        away.setdefault(key, []).append(str(bar["resource_id"]))
    states = [(*key, ",".join(numbers)) for key, numbers in away.items()]
    return [
        *table(_GANTT, [_gantt_row(job) for job in jobs]),
        *(table(_AWAY, states) if states else []),
    ]


def _gantt_row(job: Any) -> tuple[object, ...]:
    start, stop = (date(instant) if instant else "-" for instant in (job["startTime"], job["stopTime"]))
    resources = ",".join(str(number) for number in job["resources"])
    return job["Job_Id"], state_letter(job["state"]), job["owner"], start, stop, resources


# A job that resumes is still suspended, one whose reservation is acknowledged still waits.
_LIKE_ANOTHER = {"Resum": "S", "toAck": "W"}

_ID = ("Job id", 9, "%-9s")
_STATE = ("S", 1, "%1s")
_USER = ("User", 8, "%-8s")
_DURATION = ("Duration", 10, "%10s")
_USUAL = (_ID, _STATE, _USER, _DURATION, ("System message", 48, "%s"))
_ARRAYS = (_ID, ("A. id", 9, "%-9s"), ("index", 5, "%-5s"), *_USUAL[1:4], ("System message", 32, "%s"))
_DATED = (
    ("Job id", 10, "%-10s"), ("Name", 14, "%-14s"), ("User", 14, "%-14s"), ("Submission Date", 19, "%-19s"), _STATE,
    ("Queue", 10, "%-10s"),
)  # fmt: skip


def state_letter(state: str) -> str:
    """Return the letter of a state."""
    return _LIKE_ANOTHER.get(state[:5]) or state.removeprefix("to")[0]


def job_table(jobs: list[Any], now: int) -> list[str]:
    """Lay out jobs, a line each."""
    return table(_USUAL, [(job["Job_Id"], *_columns(job, now)) for job in jobs]) if jobs else []


def array_table(jobs: list[Any], now: int) -> list[str]:
    """Lay out the members of arrays, with their places in the array."""
    rows = [(job["Job_Id"], job["array_id"], job["array_index"], *_columns(job, now)) for job in jobs]
    return table(_ARRAYS, rows) if jobs else []


def compact_table(jobs: list[Any], now: int) -> list[str]:
    """Lay out jobs with one line for each array: how many members are listed, and its number."""
    arrays: dict[int, list[Any]] = {}
    for job in jobs:
        arrays.setdefault(job["array_id"], []).append(job)
    rows: list[tuple[object, ...]] = []
    for array_id, (first, *others) in arrays.items():
        _, *columns = _columns(first, now)
        if others:
            rows.append((f"{len(others) + 1}@{array_id}", "-", columns[0], duration(0), columns[2]))
        else:
            rows.append((first["Job_Id"], *_columns(first, now)))
    return table(_USUAL, rows) if jobs else []


def dated_table(jobs: list[Any]) -> list[str]:
    """Lay out jobs as older versions of OAR did, with name, date of submission and queue."""
    rows = [
        (j["Job_Id"], j["name"] or "", j["owner"], date(j["submissionTime"]), state_letter(j["state"]), j["queue"])
        for j in jobs
    ]
    return table(_DATED, rows) if jobs else []


def _columns(job: Any, now: int) -> tuple[str, str, str, str]:
    start = job["startTime"] or now
    ran = max(0, (job["stopTime"] or now) - start)
    return state_letter(job["state"]), job["owner"], duration(ran), job["message"] or ""


DAY = 86400

_COLUMNS = (
    ("User", 10, "%-10s"), ("First window starts", 20, "%-20s"), ("Last window ends", 20, "%-20s"),
    ("Asked (seconds)", 16, "%16s"), ("Used (seconds)", 16, "%16s"),
)  # fmt: skip


def sums_by_user(rows: list[Any]) -> dict[str, dict[str, Any]]:
    """Sum the windows of each user: first start, last end, resource-seconds asked for and used."""
    users: dict[str, dict[str, Any]] = {}
    for row in rows:
        start, stop = row["window_start"], row["window_stop"]
        sums = users.setdefault(row["user"], {"begin": start, "end": stop, "asked": 0, "used": 0})
        sums["begin"], sums["end"] = min(sums["begin"], start), max(sums["end"], stop)
        sums[row["type"].lower()] += row["consumption"]
    return dict(sorted(users.items()))


def user_table(users: dict[str, dict[str, Any]]) -> list[str]:
    """Lay out the sums; the heads stand four columns to the right of what they head, as in OAR."""
    rows = [(user, date(sums["begin"]), date(sums["end"]), sums["asked"], sums["used"]) for user, sums in users.items()]
    return table(_COLUMNS, rows, indent="    ")


def sums_by_project(answer: Any) -> dict[str, Any]:
    """Sum the windows of one user by project, each with its karma."""
    projects: dict[str, dict[str, Any]] = {}
    for row in answer["rows"]:
        sums = projects.setdefault(row["project"], {"asked": 0, "used": 0, "karma": answer["karma"][row["project"]]})
        sums[row["type"].lower()] += row["consumption"]
    return {"projects": dict(sorted(projects.items()))}


def user_details(user: str, sums: Any) -> list[str]:
    """Lay out what one user asked for and used, in all and by project; nothing where there is nothing."""
    if sums is None:
        return []
    lines = [
        f"User {user}",
        f"    First window starts : {date(sums['begin'])}",
        f"    Last window ends    : {date(sums['end'])}",
        f"    Asked (seconds)     : {sums['asked']} ({duration(sums['asked'])})",
        f"    Used (seconds)      : {sums['used']} ({duration(sums['used'])})",
    ]
    for project, own in sums["projects"].items():
        lines += [
            f"Project {project}",
            f"    Asked (seconds)     : {own['asked']} ({duration(own['asked'])})",
            f"    Used (seconds)      : {own['used']} ({duration(own['used'])})",
            f"    Karma               : {own['karma']:.3f}",
        ]
    return lines
