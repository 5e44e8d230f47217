"""The pass over one queue: its jobs in the order of its policy, with backfilling.

New reservations come first, then the other jobs in order. As long as the policy has dates to promise, a job gets the
earliest place that delays no job before it; after that, jobs can only start now (backfill) or wait. The caller may stop
between two jobs and continue later.
"""

from bisect import insort
from typing import TYPE_CHECKING

from oarlock.model.job import Reservation
from oarlock.model.plan import Obstacle, Unplaced
from oarlock.model.snapshot import Usage, WaitingJob
from oarlock.plan import commitments, unread_jobs
from oarlock.plan.policy.policies import Backfill, Policy
from oarlock.plan.rules.dependencies import Blocked
from oarlock.plan.rules.search import PlacementOption

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


class QueuePass:
    """The state of the pass over a queue: `jobs[at:]` are not planned yet; the first `dated` jobs are new reservations.

    `strict_order`: no job may be backfilled. `only_starts`: the remaining jobs can only start now.
    """

    def __init__(
        self, planner: "Planner", policy: Policy, dated: list[WaitingJob], undated: list[WaitingJob], usage: Usage
    ) -> None:
        self._planner, self._shortest_first = planner, policy.backfill is Backfill.SHORTEST_FIRST
        self._dates = policy.reservations  # how many dates may still be promised; None: no limit
        self.strict_order, self.only_starts = policy.backfill is Backfill.NOBODY, False
        self._no_dates = False  # it was certain that there are none, before unread jobs came first
        chosen = policy.order(undated, usage, planner.settings)
        self.jobs, self.at, self.dated = dated + chosen if dated else chosen, 0, len(dated)
        self._place = planner.improve_place if policy.keeps_dates else planner.place
        if policy.keeps_dates and planner.promised:
            commitments.place_promised(planner, chosen)
        if len(chosen) < len(undated):
            among = {job.job_id for job in chosen}
            left = [job for job in undated if job.job_id not in among]
            planner.set_unplaced(left, Obstacle.FAR_BACK, f"{len(chosen)} jobs of its queue come first")

    def step(self) -> bool:
        """Plan the next job; False if there is none."""
        if self.over:
            return False
        job = self.jobs[self.at]
        self.at += 1
        planner = self._planner
        if planner.before_unread is None:
            self._no_dates = self.only_starts
        self._give_turn(job)
        if job.unread or planner.before_unread is not None:
            planner.plan_safely(job, self._keep_room)
        return True

    def _give_turn(self, job: WaitingJob) -> None:
        planner = self._planner
        if job.reservation == Reservation.TO_SCHEDULE:
            planner.plan_safely(job, planner.answer_reservation)
        elif self.only_starts:
            planner.plan_safely(job, self._start_now)
        elif self._dates is None:
            planner.plan_safely(job, self._place)
        else:
            self._promise(job)

    def _keep_room(self, job: WaitingJob) -> None:
        unread_jobs.keep_room(self._planner, job, dates=not self._no_dates)

    def skip_to(self, at: int) -> None:
        """Skip the next jobs without a reason: the caller knows that they cannot start now."""
        self.at = at

    def append(self, job: WaitingJob) -> None:
        """Append a job to the queue; in shortest-first order, after the jobs that are equally short."""
        if self.only_starts and self._shortest_first:
            insort(self.jobs, job, lo=self.at, key=_shortness)
        else:
            self.jobs.append(job)

    @property
    def over(self) -> bool:
        """Whether every job was planned."""
        return self.at >= len(self.jobs)

    @property
    def left(self) -> list[WaitingJob]:
        """The jobs that are not planned yet."""
        return self.jobs[self.at :]

    @property
    def _before(self) -> str:
        count = self.at - 1
        return f"{count} {'job' if count == 1 else 'jobs'} of its queue {'comes' if count == 1 else 'come'} first"

    def _promise(self, job: WaitingJob) -> None:
        """Place a job; a start later than now uses up one of the dates that the policy may promise."""
        planner = self._planner
        planner.plan_safely(job, self._place_if_free_to_go)
        placement = planner.placements.get(job.job_id)
        if placement is None or placement.start <= planner.now or self._dates is None:
            return
        self._dates -= 1
        self.only_starts = not self._dates
        if self.only_starts and self._shortest_first:
            self.jobs[self.at :] = sorted(self.jobs[self.at :], key=_shortness)

    def _place_if_free_to_go(self, job: WaitingJob) -> None:
        """Place a job unless it waits for other jobs: it would use up a date that another job could have."""
        if not must_wait(self._planner, job):
            self._planner.place(job)

    def _start_now(self, job: WaitingJob) -> None:
        if self.strict_order:
            self._planner.set_unplaced(
                [job], Obstacle.FAR_BACK, f"{self._before}, and nobody passes; no date is promised"
            )
        else:
            start_now(self._planner, job, otherwise=f"{self._before}; no date is promised")


def _shortness(job: WaitingJob) -> int:
    return min((choice.walltime for choice in job.choices), default=0)


def start_now(planner: "Planner", job: WaitingJob, *, otherwise: str) -> None:
    """Start a job now if that delays no job with a date; if it cannot, record the reason (`otherwise` by default)."""
    if must_wait(planner, job):
        return
    kind, limits = planner.kind(job), planner.limits
    occupancy = planner.occupancies.occupancy(kind)
    free = [
        PlacementOption(choice, fit, window)
        for choice in job.choices
        if (window := occupancy.find_now(fit := planner.fit(choice.shape), planner.hole_length(kind, choice.walltime)))
        is not None
    ]
    options = [allowed for option in free if (allowed := limits.restrict(job, kind, option)) is not None]
    if options:
        planner.place_before_deadline(job, kind, occupancy, min(options, key=lambda option: option.end))
    elif broken := next((says for option in free if (says := limits.quota_broken_by(job, kind, option))), ""):
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.QUOTA, broken)
    elif any(planner.fits_empty_cluster(choice.shape) for choice in job.choices):
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.FAR_BACK, otherwise)
    else:
        planner.unplaced[job.job_id] = planner.why_never(job, kind)


def must_wait(planner: "Planner", job: WaitingJob) -> bool:
    """Return whether a job has to wait for dependencies or its own date; if so, record the reason."""
    earliest, now = planner.earliest(job), planner.now
    if isinstance(earliest, Blocked):
        planner.unplaced[job.job_id] = Unplaced(job.job_id, earliest.obstacle, earliest.detail)
    elif earliest > now and earliest == job.not_before:
        reason = "it asked not to start yet; no date is promised"
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.POSTPONED, reason, job.not_before)
    elif earliest > now:
        required = max((needed.job_id for needed in job.after if needed.job_id in planner.ends), default=0)
        reason = f"it waits for job {required}, which is not over; no date is promised"
        planner.unplaced[job.job_id] = Unplaced(job.job_id, Obstacle.DEPENDENCY, reason)
    else:
        return False
    return True
