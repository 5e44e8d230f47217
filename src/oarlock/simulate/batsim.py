"""Batsim's JSON workloads: jobs that ask for `res` resources, and profiles that say how long they run."""

import json
import math
from collections import Counter
from typing import Any

from oarlock.simulate.trace import Trace, TraceJob, TraceRefused, by_submission, flat

_LENGTHS = ("delay", "runtime")


def read(text: str, name: str) -> Trace:
    """Read a workload. Jobs whose profile has no length of its own (computations, messages) are skipped and counted."""
    try:
        workload = json.loads(text)
        jobs, profiles = workload["jobs"], workload["profiles"]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceRefused(
            f"{name} is no workload of Batsim: {error}.", hint="It needs `jobs` and `profiles`."
        ) from error
    made: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    for place, job in enumerate(jobs, 1):
        length = _length(profiles.get(job.get("profile"), {}))
        if length is None:
            skipped["profile without a length"] += 1
        elif not job.get("res"):
            skipped["no resources"] += 1
        else:
            made.append(_job(job, place, length))
    processors = workload.get("nb_res")
    return Trace(name, by_submission(made), processors, None, dict(skipped))


def _length(profile: dict[str, Any]) -> int | None:
    """Return the seconds of a profile, rounded up."""
    seconds = next((profile[key] for key in _LENGTHS if key in profile), None)
    return None if seconds is None else math.ceil(float(seconds))


def _job(job: dict[str, Any], place: int, length: int) -> TraceJob:
    walltime = math.ceil(float(job.get("walltime", length)))
    walltime = walltime if walltime > 0 else max(length, 1)
    number = str(job["id"]).rpartition("!")[2]
    return TraceJob(
        number=int(number) if number.isdigit() else place,
        submitted=round(float(job["subtime"])),
        run=min(length, walltime),
        walltime=walltime,
        shape=flat(int(job["res"])),
        processors=int(job["res"]),
        user=str(job.get("user", job.get("user_id", "-"))),
    )
