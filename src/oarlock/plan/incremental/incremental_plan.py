"""The incremental plan: handles one event at a time, with the decisions of a full pass on the same snapshot.

Two sets of occupancies are kept. The *base* contains placed jobs: running ones and accepted reservations. Those of the
pass contain the waiting jobs too. An event changes the base only locally: an early end releases the job's resources, a
start occupies them.

A pass decides which jobs start now, and inside a pass free sets only shrink. So before each job the plan checks whether
any class of remaining jobs could start now; as soon as none could, the pass is suspended: all starts are known. It is
resumed when a new job comes that could start, and restarted when resources were released. Jobs that it did not reach
keep the dates of an older pass until `refresh` completes it. Where limits or own dates restrict jobs, every decision is
a full pass (`planner.replan`).
"""

from heapq import heapify, heappop, heappush

from msgspec.structs import replace

from oarlock.model.job import FINAL, HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Placement, Plan
from oarlock.model.snapshot import Dependency, PlacedJob, Snapshot, Usage, WaitingJob
from oarlock.plan.actions import finish_plan
from oarlock.plan.incremental.start_candidates import StartCandidates, StartClasses
from oarlock.plan.pass_state import QueuePass, add_placed, restart, update_besteffort
from oarlock.plan.planner import (
    OutOfTime,
    RunHistory,
    begin_pass,
    begin_queue,
    needs_full_passes,
    needs_full_passes_itself,
    never,
    plan_next,
    replan,
)
from oarlock.plan.policies import Backfill, fifo, find_policy
from oarlock.plan.rules import reservations
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancy import FOREVER, PlanInputs, inputs_from_table


