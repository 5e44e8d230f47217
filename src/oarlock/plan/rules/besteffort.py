"""Best-effort jobs: they run on idle resources, and are killed when another job needs these."""

from collections.abc import Iterable
from typing import NamedTuple

from oarlock.plan.timeline.occupancies import OccupancyKind


class JobResources(NamedTuple):
    """A job and its present or planned resources, without those that every job gets."""

    job_id: int
    kind: OccupancyKind
    resources: int


def preemptible_resources(holders: Iterable[JobResources]) -> dict[str | None, int]:
    """Return the resources held by best-effort jobs, by container."""
    by_container: dict[str | None, int] = {}
    for holder in holders:
        by_container[holder.kind.container] = by_container.get(holder.kind.container, 0) | holder.resources
    return by_container


def jobs_to_kill(running: Iterable[JobResources], newcomers: Iterable[JobResources]) -> tuple[int, ...]:
    """Return the best-effort jobs that hold resources of newcomers; one that timeshares with all of them survives."""
    arriving = list(newcomers)
    return tuple(job.job_id for job in running if any(is_in_the_way(job, newcomer) for newcomer in arriving))


def is_in_the_way(job: JobResources, newcomer: JobResources) -> bool:
    """Return whether a best-effort job has to be killed before a newcomer can start."""
    if job.job_id == newcomer.job_id or not job.resources & newcomer.resources:
        return False
    if job.kind.container != newcomer.kind.container or (
        job.kind.placeholder and job.kind.placeholder == newcomer.kind.allowed
    ):
        return False  # inner jobs, and jobs that a placeholder is meant for, do not kill it
    return job.kind.sharing is None or job.kind.sharing != newcomer.kind.sharing
