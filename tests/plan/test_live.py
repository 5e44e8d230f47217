"""A plan that goes on living: one job more, one job less."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from oarlock.model.job import JobState, Reservation
from oarlock.model.plan import Obstacle, Placement, Unplaced
from oarlock.model.snapshot import Choice, Dependency, Placed, ResourceTable, Snapshot, Waiting
from oarlock.plan import live
from oarlock.plan.planner import Planner, make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import NOW, Asked, asks, cluster, runs, shape, snapshot
from tests.plan.random_snapshots import small


def planner(resources: ResourceTable, *jobs: Asked | Placed) -> Planner:
    made = Planner(snapshot(resources, *jobs), now=NOW, settings=PlanSettings(security_time=0))
    made.run()
    return made


def starts(made: Planner) -> dict[int, int]:
    return {job_id: place.start - NOW for job_id, place in made.placements.items()}


def test_a_new_job_goes_behind_all_others():
    made = planner(cluster(1, 1), runs(1, [1], until=NOW + 50), asks(2, "nodes=1", walltime=100))
    again = Waiting(job_id=3, user="bob", queue="default", choices=(Choice(30, 0, 10),))
    assert live.submit(made, again) == Placement(3, 30, NOW + 150, NOW + 160, made.layout.everything)


def test_a_new_job_may_ask_for_what_nobody_asked_for_before():
    made = planner(cluster(2, 2), asks(1, "nodes=1"))
    number = live.add_shape(made, shape("core=3"))
    job = Waiting(job_id=2, user="bob", queue="default", choices=(Choice(20, number, 10),))
    assert live.submit(made, job) == Placement(2, 20, NOW + 100, NOW + 110, made.layout.bits_of([1, 2, 3]))


def test_a_new_job_in_a_queue_that_does_not_exist_is_told_so():
    made = planner(cluster(1, 1), asks(1, "nodes=1"))
    job = Waiting(job_id=2, user="bob", queue="night", choices=(Choice(20, 0, 10),))
    assert live.submit(made, job) == Unplaced(2, Obstacle.QUEUE_STOPPED, "there is no queue `night`")


def test_the_first_in_the_queue_takes_the_room_that_an_early_end_leaves():
    made = planner(
        cluster(2, 1),
        runs(1, [1], until=NOW + 100),
        runs(2, [2], until=NOW + 100),
        asks(3, "nodes=2", walltime=50),
        asks(4, "nodes=1", walltime=500),
        asks(5, "nodes=1", walltime=500),
    )
    assert starts(made) == {3: 100, 4: 150, 5: 150}
    begun = live.ended(made, 1, now=NOW + 10)
    assert begun == []  # one node is not enough for job 3, and jobs 4 and 5 would delay it
    begun = live.ended(made, 2, now=NOW + 20)
    assert [(place.job_id, place.start - NOW) for place in begun] == [(3, 20)]
    assert starts(made) == {3: 20, 4: 150, 5: 150}


def test_a_short_job_slips_in_where_it_delays_nobody():
    made = planner(
        cluster(2, 1),
        runs(1, [1], until=NOW + 100),
        runs(2, [2], until=NOW + 100),
        asks(3, "nodes=2", walltime=50),
        asks(4, "nodes=1", walltime=90),
    )
    assert [place.job_id for place in live.ended(made, 1, now=NOW + 10)] == [4]
    assert starts(made) == {3: 100, 4: 10}


def test_a_job_that_was_to_come_next_on_the_same_node_begins_at_once():
    made = planner(cluster(1, 2), runs(1, [1, 2], until=NOW + 100), asks(2, "nodes=1", walltime=1000))
    assert live.ended(made, 1, now=NOW + 30) == [Placement(2, 20, NOW + 30, NOW + 1030, made.layout.everything)]


def test_a_job_that_depends_on_another_does_not_begin_before_it_may():
    made = planner(
        cluster(2, 1),
        runs(1, [1], until=NOW + 100),
        runs(2, [2], until=NOW + 100),
        asks(3, "nodes=1", after=(Dependency(2, JobState.RUNNING),)),
    )
    assert live.ended(made, 1, now=NOW + 10) == []


@given(st.randoms(use_true_random=False))
def test_one_job_more_is_planned_as_a_whole_pass_would(r: Random):
    drawn, settings = small(r)
    drawn, settings = _fifo_only(drawn), structs.replace(settings, depth=None)
    *before, last = drawn.waiting
    made = Planner(structs.replace(drawn, waiting=tuple(before)), now=NOW, settings=settings)
    made.run()
    live.submit(made, last)
    whole = make_plan(drawn, now=NOW, settings=settings)
    assert made.placements.get(last.job_id) == whole.placements.get(last.job_id)
    assert made.unplaced.get(last.job_id) == whole.unplaced.get(last.job_id)


def _fifo_only(drawn: Snapshot) -> Snapshot:
    """Let the last job be the last in every order, and asked for no date: dates are looked at first."""
    queue = next(queue for queue in drawn.queues if queue.name == "default")
    waiting = [
        structs.replace(job, queue="default", reservation=Reservation.NONE, types=(), after=()) for job in drawn.waiting
    ]
    return structs.replace(drawn, queues=(queue,), waiting=tuple(waiting))


@given(st.randoms(use_true_random=False))
def test_an_early_end_never_moves_anybody_back_and_never_doubles_a_resource(r: Random):
    drawn, settings = small(r)
    made = Planner(drawn, now=NOW, settings=settings)
    made.run()
    before = dict(made.placements)
    running = [job for job in drawn.placed if job.state == JobState.RUNNING and job.stop > NOW + 1]
    if not running:
        return
    gone = r.choice(running)
    begun = live.ended(made, gone.job_id, now=NOW + 1)
    for job_id, place in made.placements.items():
        assert place.start <= before[job_id].start
    assert {place.start for place in begun} <= {NOW + 1}
    _check_disjoint(made)


def _check_disjoint(made: Planner) -> None:
    stays = [(job_id, settled) for job_id, settled in made.board.settled.items() if job_id in made.waiting]
    for at, (one, first) in enumerate(stays):
        for other, second in stays[at + 1 :]:
            if first.kind.sees(second.kind) and second.kind.sees(first.kind):
                assert not first.stay.meets(second.stay), (one, other)
