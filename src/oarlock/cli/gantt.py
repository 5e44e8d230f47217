"""Jobs and resources between two dates, as `oarstat --gantt` prints them."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.listing import letter
from oarlock.cli.times import date

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLUMNS = (
    ("Job id", 9, "%-9s"), ("S", 1, "%1s"), ("User", 8, "%-8s"), ("Start", 19, "%-19s"), ("End", 19, "%-19s"),
    ("Resources", 20, "%s"),
)  # fmt: skip


def keyed(answer: Any) -> dict[str, Any]:
    """Give everything by number, as programs expect it: jobs, resources, and the periods in which some were dead."""
    return {
        "jobs": {str(job["job_id"]): job for job in answer["jobs"]},
        "resources": {str(resource["resource_id"]): resource for resource in answer["resources"]},
        "dead_resources": answer.get("dead_resources") or {},
    }


def told(answer: Any) -> list[str]:
    """Lay out the jobs by their start, then the resources that cannot be used."""
    jobs = sorted(answer["jobs"], key=lambda job: (job["start_time"], job["job_id"]))
    away = [resource for resource in answer["resources"] if resource["state"] != "Alive"]
    return [
        *output.table(_COLUMNS, [_row(job) for job in jobs]),
        *(f"{r['network_address']} {r['resource_id']} : {r['state']}" for r in away),
    ]


def _row(job: Any) -> tuple[object, ...]:
    resources = ",".join(str(number) for number in job["resource_id"])
    return (
        job["job_id"], letter(job["state"]), job["user"], _date(job["start_time"]), _date(job["stop_time"]), resources
    )  # fmt: skip


def _date(instant: int | None) -> str:
    return date(instant) if instant else "-"
