"""What users asked for and used, summed from accounting rows."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.times import date

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DAY = 86400

_COLUMNS = (
    ("User", 10, "%-10s"), ("First window starts", 20, "%-20s"), ("Last window ends", 20, "%-20s"),
    ("Asked (seconds)", 16, "%16s"), ("Used (seconds)", 16, "%16s"),
)  # fmt: skip


def by_user(rows: list[Any]) -> dict[str, dict[str, int]]:
    """Sum the windows of each user: first start, last end, resource-seconds asked for and used."""
    users: dict[str, dict[str, int]] = {}
    for row in rows:
        start, stop = row["window_start"], row["window_stop"]
        sums = users.setdefault(row["user"], {"begin": start, "end": stop, "asked": 0, "used": 0})
        sums["begin"], sums["end"] = min(sums["begin"], start), max(sums["end"], stop)
        sums[row["type"].lower()] += row["consumption"]
    return dict(sorted(users.items()))


def table(users: dict[str, dict[str, int]]) -> list[str]:
    """Lay out the sums; the heads stand four columns to the right of what they head, as in OAR."""
    rows = [(user, date(sums["begin"]), date(sums["end"]), sums["asked"], sums["used"]) for user, sums in users.items()]
    return output.table(_COLUMNS, rows, indent="    ")
