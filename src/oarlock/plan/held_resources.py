"""What jobs that have a place hold of their resources, and until when."""

from typing import TYPE_CHECKING

from oarlock.model.job import JobState
from oarlock.model.snapshot import Placed
from oarlock.plan.rules.besteffort import Holder
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancy import Stay

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


def given(planner: "Planner", job: Placed) -> int:
    """Give what a job has of its own, without what every job has."""
    return without(planner.layout.bits_of(job.resources), planner.available.always)


def room_of(planner: "Planner", job: Placed) -> Stay:
    """Say where and until when others can be inside of a job, if it is a container."""
    return Stay(job.start, job.stop, given(planner, job))


def stay_of(planner: "Planner", job: Placed) -> Stay:
    """Say what a job is in others' way with: a suspended one with less, one past its end for another second."""
    resources = given(planner, job)
    if job.state == JobState.SUSPENDED:
        resources = without(resources, _given_back(planner))
    stop = job.stop + planner.settings.security_time
    if job.state not in {JobState.WAITING, JobState.HOLD}:
        stop = max(stop, planner.now + 1)  # overdue, yet still there
    return Stay(job.start, stop, resources)


def besteffort(planner: "Planner") -> list[Holder]:
    """Give the best-effort jobs that have resources and could be told to leave."""
    return _holders(planner, ending=False)


def ending(planner: "Planner") -> list[Holder]:
    """Give the best-effort jobs that are about to leave."""
    return _holders(planner, ending=True)


def _holders(planner: "Planner", *, ending: bool) -> list[Holder]:
    jobs = [job for job in planner.placed.values() if "besteffort" in job.types]
    return [
        Holder(job.job_id, planner.kind(job), given(planner, job))
        for job in jobs
        if (job.state == JobState.FINISHING) is ending
    ]


def _given_back(planner: "Planner") -> int:
    """Give the resources that a suspended job leaves to others."""
    types = planner.layout.by_value("type") if "type" in planner.layout.table.columns else {}
    return union(types.get(kind, 0) for kind in planner.settings.shared_when_suspended)
