"""Multi-factor priority of jobs; the policy `multifactor` plans the highest priority first.

Every factor is between 0 and 1, so a weight is the most that its term can add:

    age        waiting time / age limit, at most 1
    share      2^(-used/target): 1 without usage, 1/2 at the target share, towards 0 above it
    size       the requested part of the cluster
    slowdown   waited / (waited + walltime): short jobs gain quickly
    qos        the site's value for the job's quality of service (type `qos=NAME`)
    project    the site's value for the job's project
"""

from collections.abc import Mapping

from oarlock.lang.duration import show
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Priority, PriorityTerm
from oarlock.model.snapshot import Usage, WaitingJob
from oarlock.plan.pass_state import PassState
from oarlock.plan.settings import PlanSettings


class PriorityCalculator:
    """Computes the current priorities of one queue's jobs."""

    def __init__(self, state: PassState, queue: str) -> None:
        self._state, self._now = state, state.now
        self._weights, self._targets = state.settings.weights, state.settings.fairness.user_targets
        self._used: Mapping[str, float] = state.usage.get(queue, Usage()).decayed_by_user
        self._all_used = sum(self._used.values()) or 1.0
        self._sizes: dict[int, float] = {}

    def order(self, jobs: list[WaitingJob], _usage: Usage, settings: PlanSettings) -> list[WaitingJob]:
        """Sort jobs by decreasing priority; ties go to the older job."""
        return sorted(jobs, key=lambda job: (-self.of(job).total, job.job_id))[: settings.depth]

    def of(self, job: WaitingJob) -> Priority:
        """Return the priority of a job; terms without a weight are left out."""
        weights = self._weights
        terms = (
            (weights.age, self._age),
            (weights.share, self._share),
            (weights.size, self._big),
            (weights.slowdown, self._slowdown),
            (weights.qos, self._qos),
            (weights.project, self._project),
        )
        weighed = tuple(_weighed(term(job), weight) for weight, term in terms if weight)
        return Priority(job.job_id, sum(term.value for term in weighed), weighed)

    def _waited(self, job: WaitingJob) -> int:
        return max(0, self._now - job.submitted)

    def _age(self, job: WaitingJob) -> PriorityTerm:
        limit = self._weights.age_limit
        return PriorityTerm(
            "age", min(self._waited(job), limit) / limit, f"waits {show(self._waited(job))} of {show(limit)}"
        )

    def _share(self, job: WaitingJob) -> PriorityTerm:
        used = self._used.get(job.user, 0.0) / self._all_used
        target = self._target(job.user)
        factor = 2.0 ** (-used / target) if target else float(not used)
        return PriorityTerm("share", factor, f"{job.user} used {used:.0%}, should {target:.0%}")

    def _target(self, user: str) -> float:
        """Return a user's target share: the site's, or an equal part of the rest among the other active users."""
        if user in self._targets:
            return self._targets[user] / 100
        others = {*self._used, user}.difference(self._targets)
        left = max(0.0, 100 - sum(self._targets.values()))
        return left / 100 / len(others)

    def _big(self, job: WaitingJob) -> PriorityTerm:
        part = min(map(self._size, (choice.shape for choice in job.choices)), default=0.0)
        return PriorityTerm("size", part, f"asks for {part:.0%} of the cluster")

    def _size(self, shape: int) -> float:
        """Return the part of all resources that a shape takes."""
        if shape not in self._sizes:
            self._sizes[shape] = self._measured(shape)
        return self._sizes[shape]

    def _measured(self, shape: int) -> float:
        existing = self._state.available.existing
        try:
            fit = self._state.fit(shape)
            taken = fit.take(self._state.units(fit, existing))
        except Exception:  # noqa: BLE001  (it is set aside when its turn comes; others must not notice)
            return 0.0
        return taken.bit_count() / max(existing.bit_count(), 1)

    def _slowdown(self, job: WaitingJob) -> PriorityTerm:
        walltime = min((choice.walltime for choice in job.choices), default=1)
        waited = self._waited(job)
        return PriorityTerm(
            "slowdown", waited / (waited + max(walltime, 1)), f"waits {show(waited)} for {show(walltime)}"
        )

    def _qos(self, job: WaitingJob) -> PriorityTerm:
        name = parse_types(job.types).qos or ""
        return PriorityTerm("qos", self._weights.qos_values.get(name, 0) / 100, name or "none asked for")

    def _project(self, job: WaitingJob) -> PriorityTerm:
        return PriorityTerm("project", self._weights.project_values.get(job.project, 0) / 100, job.project)


def _weighed(term: PriorityTerm, weight: float) -> PriorityTerm:
    return PriorityTerm(term.name, term.factor, term.says, weight)
