"""What a plan never does, and what it does in the end, whatever the cluster and its jobs."""

from itertools import combinations, count

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oarlock.model.event import EventType
from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.plan import Obstacle, Plan
from oarlock.model.snapshot import Choice, Queue, Shape, Snapshot, WaitingJob
from oarlock.model.submission import BEST, BESTHALF, Level, ResourceGroup
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import DEFAULT, NOW
from tests.plan.random_snapshots import Drawn, snapshots
from tests.plan.reference import Reference, Stay

thoroughly = settings(max_examples=80)


def plan_of(snapshot: Snapshot, asked: PlanSettings, **more) -> Plan:
    return make_plan(snapshot, now=NOW, settings=asked, **more)


def reference_of(drawn: Drawn) -> Reference:
    snapshot, asked = drawn
    return Reference(snapshot, now=NOW, settings=asked)


def planned_stays(drawn: Drawn, plan: Plan, slow: Reference) -> dict[int, Stay]:
    """Give where the waiting jobs are until when, without what every job has; best-effort jobs are promised little."""
    snapshot, asked = drawn
    always, occupations = slow.always, {}
    for job in snapshot.waiting:
        if job.job_id in plan.placements:
            who, place = slow.who(job), plan.placements[job.job_id]
            stop = min(place.stop, place.start + asked.besteffort_duration) if who.besteffort else place.stop
            occupations[job.job_id] = Stay(who, place.start, stop, frozenset(plan.resources(job.job_id)) - always)
    return occupations


def collide(one: Stay, other: Stay) -> bool:
    """Say whether two stays share a resource at some instant without sharing being allowed."""
    apart = one.stop <= other.start or other.stop <= one.start or not one.resources & other.resources
    kept = {(one.who.allowed, other.who.keeps_for), (other.who.allowed, one.who.keeps_for)} - {(None, None)}
    if apart or one.who.room != other.who.room or any(mine == its for mine, its in kept):
        return False
    return one.who.sharing is None or one.who.sharing != other.who.sharing


@thoroughly
@given(snapshots())
def test_never_two_exclusive_jobs_on_a_resource_at_one_instant(drawn):
    slow = reference_of(drawn)
    occupations = list(planned_stays(drawn, plan_of(*drawn), slow).values())
    assert not [pair for pair in combinations(occupations, 2) if collide(*pair)]
    assert not [
        (one, held)
        for one in occupations
        for held in slow.occupations
        if one.who.minds(held.who) and collide(one, held)
    ]


@thoroughly
@given(snapshots())
def test_no_job_starts_where_another_runs_unless_they_share(drawn):
    plan, slow = plan_of(*drawn), reference_of(drawn)
    starting = [occupation for job, occupation in planned_stays(drawn, plan, slow).items() if job in plan.start]
    held = zip(drawn[0].placed, slow.occupations, strict=True)
    running = [occupation for job, occupation in held if job.state in HOLDS_RESOURCES - {JobState.FINISHING}]
    assert not [pair for pair in combinations(starting, 2) if collide(*pair)]
    assert not [(one, other) for one in starting for other in running if collide(one, other)]


@thoroughly
@given(snapshots(), st.integers(0, 8))
def test_the_first_jobs_never_depend_on_those_after_them(drawn, first):
    snapshot, asked = drawn
    undated = tuple(replace(job, queue="default", reservation=Reservation.NONE, types=()) for job in snapshot.waiting)
    asked = replace(asked, depth=None)
    # Where priorities or the shortest go first, those who come later may be the first.
    queues = [replace(queue, policy=in_order(queue)) for queue in snapshot.queues]
    snapshot = replace(snapshot, queues=tuple(queues))
    whole = plan_of(replace(snapshot, waiting=undated), asked)
    part = plan_of(replace(snapshot, waiting=undated[:first]), asked)
    early = {job.job_id for job in undated[:first]}
    assert {job: place for job, place in whole.placements.items() if job in early} == {
        job: place for job, place in part.placements.items() if job in early
    }


def in_order(queue: Queue) -> str:
    """Give the policy of a queue, or the plain one if it has another order than that of submission."""
    return DEFAULT.policy if queue.weighs or "sjbf" in queue.policy else queue.policy


