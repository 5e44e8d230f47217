"""What jobs that have a place hold of their resources, and until when."""

from typing import TYPE_CHECKING

from oarlock.model.job import JobState
from oarlock.model.snapshot import PlacedJob
from oarlock.plan.rules.besteffort import JobResources
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancy import Occupation

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


def own_resources(planner: "Planner", job: PlacedJob) -> int:
    """Give what a job has of its own, without what every job has."""
    return without(planner.layout.bits_of(job.resources), planner.available.always)


def container_occupation(planner: "Planner", job: PlacedJob) -> Occupation:
    """Say where and until when others can be inside of a job, if it is a container."""
    return Occupation(job.start, job.stop, own_resources(planner, job))


def occupation_of(planner: "Planner", job: PlacedJob) -> Occupation:
    """Say what a job is in others' way with: a suspended one with less, one past its end for another second."""
    resources = own_resources(planner, job)
    if job.state == JobState.SUSPENDED:
        resources = without(resources, _given_back(planner))
    stop = job.stop + planner.settings.security_time
    if job.state not in {JobState.WAITING, JobState.HOLD}:
        stop = max(stop, planner.now + 1)  # overdue, yet still there
    return Occupation(job.start, stop, resources)


def killable_jobs(planner: "Planner") -> list[JobResources]:
    """Give the best-effort jobs that have resources and could be told to leave."""
    return _holders(planner, ending=False)


def ending_jobs(planner: "Planner") -> list[JobResources]:
    """Give the best-effort jobs that are about to leave."""
    return _holders(planner, ending=True)


def _holders(planner: "Planner", *, ending: bool) -> list[JobResources]:
    jobs = [job for job in planner.placed.values() if "besteffort" in job.types]
    return [
        JobResources(job.job_id, planner.kind(job), own_resources(planner, job))
        for job in jobs
        if (job.state == JobState.FINISHING) is ending
    ]


def _given_back(planner: "Planner") -> int:
    """Give the resources that a suspended job leaves to others."""
    types = planner.layout.by_value("type") if "type" in planner.layout.table.columns else {}
    return union(types.get(kind, 0) for kind in planner.settings.shared_when_suspended)
