"""What users asked for and used, summed from accounting rows."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.time_format import date, duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DAY = 86400

_COLUMNS = (
    ("User", 10, "%-10s"), ("First window starts", 20, "%-20s"), ("Last window ends", 20, "%-20s"),
    ("Asked (seconds)", 16, "%16s"), ("Used (seconds)", 16, "%16s"),
)  # fmt: skip


def by_user(rows: list[Any]) -> dict[str, dict[str, Any]]:
    """Sum the windows of each user: first start, last end, resource-seconds asked for and used."""
    users: dict[str, dict[str, Any]] = {}
    for row in rows:
        start, stop = row["window_start"], row["window_stop"]
        sums = users.setdefault(row["user"], {"begin": start, "end": stop, "asked": 0, "used": 0})
        sums["begin"], sums["end"] = min(sums["begin"], start), max(sums["end"], stop)
        sums[row["type"].lower()] += row["consumption"]
    return dict(sorted(users.items()))


def table(users: dict[str, dict[str, Any]]) -> list[str]:
    """Lay out the sums; the heads stand four columns to the right of what they head, as in OAR."""
    rows = [(user, date(sums["begin"]), date(sums["end"]), sums["asked"], sums["used"]) for user, sums in users.items()]
    return output.table(_COLUMNS, rows, indent="    ")


def of_projects(answer: Any) -> dict[str, Any]:
    """Sum the windows of one user by project, each with its karma."""
    projects: dict[str, dict[str, Any]] = {}
    for row in answer["rows"]:
        sums = projects.setdefault(row["project"], {"asked": 0, "used": 0, "karma": answer["karma"][row["project"]]})
        sums[row["type"].lower()] += row["consumption"]
    return {"projects": dict(sorted(projects.items()))}


def of_user(user: str, sums: Any) -> list[str]:
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