@thoroughly
@given(snapshots())
def test_what_a_job_gets_always_satisfies_its_request(drawn):
    snapshot, _ = drawn
    plan, slow = plan_of(*drawn), reference_of(drawn)
    for job in snapshot.waiting:
        if job.job_id in plan.placements:
            place, given_to = plan.placements[job.job_id], frozenset(plan.resources(job.job_id))
            [choice] = [choice for choice in job.choices if choice.moldable_id == place.moldable_id]
            enough = slow.take(choice.shape, given_to - slow.always) or slow.take(choice.shape, given_to)
            assert place.stop - place.start == choice.walltime
            assert enough
            assert enough | slow.always == given_to or not exact(snapshot.shapes[choice.shape])


def exact(shape: Shape) -> bool:
    """Say whether a shape asks for numbers, so that of its own place it takes all."""
    return not {level.count for group in shape.groups for level in group.levels} & {BEST, BESTHALF}


@thoroughly
@given(snapshots())
def test_the_same_snapshot_always_gives_the_same_plan(drawn):
    snapshot, asked = drawn
    again = replace(snapshot, queues=snapshot.queues[::-1], placed=snapshot.placed[::-1])
    first, second = plan_of(*drawn), plan_of(again, asked)
    assert first == plan_of(*drawn)
    assert (first.placements, set(first.start), set(first.kill)) == (
        second.placements,
        set(second.start),
        set(second.kill),
    )


@thoroughly
@given(snapshots(), st.integers(1, 4))
def test_a_pass_that_ran_out_of_time_ends_as_if_it_had_not(drawn, looks):
    # A queue that keeps dates knows more when it goes on: what those were told whom its first jobs wait for.
    queues = [replace(queue, policy=DEFAULT.policy) if queue.keeps_dates else queue for queue in drawn[0].queues]
    drawn = replace(drawn[0], queues=tuple(queues)), drawn[1]
    dated = {job.job_id for job in drawn[0].waiting if job.reservation == Reservation.TO_SCHEDULE}
    plan, kept, refused = plan_of(*drawn, out_of_time=clock(looks)), {}, {}
    for turn in range(2, 40):
        assert kept.items() <= plan.placements.items()
        if not plan.unfinished:
            break
        kept = plan.placements
        # It is the first answer that counts: asked again, it is told of dates that were promised after its answer.
        refused = {job_id: plan.unplaced[job_id] for job_id in plan.refuse if job_id in dated} | refused
        plan = plan_of(*drawn, out_of_time=clock(looks * turn), previous=plan)
    whole = plan_of(*drawn)
    assert (plan.placements, plan.unplaced | refused) == (whole.placements, whole.unplaced)
    assert Obstacle.OUT_OF_TIME not in {unplaced.obstacle for unplaced in plan.unplaced.values()}


def clock(looks: int):
    seen = count(1)
    return lambda: next(seen) > looks


@thoroughly
@given(snapshots(), st.integers(0, 9), st.sampled_from(["colour", "network_address"]))
def test_a_job_that_raises_is_set_aside_and_others_are_planned(drawn, at, level):
    snapshot, asked = drawn
    asked = replace(asked, depth=None, always_assigned=())
    # Where nobody passes those before, a job is not looked at, be it bad or good.
    queues = [replace(queue, policy=DEFAULT.policy) if queue.name == "default" else queue for queue in snapshot.queues]
    snapshot = replace(snapshot, queues=tuple(queues))
    bad = Shape((ResourceGroup((Level(level, 1 if level == "colour" else 0),)),))
    number = len(snapshot.shapes)
    odd = WaitingJob(job_id=500, user="eve", queue="default", choices=(Choice(5000, number, 10),))
    waiting = (*snapshot.waiting[:at], odd, *snapshot.waiting[at:])
    hurt = plan_of(replace(snapshot, waiting=waiting, shapes=(*snapshot.shapes, bad)), asked)
    plain = plan_of(snapshot, asked)
    assert hurt.placements == plain.placements
    assert {job: why for job, why in hurt.unplaced.items() if job != 500} == plain.unplaced
    assert hurt.unplaced[500].obstacle == Obstacle.SET_ASIDE
    assert [event.type for event in hurt.events if event.job == 500] == [EventType.SCHEDULER_JOB_SET_ASIDE]
