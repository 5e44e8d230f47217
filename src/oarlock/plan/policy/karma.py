"""The manual's fair sharing: who used more than their share waits longer."""

from oarlock.model.snapshot import Usage, WaitingJob
from oarlock.plan.settings import Fairness


def karma(job: WaitingJob, usage: Usage, fairness: Fairness) -> float:
    """Return the karma of a job; the lower, the sooner it is planned."""
    return karma_of(job.user, job.project, usage, fairness)


def karma_of(user: str, project: str, usage: Usage, fairness: Fairness) -> float:
    """Return how far a user and a project are above their share."""
    used, asked = usage.used or 1, usage.asked or 1
    user_target = fairness.user_targets.get(user, 0) / 100
    project_target = fairness.project_targets.get(project, 0) / 100
    return (
        fairness.project_weight * (usage.used_by_project.get(project, 0) / used - project_target)
        + fairness.user_weight * (usage.used_by_user.get(user, 0) / used - user_target)
        + fairness.asked_weight * (usage.asked_by_user.get(user, 0) / asked - user_target)
    )


def by_karma(jobs: list[WaitingJob], usage: Usage, fairness: Fairness) -> list[WaitingJob]:
    """Order jobs by karma, the older first on equality; at most as many as one pass treats."""
    return sorted(jobs, key=lambda job: (karma(job, usage, fairness), job.job_id))[: fairness.max_jobs]
