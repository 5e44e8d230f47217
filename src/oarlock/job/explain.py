"""Explain why a job waits, when a new one could start, and what became of a reservation. Nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from oarlock.config import Config
from oarlock.job import queue_states
from oarlock.job.admission import dates
from oarlock.job.run import unknown_users
from oarlock.job.run.starting import schedule
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, Job, JobState, Reservation
from oarlock.model.plan import Obstacle, Placement, Unplaced, WaitReason
from oarlock.model.snapshot import Choice, Shape, SitePlan, WaitingJob
from oarlock.plan.explain import Explainer
from oarlock.plan.pass_state import PassState
from oarlock.plan.planner import add_job, add_shape, begin_pass, run_pass
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.planning import snapshot
from oarlock.store.queries.users import user_records

_NOT_YET = 1 << 62
"""The number of a job that has none: behind all others."""


_FOLLOWS = frozenset(
    {
        EventType.SEND_KILL_JOB,
        EventType.SWITCH_INTO_ERROR_STATE,
        EventType.HOLD_WAITING_JOB,
        EventType.RESUME_JOB,
        EventType.USER_MAIL_NOTIFICATION,  # which also names an address that is its owner's alone
        EventType.USER_EXEC_NOTIFICATION_ERROR,
    }
)
"""What happens to a job because something else did, and what never ends one."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When and where a job would start; `sooner` is a smaller request that would start at once."""

    start: int | None
    nodes: tuple[str, ...]
    says: str
    sooner: str | None = None


@dataclass(frozen=True, slots=True)
class ReservationOutcome:
    """What the scheduler decided about a reservation; `accepted` is None while it is undecided.

    `start` is when it begins; when a refused one could. `held`: it is not scheduled until its owner resumes it.
    """

    accepted: bool | None
    says: str = ""
    start: int | None = None
    held: bool = False

    @property
    def is_final(self) -> bool:
        """Whether it makes no sense to wait for another answer."""
        return self.accepted is not None or self.held


def why(
    tx: Tx, config: Config, job_id: int, *, now: int, site_plans: Mapping[str, SitePlan] | None = None
) -> WaitReason:
    """Return why a job does not run (`UnknownJob` if there is none)."""
    job = jobs.get(tx, job_id)
    if job.state is not JobState.WAITING:
        # A reservation that never ran has the date that was asked for, at which nothing started.
        start = job.start if job.assigned else 0
        return WaitReason(job_id, Obstacle.BUSY, _standing(job.state) + _cause(tx, job), start or None)
    doubt = user_records.doubt_of(tx, job.user, now=now)
    if doubt is not None:
        return WaitReason(job_id, Obstacle.POSTPONED, unknown_users.sentence(doubt))
    state, seen = _planned(tx, config, now, site_plans)
    broken = dict(seen.broken)
    if job_id in broken:
        return WaitReason(job_id, Obstacle.SET_ASIDE, broken[job_id])
    if job_id in seen.held_back:
        return WaitReason(job_id, Obstacle.ARRAY_LIMIT, seen.held_back[job_id].says)
    if job_id not in state.waiting:
        return _accepted(state, job)
    reason = Explainer(state).why(job_id)
    if reason.obstacle is Obstacle.QUEUE_STOPPED and (cause := queue_states.why_stopped(tx)):
        return structs.replace(reason, says=f"{reason.says}: {cause}")
    return reason


def _accepted(state: PassState, job: Job) -> WaitReason:
    """Return what an accepted reservation waits for: its date, or what is missing when that has come."""
    placed = state.accepted.get(job.id)
    if placed is None or placed.start > state.now:
        return WaitReason(job.id, Obstacle.BUSY, "it is a reservation that waits for its date", job.start or None)
    unplaced = state.unplaced.get(job.id)
    obstacle = Obstacle.BUSY if unplaced is None else unplaced.obstacle
    if obstacle is Obstacle.MISSED and unplaced is not None:
        return WaitReason(job.id, obstacle, unplaced.detail)
    return WaitReason(job.id, obstacle, Explainer(state).overdue(placed))


def _standing(state: JobState) -> str:
    if state in FINAL:
        return f"it is over ({state})"
    return "it is held; `oarresume` lets it go on" if state is JobState.HOLD else f"it does not wait: it is {state}"


def _cause(tx: Tx, job: Job) -> str:
    """Return what brought a job into Error: the last event before it."""
    if job.state is not JobState.ERROR:
        return ""
    history = [noted.event for noted in events.of_jobs(tx, [job.id])]
    causes = [event.description for event in history if event.type not in _FOLLOWS] or [job.message]
    return f": {causes[-1]}" if causes[-1] else ""


def when(
    tx: Tx, config: Config, new: new_jobs.NewJob, *, now: int, site_plans: Mapping[str, SitePlan] | None = None
) -> StartEstimate:
    """Return when and where a job would start if it were submitted now."""
    state, _ = _planned(tx, config, now, site_plans)
    choices = tuple(
        Choice(-index, add_shape(state, Shape(alternative.groups, new.request.where)), alternative.walltime or 0)
        for index, alternative in enumerate(new.request.alternatives, 1)
    )
    job = new.job
    waiting = WaitingJob(
        job_id=_NOT_YET,
        user=job.user,
        queue=job.queue,
        choices=choices,
        project=job.project,
        name=job.name,
        submitted=now,
        types=job.types,
        reservation=job.reservation,
        start=job.start,
    )
    placement = add_job(state, dates.dated(waiting))
    if job.reservation is not Reservation.NONE:
        return _reservation_estimate(state, placement)
    reason = Explainer(state).why(_NOT_YET)
    if isinstance(placement, Placement):
        return StartEstimate(
            placement.start, tuple(state.layout.nodes_of(placement.resources)), reason.says, reason.smaller
        )
    return StartEstimate(None, (), reason.says, reason.smaller)


def _reservation_estimate(state: PassState, placement: Placement | Unplaced) -> StartEstimate:
    """Return whether a reservation would be accepted; its date is fixed, so no smaller request starts sooner."""
    if isinstance(placement, Placement):
        nodes = tuple(state.layout.nodes_of(placement.resources))
        return StartEstimate(placement.start, nodes, "yes: the reservation would be accepted")
    return StartEstimate(None, (), f"no: {placement.detail}")


def reservation(tx: Tx, job_id: int) -> ReservationOutcome:
    """Return what became of a reservation so far."""
    job = jobs.get(tx, job_id)
    if job.state is JobState.ERROR:
        return ReservationOutcome(accepted=False, says=job.message, start=dates.date_in(job.message))
    if job.reservation is Reservation.SCHEDULED:
        return ReservationOutcome(accepted=True, says="the reservation is accepted", start=job.start)
    if job.state is JobState.HOLD:
        says = f"The reservation is held; the scheduler answers it after `oarresume {job_id}`."
        return ReservationOutcome(accepted=None, says=says, held=True)
    return ReservationOutcome(accepted=None)


def _planned(
    tx: Tx, config: Config, now: int, site_plans: Mapping[str, SitePlan] | None
) -> tuple[PassState, snapshot.SnapshotRead]:
    how = schedule.plan_settings(config)
    seen = schedule.read(tx, how, karma_window=config.karma_window, now=now, site_plans=site_plans)
    state = begin_pass(seen.snapshot, now=now, settings=how)
    run_pass(state)
    return state, seen
