"""The actions that a plan needs now: jobs to start, jobs to kill, nodes to wake; and what placed jobs occupy."""

from typing import TYPE_CHECKING

from oarlock.model.event import Event
from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Plan, Unplaced
from oarlock.model.snapshot import PlacedJob, WaitingJob
from oarlock.plan.rules import reservations
from oarlock.plan.rules.besteffort import JobResources, is_in_the_way, jobs_to_kill
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancies import OccupancyKind
from oarlock.plan.timeline.occupancy import Occupation

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


def finish_plan(planner: "Planner", *, unfinished: bool) -> Plan:
    """Build the plan from the placements of a pass."""
    due, events = _due_reservations(planner) if planner.accepted else ([], [])
    starting = due + _starting(planner)
    kill: tuple[int, ...] = ()
    if planner.besteffort or any(job.kind.besteffort for job in starting):
        starting = _apart(starting)
        kill = jobs_to_kill(planner.besteffort, [*starting, *_soon(planner)])
    dying = union(holder.resources for holder in planner.besteffort if holder.job_id in kill) if kill else 0
    if planner.ending:  # no job is planned around best-effort jobs, so one that is still ending may delay a start
        starting = [job for job in starting if not any(is_in_the_way(last, job) for last in planner.ending)]
    missed = [job_id for job_id in planner.accepted if job_id in planner.unplaced and _is_missed(planner, job_id)]
    late = [job_id for job_id in planner.deadlines if _is_late(planner, planner.waiting[job_id])]
    answered = planner.answered
    start = [holder.job_id for holder in starting if not dying or not holder.resources & dying]
    return Plan(
        now=planner.now,
        ids=planner.layout.ids,
        placements=planner.placements,
        unplaced=planner.unplaced,
        start=tuple(start),
        accept=tuple([job_id for job_id in answered if job_id in planner.placements]),
        refuse=(*[job_id for job_id in answered if job_id in planner.unplaced], *missed, *late),
        kill=kill,
        wake=_to_wake(planner) if planner.available.asleep else (),
        orphans=_orphans(planner) if planner.containers.needed else (),
        events=(*planner.events, *events),
        unfinished=unfinished,
    )


def _starting(planner: "Planner") -> list[JobResources]:
    """Return the waiting jobs that are due and whose resources are all ready; inner jobs need a running container."""
    ready, all_ready = planner.available.ready, planner.available.ready == planner.available.existing
    now, waiting = planner.now, planner.waiting
    due = [
        _holder(planner, waiting[job_id], placement.resources)
        for job_id, placement in planner.placements.items()
        if placement.start <= now
        and job_id in waiting
        and (all_ready or placement.resources & ready == placement.resources)
    ]
    return [job for job in due if job.kind.container is None or not without(job.resources, _open(planner, job.kind))]


def _open(planner: "Planner", kind: OccupancyKind) -> int:
    """Return the resources that jobs of a kind can start on: for inner jobs, those of running container jobs."""
    return planner.layout.everything if kind.container is None else planner.containers.running(kind.container)


def _apart(starting: list[JobResources]) -> list[JobResources]:
    """Leave out best-effort jobs that were planned on resources where another job starts."""
    late = jobs_to_kill(
        [job for job in starting if job.kind.besteffort], [job for job in starting if not job.kind.besteffort]
    )
    return [job for job in starting if job.job_id not in late]


def _holder(planner: "Planner", job: WaitingJob | PlacedJob, resources: int) -> JobResources:
    return JobResources(job.job_id, planner.kind(job), without(resources, planner.available.always))


def _due_reservations(planner: "Planner") -> tuple[list[JobResources], list[Event]]:
    starting: list[JobResources] = []
    events: list[Event] = []
    for job in planner.accepted.values():
        if job.start > planner.now:
            continue
        resources = planner.layout.bits_of(job.resources)
        held = _held_by_others(planner, job, resources)
        ready = without(planner.available.ready, held) & _open(planner, planner.kind(job))
        due = reservations.decide_due(job, resources, ready, now=planner.now, patience=_patience(planner, held))
        events += due.events
        if due.placement is not None:
            planner.placements[job.job_id] = due.placement
            starting.append(_holder(planner, job, due.placement.resources))
        if due.unplaced is not None:
            planner.unplaced[job.job_id] = due.unplaced
    return starting, events


def _patience(planner: "Planner", held: int) -> int:
    """Return how long a reservation waits for missing resources: to its end if overdue jobs hold them."""
    return 1 << 40 if held else planner.settings.reservation_patience


