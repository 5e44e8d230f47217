"""What jobs and users used: a block a job, every number with what it is a part of; sums of accounting rows."""

from __future__ import annotations

from oarlock.cli.layout.readable import date, duration, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNKNOWN = "-"


def usage_blocks(usages: list[Any]) -> list[str]:
    """Return the lines of all jobs; what is not known is a dash."""
    lines: list[str] = []
    for used in usages:
        rows = _rows(used) if used["at"] else []
        width = max((len(name) for name, _ in rows), default=0)
        lines += [_head(used), *(f"    {name.ljust(width)}  {value}" for name, value in rows), ""]
    return lines[:-1]


def _head(used: Any) -> str:
    if not used["at"]:
        return f"Job {used['job_id']}: not measured yet"
    when = "at its end" if used["final"] else "so far"
    ran = "" if used["seconds"] is None else f", {duration(round(used['seconds']))}"
    nodes = len(used["nodes"])
    return f"Job {used['job_id']}: {when}{ran} on {nodes} node{'s' if nodes != 1 else ''}"


def _rows(used: Any) -> list[tuple[str, str]]:
    limit, seconds = used["memory_limit_bytes"], used["seconds"]
    # At its end a job holds no memory any more, only its highest marks are left.
    now = [] if used["final"] else [("Own memory", "memory_own_bytes"), ("Page cache", "memory_cache_bytes")]
    peaks = [("Own memory, highest", "memory_own_peak_bytes"), ("With cache, highest", "memory_peak_bytes")]
    return [
        ("CPU", _cores(used)),
        *((name, _part(used[field], limit)) for name, field in [*now, *peaks]),
        ("Read", _rate(used["read_bytes"], seconds)),
        ("Written", _rate(used["written_bytes"], seconds)),
    ]


def _cores(used: Any) -> str:
    spent, offered, seconds = used["cpu_seconds"], used["cpu_seconds_offered"], used["seconds"]
    if spent is None:
        return _UNKNOWN
    if not offered or not seconds:
        return f"{duration(round(spent))} of CPU time"
    cpus = offered / seconds  # on average, where attempts had different numbers of them
    cores = f"{spent / seconds:.1f} of {cpus:.3g} core{'s' if cpus != 1 else ''}"
    return f"{cores}, {_percent(spent, offered)} ({duration(round(spent))} of {duration(round(offered))})"


def _part(count: int | None, limit: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{size(count)} of {size(limit)}, {_percent(count, limit)}" if limit else f"{size(count)}, not limited"


def _rate(count: int | None, seconds: float | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{size(count)}, {size(round(count / seconds))}/s" if seconds else size(count)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def size(count: int | None) -> str:
    """Write a number of bytes with a unit that makes it short."""
    if count is None:
        return _UNKNOWN
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"


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
