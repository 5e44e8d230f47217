"""A pass that leaves members of arrays out starts nobody whom a pass of all jobs would not start."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oarlock.model.snapshot import Snapshot, WaitingJob
from oarlock.plan.incremental.plan_cache import MANY, find_starts, thin
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import NOW, asks, cluster, planned, runs, snapshot
from tests.plan.random_snapshots import small

POLICIES = ("oar_sched_gantt_with_timesharing", "easy", "depth-2")


def as_arrays(drawn: Snapshot, sizes: list[int], policy: str) -> Snapshot:
    """Make an array of each waiting job, with so many members that follow each other, in queues of one policy."""
    waiting: list[WaitingJob] = []
    for job, size in zip(drawn.waiting, sizes, strict=False):
        for _ in range(size):
            number = 100 + len(waiting)
            choices = tuple(replace(one, moldable_id=number * 10 + n) for n, one in enumerate(job.choices))
            waiting.append(replace(job, job_id=number, choices=choices, after=(), deadline=None))
    queues = tuple(replace(queue, policy=policy) for queue in drawn.queues)
    return replace(drawn, waiting=tuple(waiting), queues=queues, quotas=(), quota_spans=(), promised={})


def thinned(snapshot: Snapshot, sizes: list[int], head: int) -> Snapshot:
    """Leave out what a quick pass does: behind the first jobs, all members of an array but the first."""
    ends, kept, at = [], [], 0
    for size in sizes:
        at += size
        ends.append(at)
    before = 0
    for number, job in enumerate(snapshot.waiting):
        end = next(end for end in ends if number < end)
        if number < head:
            kept.append(job)
        elif number in {head, before}:
            kept.append(replace(job, unread=end - number - 1))
        before = end
    return replace(snapshot, waiting=tuple(kept))


@given(
    random=st.randoms(use_true_random=False),
    sizes=st.lists(st.integers(1, 6), min_size=9, max_size=9),
    head=st.integers(1, 12),
    policy=st.sampled_from(POLICIES),
)
def test_nobody_starts_whom_a_pass_of_all_jobs_would_not_start(random, sizes, head, policy):
    drawn, settings = small(random)
    if any(job.reservation != "None" for job in drawn.waiting):
        return  # a pass that has to answer reservations leaves nobody out
    settings = replace(settings, depth=None)
    everybody = as_arrays(drawn, sizes, policy)
    few = make_plan(thinned(everybody, sizes, head), now=NOW, settings=settings)
    whole = make_plan(everybody, now=NOW, settings=settings)
    # Accepted reservations have their places already; a best-effort one gives way to jobs when they are read.
    reserved = {job.job_id for job in everybody.placed}
    assert set(few.start) - reserved <= set(whole.start)


def starts(*jobs) -> tuple[int, ...]:
    """Plan jobs on four nodes of one core, the first of which is taken for an hour."""
    return planned(cluster(4, 1), runs(1, [1], until=NOW + 3600), *jobs).start


def test_who_fits_beside_unread_jobs_of_other_resources_starts():
    there = "{network_address = 'n01'}/core=1"
    assert starts(asks(2, there, user="ada", unread=100), asks(3, "core=3", user="bob", walltime=9999)) == (3,)


def test_who_is_over_before_unread_jobs_could_begin_starts():
    assert starts(asks(2, "core=4", unread=100), asks(3, "core=1", walltime=3000)) == (3,)


def test_nobody_starts_who_would_delay_unread_jobs():
    assert starts(asks(2, "core=4", unread=100), asks(3, "core=1", walltime=4000)) == ()


def test_nobody_starts_while_unread_jobs_may_start_on_the_same():
    assert starts(asks(2, "core=1", unread=100), asks(3, "core=1")) == (2,)


def test_nobody_starts_who_would_delay_a_job_that_waits_behind_unread_ones():
    jobs = asks(2, "{network_address = 'n01'}/core=1", unread=100), asks(3, "core=4")
    assert starts(*jobs, asks(4, "core=1", walltime=4000)) == ()
    assert starts(*jobs, asks(4, "core=1", walltime=50)) == (4,)


def test_who_does_not_start_behind_unread_jobs_gets_no_date():
    jobs = [asks(2, "core=4", unread=100), asks(3, "core=4")]
    plan = planned(cluster(4, 1), runs(1, [1], until=NOW + 3600), *jobs)
    assert set(plan.placements) & {2, 3} == {2}


def test_a_greedy_job_behind_unread_ones_waits_for_a_whole_pass():
    there = "{network_address = 'n02'}/core=1"
    jobs = asks(2, there, unread=100), asks(3, "nodes=BEST")
    assert starts(*jobs) == (2,)


@given(
    random=st.randoms(use_true_random=False),
    sizes=st.lists(st.integers(1, 6), min_size=9, max_size=9),
    lengths=st.lists(st.integers(1, 40), min_size=54, max_size=54),
    policy=st.sampled_from(POLICIES),
)
def test_who_starts_in_a_thinned_queue_starts_in_a_pass_of_all_jobs(random, sizes, lengths, policy):
    drawn, settings = small(random)
    if any(job.reservation != "None" for job in drawn.waiting):
        return
    settings = replace(settings, depth=None)
    everybody = as_arrays(drawn, sizes, policy)
    waiting = [
        replace(job, choices=tuple(replace(one, walltime=one.walltime * length) for one in job.choices))
        for job, length in zip(everybody.waiting, lengths, strict=False)
    ]
    random.shuffle(waiting)
    mixed = replace(everybody, waiting=tuple(replace(job, job_id=100 + at) for at, job in enumerate(waiting)))
    thinned = thin(mixed)
    stand_ins = {job.job_id for job in thinned.waiting if job.unread}
    few = make_plan(thinned, now=NOW, settings=settings)
    whole = make_plan(mixed, now=NOW, settings=settings)
    reserved = {job.job_id for job in mixed.placed}
    assert set(few.start) - reserved - stand_ins <= set(whole.start)


def long_queue(*others: WaitingJob, policy: str = POLICIES[0]) -> Snapshot:
    """Let many jobs of different lengths wait for the first of four nodes, which is taken."""
    there, count = "{network_address = 'n01'}/core=1", MANY
    jobs = [asks(10 + number, there, user="ada", walltime=60 + number) for number in range(count)]
    state = snapshot(cluster(4, 1), runs(1, [1], until=NOW + 3600), *jobs, *others)
    return replace(state, queues=tuple(replace(queue, policy=policy) for queue in state.queues))


def test_of_a_long_queue_who_fits_beside_the_others_starts():
    fits = asks(9000, "core=3", user="bob", walltime=9999)
    plan = find_starts(long_queue(fits), now=NOW, settings=PlanSettings())
    assert plan is not None
    assert (plan.start, plan.kill, plan.wake) == ((9000,), (), ())


def test_of_a_long_queue_nothing_is_found_where_a_full_pass_has_to_look():
    fits = asks(9000, "core=3", user="bob", walltime=9999)
    assert find_starts(long_queue(), now=NOW, settings=PlanSettings()) is None
    assert find_starts(long_queue(fits), now=NOW, settings=PlanSettings(depth=5)) is None
    assert find_starts(long_queue(fits, policy="easy-sjbf"), now=NOW, settings=PlanSettings()) is None
