"""Starting at once: jobs that are promised no date start now, where they delay nobody who has one, or wait."""

from typing import TYPE_CHECKING

from oarlock.model.plan import Obstacle, Unplaced
from oarlock.model.snapshot import WaitingJob
from oarlock.plan.rules.dependencies import Blocked
from oarlock.plan.rules.search import PlacementOption

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


def start(planner: "Planner", job: WaitingJob, *, otherwise: str) -> None:
    """Start a job at once where it delays nobody who has a date; if it cannot, `otherwise` tells why."""
    if must_wait(planner, job):
        return
    kind, limits = planner.kind(job), planner.limits
    chart = planner.occupancies.chart(kind)
    free = [
        PlacementOption(choice, fit, found)
        for choice in job.choices
        if (found := chart.find_now(fit := planner.fit(choice.shape), planner.sought(kind, choice.walltime)))
        is not None
    ]
    options = [one for option in free if (one := limits.now(job, kind, option)) is not None]
    if options:
        planner.settle_in_time(job, kind, chart, min(options, key=lambda option: option.end))
    elif broken := next((says for one in free if (says := limits.broken_by(job, kind, one))), ""):
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.QUOTA, broken)
    elif any(planner.could_ever_start(choice.shape) for choice in job.choices):
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, otherwise)
    else:
        planner.unplaced[job.job_id] = planner.why_never(job, kind)


def must_wait(planner: "Planner", job: WaitingJob) -> bool:
    """Say whether a job has to wait for others to end, or for its own date; if so it is told."""
    earliest, now = planner.earliest(job), planner.now
    if isinstance(earliest, Blocked):
        planner.unplaced[job.job_id] = Unplaced(job.job_id, earliest.obstacle, earliest.detail)
    elif earliest > now and earliest == job.not_before:
        told = "it asked not to start yet; no date is promised"
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.POSTPONED, told, job.not_before)
    elif earliest > now:
        required = max((needed.job_id for needed in job.after if needed.job_id in planner.ends), default=0)
        told = f"it waits for job {required}, which is not over; no date is promised"
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.DEPENDENCY, told)
    else:
        return False
    return True
