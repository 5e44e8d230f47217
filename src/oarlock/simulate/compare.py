"""Compare several policies on one trace, and estimate how much of a difference is chance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import mean, stdev
from typing import Any

from msgspec.structs import replace

from oarlock.model.errors import OarlockError
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.plan.policies import POLICIES, find_policy
from oarlock.plan.sets.layout import make_layout
from oarlock.plan.settings import PlanSettings
from oarlock.simulate.platform import Platform, fitted, from_table
from oarlock.simulate.replay import EventOrder, Replay, ReplayedJob, full_replay, identical_processors
from oarlock.simulate.statistics import Energy, PowerModel, ReplayStatistics, compute, of_nodes, of_pool
from oarlock.simulate.trace import Trace, by_submission

PERTURBED_STATISTICS = ("mean_wait", "bounded_slowdown", "utilisation", "makespan", "p95_wait", "fairness")
"""The statistics that are reported of perturbed replays."""

AS_IT_WAS = "as it was"

Progress = Callable[[str, int], None]
"""Told which replay is under way, and how many of its jobs are over."""


class UnknownReplayPolicy(OarlockError):
    """The name of a policy that does not exist."""

    def __init__(self, name: str) -> None:
        names = ", ".join(sorted(POLICIES, key=len))
        super().__init__(
            f"There is no policy `{name}`.",
            hint=f"There are {names}, depth-N and depth-N-sjbf, each with +multifactor or +predict.",
        )


@dataclass(frozen=True, slots=True)
class Perturbation:
    """So many replays more, in each of which every submission is moved by up to `shift` seconds; `seed` begins them."""

    runs: int = 0
    seed: int = 1
    shift: int = 60


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy: what became of each job, and what that means; `shaken` has mean and spread of the moved replays."""

    policy: str
    ran: list[ReplayedJob]
    measures: ReplayStatistics
    perturbed: dict[str, dict[str, float]]

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return self.measures.plain() | ({"shaken": self.perturbed} if self.perturbed else {})


@dataclass(frozen=True, slots=True)
class Comparison:
    """How replays are made: where, by whose rules for ties, what a node takes, and how often it is shaken.

    `full`: with everything that a server does for a job, not only the planner.
    """

    site: Platform
    ties: EventOrder = EventOrder.OURS
    power: PowerModel = field(default_factory=PowerModel)
    shaking: Perturbation = field(default_factory=Perturbation)
    foresee: bool = True
    full: bool = False

    def of(
        self, trace: Trace, policies: Sequence[str], progress: Progress = lambda _what, _over: None
    ) -> list[PolicyResult]:
        """Replay a trace under each policy; an unknown one is refused (`UnknownReplayPolicy`)."""
        for policy in policies:
            if find_policy(policy) is None:
                raise UnknownReplayPolicy(policy)
        adapted = fitted(trace, self.site)
        return [self._result_of(adapted, policy, progress) for policy in policies]

    def recorded(self, trace: Trace) -> PolicyResult:
        """Return what really became of the jobs of a trace that says how long each waited; nodes are not told apart."""
        adapted = fitted(trace, self.site)
        ran = [ReplayedJob(job, job.submitted + (job.waited or 0), None, 0) for job in adapted.jobs]
        energy = of_pool(ran, self.site.size, self.power)
        return PolicyResult(AS_IT_WAS, ran, compute(ran, size=self.site.size, submitted=len(ran), energy=energy), {})

    def _result_of(self, trace: Trace, policy: str, progress: Progress) -> PolicyResult:
        ran = self._replayed(trace, policy, partial(progress, policy))
        return PolicyResult(policy, ran, self._measured(ran, trace), self._shaken(trace, policy, progress))

    def _replayed(self, trace: Trace, policy: str, progress: Callable[[int], None]) -> list[ReplayedJob]:
        if self.full:
            table = self.site.resources if self.site.ground is None else identical_processors(self.site.size)
            return full_replay(trace, table, policy, progress=progress)
        site = self.site
        if site.ground is not None and {"multifactor", "predict"} & set(policy.split("+")):
            site = from_table(
                identical_processors(site.size)
            )  # who is where matters for what is planned anew each time
        return Replay(trace, site, policy, ties=self.ties, foresee=self.foresee).run(progress)

    def _measured(self, ran: list[ReplayedJob], trace: Trace) -> ReplayStatistics:
        return compute(ran, size=self.site.size, submitted=len(trace.jobs), energy=self._energy(ran))

    def _energy(self, ran: list[ReplayedJob]) -> Energy:
        if self.site.ground is not None:
            return of_pool(ran, self.site.size, self.power)
        layout = make_layout(self.site.resources, PlanSettings().order)
        processors = layout.by_value("type").get(DEFAULT_TYPE, 0)  # a licence takes no watts
        return of_nodes(ran, [node.bits for node in layout.nodes if node.bits & processors], self.power)

    def _shaken(self, trace: Trace, policy: str, progress: Progress) -> dict[str, dict[str, float]]:
        runs = []
        for turn in range(self.shaking.runs):
            random = Random(self.shaking.seed + turn)  # noqa: S311 - the same seed gives the same replay
            moved = perturbed(trace, self.shaking.shift, random)
            ran = self._replayed(moved, policy, partial(progress, f"{policy}, shaken {turn + 1}"))
            runs.append(self._measured(ran, moved))
        return {name: _spread([getattr(run, name) for run in runs]) for name in PERTURBED_STATISTICS} if runs else {}


def perturbed(trace: Trace, shift: int, random: Random) -> Trace:
    """Move every submission by up to `shift` seconds, earlier or later."""
    moved = [replace(job, submitted=max(job.submitted + random.randint(-shift, shift), 0)) for job in trace.jobs]
    return replace(trace, jobs=by_submission(moved))


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": mean(values),
        "spread": stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }
