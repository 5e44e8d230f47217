"""What a job needs besides free resources: other jobs that ended, and the container that it runs inside of."""

from collections.abc import Mapping
from typing import NamedTuple

from oarlock.model.job import FINAL, JobState, describe_exit
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle
from oarlock.model.snapshot import Dependency, WaitingJob
from oarlock.plan.timeline.containers import Containers


class Blocked(NamedTuple):
    """Why a job cannot be planned because of another."""

    obstacle: Obstacle
    detail: str


def earliest_start(
    job: WaitingJob, ends: Mapping[int, int], *, security_time: int, release_after_error: bool
) -> int | Blocked:
    """Return the instant from which a job may start, or what blocks it.

    `ends` are the predicted ends of jobs that are not over. A job that ended in Error lets its dependants go (a site
    may decide otherwise); one that ended with a non-zero exit code does not. The job type `dependency` says otherwise.
    """
    earliest = job.not_before
    wanted = parse_types(job.types).dependency if job.after and job.types else None
    for required in job.after:
        if required.state in FINAL:
            blocked = _verdict(required, wanted, release_after_error=release_after_error)
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


def _verdict(required: Dependency, wanted: str | None, *, release_after_error: bool) -> Blocked | None:
    """Return what blocks a job for ever; `wanted` is its type `dependency`: ok, any or notok."""
    failed = required.state == JobState.ERROR or bool(required.exit_code)
    if wanted is None:
        holds = release_after_error if required.state == JobState.ERROR else not failed
    else:
        holds = wanted == "any" or failed is (wanted == "notok")
    if holds:
        return None
    ended = "in Error" if required.state == JobState.ERROR else f"with {describe_exit(required.exit_code or 0)}"
    return Blocked(
        Obstacle.BROKEN_DEPENDENCY, f"job {required.job_id}, which it depends on, ended {ended}: it will not start"
    )


def container_obstacle(containers: Containers, container: str) -> Blocked | None:
    """Explain why no job can be planned inside of a container; None if jobs can."""
    if containers.is_open(container):
        return None
    if containers.is_gone(container):
        return Blocked(Obstacle.CONTAINER, f"there is no container `{container}` (any more)")
    return Blocked(Obstacle.CONTAINER, f"its container, job {containers.opener(container)}, has no place yet")
