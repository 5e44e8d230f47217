"""The actions that a plan needs now: jobs to start, jobs to kill, nodes to wake."""

from collections.abc import Iterable

from oarlock.model.event import Event
from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Obstacle, Placement, Plan, Unplaced, union, without
from oarlock.model.snapshot import PlacedJob, WaitingJob
from oarlock.plan.pass_state import JobResources, PassState
from oarlock.plan.rules import reservations
from oarlock.plan.timeline.occupancies import OccupancyKind


def finish_plan(state: PassState, *, unfinished: bool) -> Plan:
    """Build the plan from the placements of a pass."""
    due, events = _due_reservations(state) if state.accepted else ([], [])
    starting = due + _starting(state)
    kill: tuple[int, ...] = ()
    if state.besteffort or any(job.kind.besteffort for job in starting):
        starting = _apart(starting)
        kill = jobs_to_kill(state.besteffort, [*starting, *_soon(state)])
    dying = union(holder.resources for holder in state.besteffort if holder.job_id in kill) if kill else 0
    if state.ending:  # no job is planned around best-effort jobs, so one that is still ending may delay a start
        starting = [job for job in starting if not any(is_in_the_way(last, job) for last in state.ending)]
    missed = [job_id for job_id in state.accepted if job_id in state.unplaced and _is_missed(state, job_id)]
    late = [job_id for job_id in state.deadlines if _is_late(state, state.waiting[job_id])]
    answered = state.answered
    start = [holder.job_id for holder in starting if not dying or not holder.resources & dying]
    return Plan(
        now=state.now,
        ids=state.layout.ids,
        placements=state.placements,
        unplaced=state.unplaced,
        start=tuple(start),
        accept=tuple([job_id for job_id in answered if job_id in state.placements]),
        refuse=(*[job_id for job_id in answered if job_id in state.unplaced], *missed, *late),
        kill=kill,
        wake=_to_wake(state) if state.available.asleep else (),
        orphans=_orphans(state) if state.containers.needed else (),
        events=(*state.events, *events),
        unfinished=unfinished,
    )


def _starting(state: PassState) -> list[JobResources]:
    """Return the waiting jobs that are due and whose resources are all ready; inner jobs need a running container."""
    ready, all_ready = state.available.ready, state.available.ready == state.available.existing
    now, waiting = state.now, state.waiting
    due = [
        _holder(state, waiting[job_id], placement.resources)
        for job_id, placement in state.placements.items()
        if placement.start <= now
        and job_id in waiting
        and (all_ready or placement.resources & ready == placement.resources or _is_permissive(waiting[job_id]))
    ]
    return [job for job in due if job.kind.container is None or not without(job.resources, _open(state, job.kind))]


def _is_permissive(job: WaitingJob) -> bool:
    """Return whether a job starts on resources that are not Alive as well."""
    return bool(job.types) and parse_types(job.types).permissive


def _open(state: PassState, kind: OccupancyKind) -> int:
    """Return the resources that jobs of a kind can start on: for inner jobs, those of running container jobs."""
    return state.layout.everything if kind.container is None else state.containers.running(kind.container)


def _apart(starting: list[JobResources]) -> list[JobResources]:
    """Leave out best-effort jobs that were planned on resources where another job starts."""
    late = jobs_to_kill(
        [job for job in starting if job.kind.besteffort], [job for job in starting if not job.kind.besteffort]
    )
    return [job for job in starting if job.job_id not in late]


def _holder(state: PassState, job: WaitingJob | PlacedJob, resources: int) -> JobResources:
    return JobResources(job.job_id, state.kind(job), without(resources, state.available.always))


def _due_reservations(state: PassState) -> tuple[list[JobResources], list[Event]]:
    starting: list[JobResources] = []
    events: list[Event] = []
    for job in state.accepted.values():
        if job.start > state.now:
            continue
        resources = state.layout.bits_of(job.resources)
        held = _held_by_others(state, job, resources)
        kind = state.kind(job)
        startable = state.available.existing if kind.permissive else state.available.ready
        ready = without(startable, held) & _open(state, kind)
        due = reservations.decide_due(job, resources, ready, now=state.now, patience=_patience(state, held))
        events += due.events
        if due.placement is not None:
            state.placements[job.job_id] = due.placement
            starting.append(_holder(state, job, due.placement.resources))
        if due.unplaced is not None:
            state.unplaced[job.job_id] = due.unplaced
    return starting, events


