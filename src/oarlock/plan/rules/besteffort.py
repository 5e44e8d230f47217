"""Best-effort jobs: they run where nobody else wants to, and die when somebody does."""

from collections.abc import Iterable
from typing import NamedTuple

from oarlock.plan.timeline.occupancies import OccupancyKind


class JobResources(NamedTuple):
    """A job and the resources it has, or is about to have; without those that every job has."""

    job_id: int
    kind: OccupancyKind
    resources: int


def preemptible_resources(holders: Iterable[JobResources]) -> dict[str | None, int]:
    """Return the resources on which somebody would have to die, by the room they are in."""
    found: dict[str | None, int] = {}
    for holder in holders:
        found[holder.kind.container] = found.get(holder.kind.container, 0) | holder.resources
    return found


def jobs_to_kill(running: Iterable[JobResources], newcomers: Iterable[JobResources]) -> tuple[int, ...]:
    """Return the best-effort jobs in the way of newcomers; one that timeshares with all of them survives."""
    arriving = list(newcomers)
    return tuple(job.job_id for job in running if any(is_in_the_way(job, newcomer) for newcomer in arriving))


def is_in_the_way(job: JobResources, newcomer: JobResources) -> bool:
    """Return whether a newcomer can have its resources only when a best-effort job is gone."""
    if job.job_id == newcomer.job_id or not job.resources & newcomer.resources:
        return False
    if job.kind.container != newcomer.kind.container or (
        job.kind.placeholder and job.kind.placeholder == newcomer.kind.allowed
    ):
        return False  # who runs inside of a container, or in its place, does not want it to die
    return job.kind.sharing is None or job.kind.sharing != newcomer.kind.sharing
