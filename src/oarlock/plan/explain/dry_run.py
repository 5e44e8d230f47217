"""One job more in a plan that was just made: when would it start?"""

from oarlock.model.plan import Placement, Unplaced
from oarlock.model.snapshot import Shape, WaitingJob
from oarlock.plan.planner import Planner


def add_job(planner: Planner, job: WaitingJob) -> Placement | Unplaced:
    """Place a new job behind all others, in a plan that was just made."""
    planner.add(job)
    return planner.placements.get(job.job_id) or planner.unplaced[job.job_id]


def add_shape(planner: Planner, shape: Shape) -> int:
    """Make a shape known that no job asked for yet; gives its number."""
    planner.shapes.append(shape)
    return len(planner.shapes) - 1