def _patience(state: PassState, held: int) -> int:
    """Return how long a reservation waits for missing resources: to its end if overdue jobs hold them."""
    return 1 << 40 if held else state.settings.reservation_patience


def _held_by_others(state: PassState, job: PlacedJob, resources: int) -> int:
    """Return the resources of a reservation that overdue jobs still hold."""
    kind = state.kind(job)
    return union(
        settled.occupation.resources & resources
        for other, settled in state.occupancies.settled.items()
        if other in state.placed
        and state.placed[other].state in HOLDS_RESOURCES
        and kind.is_blocked_by(settled.kind)
        and settled.occupation.resources & resources
    )


def _soon(state: PassState) -> list[JobResources]:
    """Return the accepted reservations for which best-effort jobs are killed already."""
    notice = state.settings.besteffort_notice
    return [
        _holder(state, job, state.layout.bits_of(job.resources))
        for job in state.accepted.values()
        if job.state != JobState.HOLD and state.now < job.start <= state.now + notice
    ]


def _is_missed(state: PassState, job_id: int) -> bool:
    unplaced: Unplaced = state.unplaced[job_id]
    return unplaced.obstacle == Obstacle.MISSED


def _is_late(state: PassState, job: WaitingJob) -> bool:
    """Return whether a job could not keep its deadline even if it started now."""
    if job.reservation == Reservation.TO_SCHEDULE or job.deadline is None or job.job_id not in state.unplaced:
        return False
    return state.now + min(choice.walltime for choice in job.choices) > job.deadline


def _orphans(state: PassState) -> tuple[int, ...]:
    """Return the running and waiting inner jobs whose container does not exist."""
    live = HOLDS_RESOURCES - {JobState.FINISHING}
    running = [
        job.job_id
        for job in state.placed.values()
        if parse_types(job.types).inner is not None and job.state in live and state.kind(job).container is None
    ]
    waiting = [
        job.job_id
        for job in state.waiting.values()
        if job.types
        and (container := state.containers.room_of(job)) is not None
        and state.containers.is_gone(container)
    ]
    return (*running, *waiting)


def _to_wake(state: PassState) -> tuple[str, ...]:
    """Return the sleeping nodes with a planned start within the notice that waking takes."""
    horizon = state.now + state.settings.wake_up_notice
    asleep = union(bits for _, bits in state.available.asleep)
    placements: list[Placement] = [p for p in state.placements.values() if p.start <= horizon]
    soon = [job for job in state.accepted.values() if job.start <= horizon and job.state != JobState.HOLD]
    accepted = [state.layout.bits_of(job.resources) for job in soon]
    wanted = union([*accepted, *(placement.resources for placement in placements)])
    return tuple(state.layout.nodes_of(wanted & asleep))


def jobs_to_kill(running: Iterable[JobResources], newcomers: Iterable[JobResources]) -> tuple[int, ...]:
    """Return the best-effort jobs that hold resources of newcomers; one that timeshares with all of them survives."""
    arriving = list(newcomers)
    return tuple(job.job_id for job in running if any(is_in_the_way(job, newcomer) for newcomer in arriving))


def is_in_the_way(job: JobResources, newcomer: JobResources) -> bool:
    """Return whether a best-effort job has to be killed before a newcomer can start."""
    if job.job_id == newcomer.job_id or not job.resources & newcomer.resources:
        return False
    if job.kind.container != newcomer.kind.container or (
        job.kind.placeholder and job.kind.placeholder == newcomer.kind.allowed
    ):
        return False  # inner jobs, and jobs that a placeholder is meant for, do not kill it
    return job.kind.sharing is None or job.kind.sharing != newcomer.kind.sharing
