"""In which order the jobs of a queue are planned. A policy is a name that the manual (or a site) gives a queue."""

from collections.abc import Callable, Mapping

from oarlock.model.snapshot import Usage, Waiting
from oarlock.plan.karma import by_karma
from oarlock.plan.settings import PlanSettings

Policy = Callable[[list[Waiting], Usage, PlanSettings], list[Waiting]]
"""Jobs by increasing id → the jobs to plan, in order; those left out are not planned in this pass."""


def fifo(jobs: list[Waiting], usage: Usage, settings: PlanSettings) -> list[Waiting]:  # noqa: ARG001
    """First come, first planned."""
    return jobs[: settings.depth]


def fair(jobs: list[Waiting], usage: Usage, settings: PlanSettings) -> list[Waiting]:
    """Who used less comes first."""
    return by_karma(jobs, usage, settings.fairness)[: settings.depth]


POLICIES: Mapping[str, Policy] = {
    "oar_sched_gantt_with_timesharing": fifo,
    "oar_sched_gantt_with_timesharing_and_fairsharing": fair,
}
"""The manual's two schedulers."""
