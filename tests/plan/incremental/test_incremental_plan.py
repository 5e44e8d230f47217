"""A plan that goes on living: what it decides from event to event is what a whole pass would decide."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from oarlock.model.job import FINAL, JobState, Reservation
from oarlock.model.plan import Obstacle, Placement, Plan, Unplaced
from oarlock.model.snapshot import Choice, Dependency, PlacedJob, Queue, ResourceTable, Snapshot, WaitingJob
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.pass_state import PassState
from oarlock.plan.planner import add_job, add_shape, make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import (
    DEFAULT,
    NOW,
    Asked,
    asks,
    cluster,
    finished_pass,
    node,
    obstacles,
    places,
    reserves,
    runs,
    shape,
    snapshot,
    table,
)
from tests.plan.random_snapshots import MEDIUM, Drawn, medium, small

QUIET = PlanSettings(security_time=0)
KEEPS = "conservative"


def after_pass(resources: ResourceTable, *jobs: Asked | PlacedJob) -> PassState:
    return finished_pass(snapshot(resources, *jobs), QUIET)


def living(resources: ResourceTable, *jobs: Asked | PlacedJob, policy: str | None = None) -> IncrementalPlan:
    queues = {"queues": (Queue("default", 2, policy),)} if policy else {}
    return IncrementalPlan(snapshot(resources, *jobs, **queues), now=NOW, settings=QUIET)


def test_a_new_job_goes_behind_all_others():
    made = after_pass(cluster(1, 1), runs(1, [1], until=NOW + 50), asks(2, "nodes=1", walltime=100))
    again = WaitingJob(job_id=3, user="bob", queue="default", choices=(Choice(30, 0, 10),))
    assert add_job(made, again) == Placement(3, 30, NOW + 150, NOW + 160, made.layout.everything)


def test_a_new_job_may_ask_for_what_nobody_asked_for_before():
    made = after_pass(cluster(2, 2), asks(1, "nodes=1"))
    number = add_shape(made, shape("core=3"))
    job = WaitingJob(job_id=2, user="bob", queue="default", choices=(Choice(20, number, 10),))
    assert add_job(made, job) == Placement(2, 20, NOW + 100, NOW + 110, made.layout.bits_of([1, 2, 3]))


def test_a_new_job_in_a_queue_that_does_not_exist_is_told_so():
    made = after_pass(cluster(1, 1), asks(1, "nodes=1"))
    job = WaitingJob(job_id=2, user="bob", queue="night", choices=(Choice(20, 0, 10),))
    assert add_job(made, job) == Unplaced(2, Obstacle.QUEUE_STOPPED, "there is no queue `night`")


TWO_FULL_NODES = (
    runs(1, [1], until=NOW + 100),
    runs(2, [2], until=NOW + 100),
    asks(3, "nodes=2", walltime=50),
    asks(4, "nodes=1", walltime=500),
    asks(5, "nodes=1", walltime=90),
)


def test_the_room_that_an_early_end_leaves_goes_to_whoever_delays_nobody():
    made = living(cluster(2, 1), *TWO_FULL_NODES)
    assert made.decide().start == ()
    made.advance(NOW + 10)
    made.ended(1)
    plan = made.decide()
    assert plan.start == (5,)  # job 3 needs both nodes, and job 4 would delay it
    assert plan.placements[5].start == NOW + 10


def test_an_early_end_that_is_of_use_to_nobody_plans_nobody():
    made = living(cluster(2, 1), *TWO_FULL_NODES[:4])
    assert places(made.refresh()) == {3: (100, (1, 2)), 4: (150, (1,))}
    made.advance(NOW + 10)
    made.ended(1)
    plan = made.decide()
    assert plan.start == ()
    assert 4 not in plan.placements
    assert made.foreseen(4) == Placement(4, 40, NOW + 150, NOW + 650, 1)  # what it was told, until somebody asks again
    assert places(made.refresh()) == {3: (100, (1, 2)), 4: (150, (1,))}


def test_a_job_that_starts_holds_its_resources():
    made = living(cluster(2, 1), asks(1, "nodes=1"), asks(2, "nodes=2"))
    assert made.decide().start == (1,)
    made.started(1)
    assert places(made.refresh()) == {2: (100, (1, 2))}
    made.advance(NOW + 100)
    made.ended(1)
    assert made.decide().start == (2,)


def test_what_was_decided_is_said_again_until_it_has_happened():
    made = living(cluster(1, 1), asks(1, "nodes=1"), reserves(2, "nodes=1", NOW + 500))
    assert (made.decide().start, made.decide().accept) == ((1,), (2,))


def test_a_reservation_is_answered_kept_and_started():
    made = living(cluster(1, 1), reserves(1, "nodes=1", NOW + 50), asks(2, "nodes=1", walltime=60))
    plan = made.decide()
    assert (plan.accept, plan.start) == ((1,), ())
    made.accepted(1)
    assert places(made.refresh()) == {2: (150, (1,))}
    made.advance(NOW + 50)
    assert made.decide().start == (1,)
    made.started(1)
    assert made.decide().start == ()


def test_whoever_waits_for_a_job_may_go_when_it_is_over():
    made = living(cluster(2, 1), runs(1, [1], NOW + 100), asks(2, "nodes=1", after=(Dependency(1, JobState.RUNNING),)))
    assert made.decide().start == ()
    made.advance(NOW + 10)
    made.ended(1)
    assert made.decide().start == (2,)


def test_a_job_past_its_time_keeps_what_it_has_until_it_is_gone():
    made = living(cluster(1, 1), runs(1, [1], NOW + 100), asks(2, "nodes=1"))
    made.decide()
    made.advance(NOW + 150)
    assert made.decide().start == ()
    made.ended(1)
    assert made.decide().start == (2,)


def test_dates_are_kept_where_the_policy_keeps_them():
    jobs = (runs(1, [1], NOW + 100), runs(2, [2], NOW + 40), asks(3, "nodes=2", walltime=50),
            asks(4, "nodes=1", walltime=70), asks(5, "nodes=1", walltime=55))  # fmt: skip
    made = living(cluster(2, 1), *jobs, policy=KEEPS)
    assert places(made.decide()) == {3: (100, (1, 2)), 4: (150, (1,)), 5: (40, (2,))}
    made.advance(NOW + 35)
    made.ended(1)
    assert places(made.decide())[5] == (35, (1,))  # job 3 could have begun at 40, but job 5 was told 40 before
    anew = living(cluster(2, 1), *jobs[1:])
    anew.advance(NOW + 35)
    assert places(anew.refresh()) == {3: (40, (1, 2)), 4: (90, (1,)), 5: (90, (2,))}


class Diary:
    """What a database would say: keeps the snapshot beside a live plan, event by event."""

    def __init__(self, drawn: Drawn, r: Random) -> None:
        self.snapshot, self.settings = drawn
        self.random, self.now = r, NOW
        self.coming = [job for job in self.snapshot.waiting if r.random() < 0.5]
        late = {job.job_id for job in self.coming}
        self.snapshot = structs.replace(
            self.snapshot, waiting=tuple(job for job in self.snapshot.waiting if job.job_id not in late)
        )
        self.live = IncrementalPlan(self.snapshot, now=NOW, settings=self.settings)

    def agree(self) -> Plan:
        """Decide twice: alive, and from scratch."""
        plan = self.live.refresh() if self.random.random() < 0.2 else self.live.decide()
        whole = make_plan(self.snapshot, now=self.now, settings=self.settings)
        seen = [(one.accept, one.refuse, sorted(one.start), sorted(one.kill), one.wake) for one in (plan, whole)]
        assert seen[0] == seen[1]
        for job_id in plan.start:
            assert plan.placements[job_id] == whole.placements[job_id]
        for job_id, place in plan.placements.items():
            assert place == whole.placements[job_id]
        return plan

    def happen(self) -> None:
        """Let what was decided happen, or something of its own."""
        plan = self.agree()
        for job_id in plan.start:
            if self.random.random() < 0.9:
                self._start(plan, job_id)
        for job_id in plan.accept:
            self._accept(plan, job_id)
        for job_id in plan.refuse:
            self._end(job_id, JobState.ERROR)
        if self.coming and self.random.random() < 0.5:
            job = self._with_states(self.coming.pop(0))
            self.live.submitted(job)
            self._set(waiting=(*self.snapshot.waiting, job))
        holders = [job.job_id for job in self.snapshot.placed if job.state == JobState.RUNNING]
        if holders and self.random.random() < 0.6:
            self._end(self.random.choice(holders), self.random.choice([JobState.TERMINATED, JobState.ERROR]))
        if self.random.random() < 0.7:
            self.now += self.random.choice([1, 5, 10, 30, 60])
            self.live.advance(self.now)

    def _start(self, plan: Plan, job_id: int) -> None:
        self.live.started(job_id)
        place = plan.placements[job_id]
        if any(job.job_id == job_id for job in self.snapshot.placed):
            self._set(
                placed=tuple(
                    structs.replace(job, state=JobState.RUNNING, start=place.start, resources=plan.resources(job_id))
                    if job.job_id == job_id
                    else job
                    for job in self.snapshot.placed
                )
            )
        else:
            self._have(plan, job_id, JobState.RUNNING, Reservation.NONE)

    def _accept(self, plan: Plan, job_id: int) -> None:
        if job_id in {job.job_id for job in self.snapshot.waiting}:
            self.live.accepted(job_id)
            self._have(plan, job_id, JobState.WAITING, Reservation.SCHEDULED)

    def _have(self, plan: Plan, job_id: int, state: JobState, reservation: Reservation) -> None:
        job = next(job for job in self.snapshot.waiting if job.job_id == job_id)
        place = plan.placements[job_id]
        placed = PlacedJob(job_id=job_id, moldable_id=place.moldable_id, user=job.user, queue=job.queue, state=state,
                        start=place.start, stop=place.stop, resources=plan.resources(job_id), project=job.project,
                        name=job.name, types=job.types, reservation=reservation)  # fmt: skip
        self._set(waiting=self._without(self.snapshot.waiting, job_id), placed=(*self.snapshot.placed, placed))

    def _end(self, job_id: int, state: JobState) -> None:
        self.live.ended(job_id, state=state)
        waiting = self._without(self.snapshot.waiting, job_id)
        over = Dependency(job_id, state, 0)
        self._set(
            waiting=tuple(
                structs.replace(job, after=tuple(over if one.job_id == job_id else one for one in job.after))
                for job in waiting
            ),
            placed=self._without(self.snapshot.placed, job_id),
        )

    def _with_states(self, job: WaitingJob) -> WaitingJob:
        """Let a job that comes late know of the jobs it depends on what is true by now."""
        known = {one.job_id for one in (*self.snapshot.waiting, *self.snapshot.placed, *self.coming)}
        after = tuple(
            one if one.state in FINAL or one.job_id in known else Dependency(one.job_id, JobState.TERMINATED, 0)
            for one in job.after
        )
        return structs.replace(job, after=after)

    def _set(self, **changes: object) -> None:
        self.snapshot = structs.replace(self.snapshot, **changes)
        ordered = tuple(sorted(self.snapshot.waiting, key=lambda job: job.job_id))
        self.snapshot = structs.replace(self.snapshot, waiting=ordered)

    @staticmethod
    def _without(jobs: tuple, job_id: int) -> tuple:
        return tuple(job for job in jobs if job.job_id != job_id)


def _without_promises(drawn: Snapshot) -> Snapshot:
    """Let no queue keep dates: what is kept is no matter of one snapshot."""
    queues = (structs.replace(one, policy="depth-2") if one.policy == KEEPS else one for one in drawn.queues)
    return structs.replace(drawn, queues=tuple(queues))


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_small_clusters_are_decided_from_event_to_event_as_from_scratch(r: Random):
    drawn, asked = small(r)
    diary = Diary((_without_promises(drawn), asked), r)
    for _ in range(8):
        diary.happen()
    diary.agree()


@pytest.mark.parametrize("policy", [None, "fcfs", "easy", "depth-4-sjbf"])
@pytest.mark.parametrize("build", list(MEDIUM)[::2])
def test_larger_clusters_are_decided_from_event_to_event_as_from_scratch(build, policy):
    r = Random(7)
    drawn, asked = medium(r, build)
    queue = structs.replace(drawn.queues[0], policy=policy or drawn.queues[0].policy)
    diary = Diary((structs.replace(drawn, queues=(queue,)), asked), r)
    for _ in range(15):
        diary.happen()


@given(st.randoms(use_true_random=False))
def test_one_job_more_is_planned_as_a_whole_pass_would(r: Random):
    drawn, asked = small(r)
    drawn, asked = _last_comes_last(drawn), structs.replace(asked, depth=None)
    *before, last = drawn.waiting
    made = finished_pass(structs.replace(drawn, waiting=tuple(before)), asked)
    add_job(made, last)
    whole = make_plan(drawn, now=NOW, settings=asked)
    assert made.placements.get(last.job_id) == whole.placements.get(last.job_id)
    assert made.unplaced.get(last.job_id) == whole.unplaced.get(last.job_id)


def _last_comes_last(drawn: Snapshot) -> Snapshot:
    """Let the last job be the last in every order, and asked for no date: dates are looked at first."""
    queue = next(queue for queue in drawn.queues if queue.name == "default")
    in_order = DEFAULT.policy if queue.weighs else queue.policy.removesuffix("-sjbf")
    queue = structs.replace(queue, policy=in_order)
    waiting = [
        structs.replace(job, queue="default", reservation=Reservation.NONE, types=(), after=()) for job in drawn.waiting
    ]
    return structs.replace(drawn, queues=(queue,), waiting=tuple(waiting))


def test_a_queue_of_which_nobody_can_start_is_passed_over_for_the_next():
    upper, lower = Queue("default", 2, "easy"), Queue("low", 1, "easy")
    jobs = [asks(number, "nodes=2", walltime=50) for number in (3, 4, 5)]
    drawn = snapshot(
        cluster(3, 1), runs(1, [1], NOW + 100), runs(2, [2, 3], NOW + 100), *jobs,
        asks(6, "nodes=1", walltime=10, queue="low"), queues=(upper, lower),
    )  # fmt: skip
    made = IncrementalPlan(drawn, now=NOW, settings=QUIET)
    assert made.decide().start == ()
    made.advance(NOW + 10)
    made.ended(1)
    assert made.decide().start == (6,)


def test_a_new_reservation_is_answered_behind_all_others():
    made = after_pass(cluster(1, 1), asks(1, "nodes=1", walltime=100))
    number = add_shape(made, shape("nodes=1"))
    job = WaitingJob(
        job_id=2, user="bob", queue="default", choices=(Choice(20, number, 10),),
        reservation=Reservation.TO_SCHEDULE, start=NOW + 200,
    )  # fmt: skip
    assert add_job(made, job) == Placement(2, 20, NOW + 200, NOW + 210, made.layout.everything)


def test_a_node_that_was_not_woken_by_its_date_is_counted_on_no_longer():
    rows = [*node("a", 2), *node("b", 2, state="Absent", cm_availability=NOW + 300),
            *node("c", 2, state="Absent", cm_availability=NOW + 900)]  # fmt: skip
    drawn = snapshot(table(*rows), runs(1, [1, 2], NOW + 250), asks(2, "nodes=3"), asks(3, "nodes=2"))
    waking = PlanSettings(security_time=0, wake_up=True)
    made = IncrementalPlan(drawn, now=NOW, settings=waking)
    plan = made.decide()
    assert (plan.wake, places(plan), obstacles(plan)) == (("b", "c"), {3: (0, (3, 4, 5, 6))}, {2: "unavailable"})
    made.advance(NOW + 300)
    made.ended(1)
    plan = made.decide()
    assert (plan.wake, places(plan), obstacles(plan)) == (("c",), {3: (300, (1, 2, 5, 6))}, {2: "unavailable"})
    assert plan == make_plan(structs.replace(drawn, placed=()), now=NOW + 300, settings=waking)
    made.advance(NOW + 900)
    plan = made.decide()
    assert (plan.wake, places(plan), obstacles(plan)) == ((), {}, {2: "unavailable", 3: "unavailable"})


def test_as_many_dates_are_promised_as_the_policy_has():
    jobs = [asks(number, "nodes=1", walltime=50) for number in (2, 3, 4)]
    made = living(cluster(1, 1), runs(1, [1], NOW + 100), *jobs, policy="depth-2")
    assert places(made.decide()) == {}
    plan = made.promise()
    assert (plan.start, places(plan)) == ((), {2: (100, (1,)), 3: (150, (1,))})