def _held_by_others(planner: "Planner", job: PlacedJob, resources: int) -> int:
    """Return the resources of a reservation that overdue jobs still hold."""
    kind = planner.kind(job)
    return union(
        settled.occupation.resources & resources
        for other, settled in planner.occupancies.settled.items()
        if other in planner.placed
        and planner.placed[other].state in HOLDS_RESOURCES
        and kind.is_blocked_by(settled.kind)
        and settled.occupation.resources & resources
    )


def _soon(planner: "Planner") -> list[JobResources]:
    """Return the accepted reservations for which best-effort jobs are killed already."""
    notice = planner.settings.besteffort_notice
    return [
        _holder(planner, job, planner.layout.bits_of(job.resources))
        for job in planner.accepted.values()
        if job.state != JobState.HOLD and planner.now < job.start <= planner.now + notice
    ]


def _is_missed(planner: "Planner", job_id: int) -> bool:
    unplaced: Unplaced = planner.unplaced[job_id]
    return unplaced.obstacle == Obstacle.MISSED


def _is_late(planner: "Planner", job: WaitingJob) -> bool:
    """Return whether a job could not keep its deadline even if it started now."""
    if job.reservation == Reservation.TO_SCHEDULE or job.deadline is None or job.job_id not in planner.unplaced:
        return False
    return planner.now + min(choice.walltime for choice in job.choices) > job.deadline


def _orphans(planner: "Planner") -> tuple[int, ...]:
    """Return the running and waiting inner jobs whose container does not exist."""
    live = HOLDS_RESOURCES - {JobState.FINISHING}
    running = [
        job.job_id
        for job in planner.placed.values()
        if parse_types(job.types).inner is not None and job.state in live and planner.kind(job).container is None
    ]
    waiting = [
        job.job_id
        for job in planner.waiting.values()
        if job.types
        and (container := planner.containers.room_of(job)) is not None
        and planner.containers.is_gone(container)
    ]
    return (*running, *waiting)


def _to_wake(planner: "Planner") -> tuple[str, ...]:
    """Return the sleeping nodes with a planned start within the notice that waking takes."""
    horizon = planner.now + planner.settings.wake_up_notice
    asleep = union(bits for _, bits in planner.available.asleep)
    placements: list[Placement] = [p for p in planner.placements.values() if p.start <= horizon]
    soon = [job for job in planner.accepted.values() if job.start <= horizon and job.state != JobState.HOLD]
    accepted = [planner.layout.bits_of(job.resources) for job in soon]
    wanted = union([*accepted, *(placement.resources for placement in placements)])
    return tuple(planner.layout.nodes_of(wanted & asleep))


def own_resources(planner: "Planner", job: PlacedJob) -> int:
    """Return the resources of a job, without those that every job gets."""
    return without(planner.layout.bits_of(job.resources), planner.available.always)


def container_occupation(planner: "Planner", job: PlacedJob) -> Occupation:
    """Return the resources and time that a container job offers to inner jobs."""
    return Occupation(job.start, job.stop, own_resources(planner, job))


def occupation_of(planner: "Planner", job: PlacedJob) -> Occupation:
    """Return what a placed job occupies: less if it is suspended, one more second if it is overdue."""
    resources = own_resources(planner, job)
    if job.state == JobState.SUSPENDED:
        resources = without(resources, _given_back(planner))
    stop = job.stop + planner.settings.security_time
    if job.state not in {JobState.WAITING, JobState.HOLD}:
        stop = max(stop, planner.now + 1)  # overdue and not ended
    return Occupation(job.start, stop, resources)


def killable_jobs(planner: "Planner") -> list[JobResources]:
    """Return the best-effort jobs that hold resources and can be killed."""
    return _holders(planner, ending=False)


def ending_jobs(planner: "Planner") -> list[JobResources]:
    """Return the best-effort jobs that are ending."""
    return _holders(planner, ending=True)


def _holders(planner: "Planner", *, ending: bool) -> list[JobResources]:
    jobs = [job for job in planner.placed.values() if parse_types(job.types).besteffort]
    return [
        JobResources(job.job_id, planner.kind(job), own_resources(planner, job))
        for job in jobs
        if (job.state == JobState.FINISHING) is ending
    ]


def _given_back(planner: "Planner") -> int:
    """Return the resources that a suspended job releases."""
    types = planner.layout.by_value("type") if "type" in planner.layout.table.columns else {}
    return union(types.get(kind, 0) for kind in planner.settings.shared_when_suspended)
