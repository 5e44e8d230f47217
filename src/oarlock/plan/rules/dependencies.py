"""Jobs that wait for other jobs."""

from collections.abc import Mapping
from typing import NamedTuple

from oarlock.model.job import FINAL, JobState, describe_exit
from oarlock.model.plan import Obstacle
from oarlock.model.snapshot import Dependency, WaitingJob


class Blocked(NamedTuple):
    """Why a job cannot be planned because of another."""

    obstacle: Obstacle
    detail: str


def earliest_start(
    job: WaitingJob, ends: Mapping[int, int], *, security_time: int, release_after_error: bool
) -> int | Blocked:
    """Return the instant from which a job may start, or what blocks it.

    `ends` are the predicted ends of jobs that are not over. A job that ended in Error lets its dependants go (a site
    may decide otherwise); one that ended with a non-zero exit code does not.
    """
    earliest = job.not_before
    for required in job.after:
        if required.state in FINAL:
            blocked = _verdict(required, release_after_error=release_after_error)
            if blocked is not None:
                return blocked
        elif required.job_id in ends:
            earliest = max(earliest, ends[required.job_id] + 2 * security_time)
        else:
            return Blocked(
                Obstacle.DEPENDENCY,
                f"it waits for job {required.job_id}, which is {required.state} and has no date yet",
            )
    return earliest


def _verdict(required: Dependency, *, release_after_error: bool) -> Blocked | None:
    if required.state == JobState.ERROR:
        ended = None if release_after_error else "in Error"
    else:
        ended = f"with {describe_exit(required.exit_code)}" if required.exit_code else None
    if ended is None:
        return None
    return Blocked(
        Obstacle.BROKEN_DEPENDENCY, f"job {required.job_id}, which it depends on, ended {ended}: it will not start"
    )
