"""Jobs and resources between two dates, as `oarstat --gantt` prints them."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.job_table import letter
from oarlock.cli.time_format import date

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLUMNS = (
    ("Job id", 9, "%-9s"), ("S", 1, "%1s"), ("User", 8, "%-8s"), ("Start", 19, "%-19s"), ("End", 19, "%-19s"),
    ("Resources", 20, "%s"),
)  # fmt: skip


def keyed(answer: Any) -> dict[str, Any]:
    """Return everything by number and under the names that programs expect here: those of OAR's tables."""
    addresses = {resource["resource_id"]: resource["network_address"] for resource in answer["resources"]}
    return {
        "jobs": {str(job["Job_Id"]): _bar(job, addresses) for job in answer["jobs"]},
        "resources": {str(resource["resource_id"]): resource for resource in answer["resources"]},
        "dead_resources": {
            str(resource["resource_id"]): resource for resource in answer["resources"] if resource["state"] == "Dead"
        },
    }


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


def told(answer: Any) -> list[str]:
    """Lay out the jobs by their start, then the resources that cannot be used."""
    jobs = sorted(answer["jobs"], key=lambda job: (job["startTime"], job["Job_Id"]))
    away = [resource for resource in answer["resources"] if resource["state"] != "Alive"]
    return [
        *output.table(_COLUMNS, [_row(job) for job in jobs]),
        *(f"{r['network_address']} {r['resource_id']} : {r['state']}" for r in away),
    ]


def _row(job: Any) -> tuple[object, ...]:
    start, stop = (date(instant) if instant else "-" for instant in (job["startTime"], job["stopTime"]))
    resources = ",".join(str(number) for number in job["resources"])
    return job["Job_Id"], letter(job["state"]), job["owner"], start, stop, resources