class IncrementalPlan:
    """A plan that is updated from event to event.

    Feed it events (`submitted`, `started`, `accepted`, `ended`) and the time (`advance`), then call `decide`. New
    resources or settings need a new plan. `punctual`: no job is ever overdue; otherwise a job past its walltime holds
    its resources until it is reported as ended.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: int,
        settings: PlanSettings | None = None,
        inputs: PlanInputs | None = None,
        punctual: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._inputs = inputs or inputs_from_table(snapshot.resources, settings or PlanSettings(), now)
        self.state = begin_pass(snapshot, now=now, settings=settings or PlanSettings(), inputs=self._inputs)
        self._limited, self._memory = (
            needs_full_passes(self.state, snapshot.waiting),
            RunHistory(snapshot.recent),
        )
        self.now, self._punctual = now, punctual
        self._base, self._ends = self.state.occupancies, self.state.ends
        self._queues: dict[str, dict[int, WaitingJob]] = {}
        self._classes = StartClasses(self.state)
        self._waits_for: dict[int, set[int]] = {}
        self._older = dict(self.state.promised)
        for job in snapshot.waiting:
            self._admit(job)
        self._stale = True
        self._queue_passes: list[QueuePass | None] = []
        self._candidates = StartCandidates({})
        self._unanswered, self._due = set[int](), set[int]()
        self._on_base, self._to_do = True, True
        self._edges = [FOREVER, *(until for until, _ in self.state.available.asleep)]
        for settled in self._base.settled.values():
            self._edges += (settled.occupation.start, settled.occupation.stop)
        self._edges += (job.stop for job in snapshot.placed)
        heapify(self._edges)
        policies = [policy for queue in snapshot.queues if (policy := find_policy(queue.built_in)) is not None]
        self._keeps_dates = any(policy.keeps_dates for policy in policies)
        # Where an order leaves jobs out, others move up when jobs leave the queue.
        self._in_order = self.state.settings.depth is None and all(policy.order is fifo for policy in policies)
        self._some_strict_order = any(policy.backfill is Backfill.NOBODY for policy in policies)
        self._always_whole = bool(self.state.available.asleep) or self._keeps_dates

    # Events.

    def submitted(self, job: WaitingJob) -> None:
        """Add a waiting job."""
        self.state.waiting[job.job_id] = job
        self._limited = self._limited or needs_full_passes_itself(job)
        self._admit(job)
        if self._stale:
            return
        queue_pass = self._appendable_pass(job) if self._queue_passes else None
        if queue_pass is not None:
            queue_pass.append(job)
        elif self._queue_passes or job.reservation == Reservation.TO_SCHEDULE:
            self._stale = True
        self._candidates.come(self._classes.of(job.job_id))

    def started(self, job_id: int) -> None:
        """Record that a job that was decided to start now runs; reservations too."""
        state = self.state
        if job_id in state.placed:
            place = state.placements.pop(job_id)
            self._replace_placed(
                replace(
                    state.accepted.pop(job_id),
                    state=JobState.RUNNING,
                    start=place.start,
                    resources=state.layout.ids_of(place.resources),
                )
            )
        else:
            self._move_to_placed(job_id, JobState.RUNNING, Reservation.NONE)

    def accepted(self, job_id: int) -> None:
        """Record that a reservation was accepted."""
        self._move_to_placed(job_id, JobState.WAITING, Reservation.SCHEDULED)

    def ended(self, job_id: int, *, state: JobState = JobState.TERMINATED, exit_code: int = 0) -> None:
        """Record that a job ended or was withdrawn."""
        if job_id in self.state.waiting:
            self._drop_waiting(job_id)
            self._stale = True
        else:
            placed = self.state.placed.pop(job_id)
            if self._limited:
                self._memory.ended(self.state, placed)
            self.state.accepted.pop(job_id, None)
            settled = self._base.remove(job_id)
            if (container := self.state.containers.close(job_id)) is not None:
                self._base.forget_container(container)
            self._stale = self._stale or settled.occupation.stop > self.now
            if parse_types(placed.types).besteffort:  # its resources need not be avoided any more
                update_besteffort(self.state)
                self._stale = True
        self._ends.pop(job_id, None)
        self._release_dependants(job_id, state, exit_code)

    def has_place(self, job: PlacedJob) -> None:
        """Set a job's place to the one in a snapshot, whatever was recorded before."""
        if job.job_id in self.state.waiting:
            self._drop_waiting(job.job_id)
        self.state.accepted.pop(job.job_id, None)
        if reservations.is_accepted(job):
            self.state.accepted[job.job_id] = job
        self._ends[job.job_id] = max(job.stop, self.now + 1)
        heappush(self._edges, job.stop)
        self._replace_placed(job)

    def changed(self, job: WaitingJob) -> None:
        """Replace a waiting job by its new version."""
        self._drop_waiting(job.job_id)
        self._stale = True
        self.submitted(job)

    def used(self, usage: dict[str, Usage]) -> None:
        """Set the accounted usage; where usage orders jobs, the pass restarts."""
        if usage != self.state.usage:
            self.state.usage = usage
            self._stale = self._stale or not self._in_order

    def advance(self, now: int) -> None:
        """Move the clock forward."""
        # A job ended or should have started and did not, or an answered reservation was not recorded.
        if now >= self._edges[0] or ((self._due or self.state.dated) and now > self.now):
            self._stale = True
            while self._edges[0] <= now:
                heappop(self._edges)
        self.now = self.state.now = now
        self._base.advance(now)
        if not self._on_base and not self._stale:
            self.state.occupancies.advance(now)

    # Decisions.

    def decide(self) -> Plan:
        """Return what has to happen now (starts, answered reservations, kills), exactly as a full pass would.

        Dates of waiting jobs are present only as far as the pass had to go.
        """
        return self._decided(whole=self._always_whole)

    def refresh(self, out_of_time: OutOfTime = never) -> Plan:
        """Complete the pass, so that every date is current; a pass that ran out of time continues at the next call."""
        return self._decided(whole=True, out_of_time=out_of_time)

    def promise(self) -> Plan:
        """Plan as far as policies promise dates, whether jobs start or not."""
        return self._decided(whole=self._always_whole, dates=True)

    def _decided(self, *, whole: bool, dates: bool = False, out_of_time: OutOfTime = never) -> Plan:
        if self._limited:
            plan = replan(self._snapshot, self._inputs, self.state, self._older if self._keeps_dates else None)
            self._older.update(plan.placements)
            return plan
        state = self.state
        if self._stale and not (state.waiting or state.accepted or state.placements or state.unplaced):
            # No job waits: the pass begins when one does.
            return Plan(now=self.now, ids=state.layout.ids, placements={}, unplaced={})
        if (
            self._continue_pass(whole=whole, dates=dates, out_of_time=out_of_time)
            or self._due
            or self._to_do
            or state.accepted
        ):
            plan = finish_plan(state, unfinished=whole and self._current_pass(whole=True) is not None)
            self._to_do = bool(plan.accept or plan.refuse or plan.kill or plan.wake)
            waiting, now = state.waiting, self.now
            self._due = {number for number, place in state.placements.items() if place.start <= now} & waiting.keys()
        else:
            plan = Plan(now=self.now, ids=state.layout.ids, placements=state.placements, unplaced=state.unplaced)
        # The pass may continue later, and must not change a plan that was returned.
        state.placements, state.unplaced = state.placements.copy(), state.unplaced.copy()
        return plan

    def has_room(self, job: WaitingJob) -> bool:
        """Return whether a job fits into what is free at this instant."""
        occupancy, choices = self._base.occupancy(self.state.kind(job)), job.choices
        return any(occupancy.find_now(self.state.fit(choice.shape), 1) is not None for choice in choices)

    def foreseen(self, job_id: int) -> Placement | None:
        """Return the latest placement of a waiting job; it may come from an older pass."""
        return self.state.placements.get(job_id) or self._older.get(job_id)

    # The pass.

    def _continue_pass(self, *, whole: bool, dates: bool, out_of_time: OutOfTime) -> bool:
        """Continue the pass as far as it has to go; return whether a job was planned."""
        went = False
        if self._stale:
            self._begin()
        must = whole or dates or bool(self._queue_passes or self._unanswered or self._some_strict_order)
        if not must and not self._candidates.left(self._base):
            return False
        while (queue_pass := self._current_pass(whole=whole)) is not None:
            due = dates and not queue_pass.only_starts
            while whole or due or self._unanswered or self._is_worth_continuing(queue_pass):
                if out_of_time():
                    return True
                went = True
                self._step(queue_pass, whole=whole)
                due = due and not queue_pass.only_starts
                if queue_pass.over or (queue_pass.strict_order and queue_pass.only_starts):
                    break
            else:
                break
        return went

    def _begin(self) -> None:
        state = self.state
        if not self._punctual:
            self._extend_overdue()
        self._older.update(state.placements)
        self._on_base = not self._keeps_dates
        restart(state, self._base if self._on_base else self._base.copy(), self.now, self._ends.copy())
        state.promised = self._older if self._keeps_dates else {}
        self._queue_passes = []
        self._candidates = StartCandidates(self._classes.job_counts)
        self._unanswered = self.state.dated.copy()
        self._stale = False

    def _current_pass(self, *, whole: bool) -> QueuePass | None:
        """Return the current queue pass; None when all queues are done, or no job may be backfilled."""
        queues = self.state.queues
        while True:
            queue_pass = self._queue_passes[-1] if self._queue_passes else None
            if (
                queue_pass is not None
                and not queue_pass.over
                and (whole or not (queue_pass.strict_order and queue_pass.only_starts))
            ):
                return queue_pass
            if len(self._queue_passes) == len(queues):
                return None
            queue = queues[len(self._queue_passes)]
            self._queue_passes.append(begin_queue(self.state, queue, list(self._queues.get(queue.name, {}).values())))

    def _is_worth_continuing(self, queue_pass: QueuePass) -> bool:
        """Return whether a remaining job could start; in strict order, the next one, unless it can be ignored."""
        if not queue_pass.strict_order:
            return self._candidates.left(self.state.occupancies)
        classes = self._classes.of(queue_pass.jobs[queue_pass.at].job_id)
        could = not classes or self._candidates.could_start(classes, self.state.occupancies)
        return could or not any(start_class.possible for start_class in classes)

    def _step(self, queue_pass: QueuePass, *, whole: bool) -> None:
        if queue_pass.only_starts and not whole:
            self._skip_impossible(queue_pass)
            if queue_pass.over:
                return
        job_id = queue_pass.jobs[queue_pass.at].job_id
        classes = self._classes.of(job_id)
        if self._on_base:
            # This builds the timelines in the base, so that every later copy has them.
            self._candidates.could_start(classes, self._base)
            self.state.occupancies, self._on_base = self._base.copy(), False
        self._candidates.gone(classes)
        plan_next(self.state, queue_pass)
        self._unanswered.discard(job_id)

    def _skip_impossible(self, queue_pass: QueuePass) -> None:
        """Skip jobs that can only start now, and cannot."""
        occupancies, candidates, jobs = self.state.occupancies, self._candidates, queue_pass.jobs
        for at in range(queue_pass.at, len(jobs)):
            classes = self._classes.of(jobs[at].job_id)
            if candidates.could_start(classes, occupancies):
                queue_pass.skip_to(at)
                return
            candidates.gone(classes)
        queue_pass.skip_to(len(jobs))

    def _appendable_pass(self, job: WaitingJob) -> QueuePass | None:
        """Return the queue pass that a new job can be appended to: the current one, if the job is its last."""
        queue_pass = self._queue_passes[-1] if self._queue_passes else None
        queue = self.state.queues[len(self._queue_passes) - 1]
        if queue_pass is None or queue.name != job.queue or job.reservation == Reservation.TO_SCHEDULE:
            return None
        return queue_pass if self._in_order and next(reversed(self._queues[queue.name])) == job.job_id else None

    # Waiting and placed jobs.

    def _admit(self, job: WaitingJob) -> None:
        queue = self._queues.setdefault(job.queue, {})
        in_order = not queue or job.job_id in queue or next(reversed(queue)) < job.job_id
        queue[job.job_id] = job
        if not in_order:
            self._queues[job.queue] = dict(sorted(queue.items()))
        for needed in job.after:
            self._waits_for.setdefault(needed.job_id, set()).add(job.job_id)
        if job.reservation == Reservation.TO_SCHEDULE:
            self.state.dated.add(job.job_id)
        elif not job.after or all(needed.state in FINAL for needed in job.after):
            self._classes.add(job)

    def _drop_waiting(self, job_id: int) -> None:
        job = self.state.waiting.pop(job_id)
        del self._queues[job.queue][job_id]
        self.state.dated.discard(job_id)
        self._older.pop(job_id, None)
        self._due.discard(job_id)
        for needed in job.after:
            self._waits_for[needed.job_id].discard(job_id)
        self._candidates.waits_no_more(self._classes.forget(job_id))

    def _move_to_placed(self, job_id: int, new_state: JobState, reservation: Reservation) -> None:
        state = self.state
        job, placement = state.waiting[job_id], state.placements.pop(job_id)
        self._drop_waiting(job_id)
        placed = PlacedJob(
            job_id=job_id,
            moldable_id=placement.moldable_id,
            user=job.user,
            queue=job.queue,
            state=new_state,
            start=placement.start,
            stop=placement.stop,
            resources=state.layout.ids_of(placement.resources) if state.layout.ids else (),
            project=job.project,
            name=job.name,
            types=job.types,
            reservation=reservation,
        )
        settled = state.occupancies.settled[job_id]
        kind, occupation = settled.kind, settled.occupation
        state.placed[job_id] = placed
        self._stale = self._stale or not self._in_order
        if reservation is Reservation.SCHEDULED:
            state.accepted[job_id] = placed
        self._ends[job_id] = placement.stop
        heappush(self._edges, placement.stop)
        if kind.besteffort or reservation is Reservation.SCHEDULED or self._limited:  # more than it searched
            self._replace_placed(placed)
        else:
            self._base.settle(job_id, kind, occupation, found_in=self._base.occupancy(kind))
            heappush(self._edges, occupation.stop)

    def _replace_placed(self, placed: PlacedJob) -> None:
        """Replace a placed job's occupation in the base, as a full pass on a snapshot would compute it."""
        state = self.state
        before = state.placed.get(placed.job_id)
        if placed.job_id in self._base.settled:
            self._base.remove(placed.job_id)
        state.placed[placed.job_id] = placed
        add_placed(state, self._base, placed)
        self._stale = True
        occupation = self._base.settled[placed.job_id].occupation
        heappush(self._edges, occupation.start)
        heappush(self._edges, occupation.stop)
        # An administrator may have made a running job best-effort, or an ordinary one of it (`oardel -b`).
        if any(job is not None and parse_types(job.types).besteffort for job in (before, placed)):
            update_besteffort(state)

    def _extend_overdue(self) -> None:
        """Extend overdue jobs by one second, with their resources and the jobs that depend on them."""
        now, settled = self.now, self._base.settled
        for job in [job for job in self.state.placed.values() if job.stop <= now]:
            self._ends[job.job_id] = now + 1
            heappush(self._edges, now + 1)
            if job.state in HOLDS_RESOURCES and settled[job.job_id].occupation.stop <= now:
                self._replace_placed(job)

    def _release_dependants(self, job_id: int, state: JobState, exit_code: int) -> None:
        for number in self._waits_for.pop(job_id, ()):
            job = self.state.waiting[number]
            over = Dependency(job_id, state, exit_code)
            after = tuple(over if needed.job_id == job_id else needed for needed in job.after)
            self.state.waiting[number] = changed = replace(job, after=after)
            self._candidates.waits_no_more(self._classes.forget(number))
            self._admit(changed)
            self._stale = True
