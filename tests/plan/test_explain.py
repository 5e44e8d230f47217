"""Why a job waits, told to a person; and the promises in what is told."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from oarlock.lang import request
from oarlock.model.job import JobState
from oarlock.model.plan import Obstacle, Plan, WaitReason
from oarlock.model.resource import Value
from oarlock.model.snapshot import Choice, Dependency, PlacedJob, Queue, ResourceTable, Shape, Snapshot, WaitingJob
from oarlock.plan.explain import Explainer, ordinal
from oarlock.plan.pass_state import PassState
from oarlock.plan.planner import begin_pass, make_plan, run_pass
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.timeline import FreeWindow
from tests.plan.drawing import (
    BESTEFFORT,
    DEFAULT,
    NOW,
    Asked,
    asks,
    cluster,
    finished_pass,
    node,
    runs,
    shape,
    snapshot,
    table,
)

HOUR = 3600


def after_pass(resources: ResourceTable, *jobs: Asked | PlacedJob, **settings: object) -> PassState:
    return finished_pass(snapshot(resources, *jobs), PlanSettings(**({"security_time": 0} | settings)))


def why(job_id: int, resources: ResourceTable, *jobs: Asked | PlacedJob, **settings: object) -> WaitReason:
    return Explainer(after_pass(resources, *jobs, **settings)).why(job_id)


def test_the_last_node_comes_when_somebody_leaves():
    four = cluster(nodes=4, cores=2)
    reason = why(
        900,
        four,
        runs(812, [7, 8], until=NOW + 41 * 60),
        asks(900, "nodes=4", walltime=2 * HOUR),
    )
    assert reason == WaitReason(
        900,
        Obstacle.BUSY,
        "needs 4 nodes for 2:00:00; 3 are free now, the fourth when job 812 ends in 0:41:00",
        NOW + 41 * 60,
        "/network_address=3,walltime=2:00:00",
    )


def test_an_instant_is_written_as_the_caller_wishes():
    made = after_pass(cluster(1, 2), runs(1, [1], until=NOW + 60), asks(2, "nodes=1"))
    told = Explainer(made, at=lambda instant: f"at +{instant - NOW}").why(2)
    assert told.says == "needs 1 node for 0:01:40; 0 are free now, the first when job 1 ends at +60"


def test_what_is_idle_may_be_kept_for_a_job_that_comes_first():
    reason = why(
        3,
        cluster(2, 1),
        runs(1, [1], until=NOW + 600),
        asks(2, "nodes=2", walltime=HOUR),
        asks(3, "nodes=1", walltime=HOUR),
    )
    assert reason == WaitReason(
        3,
        Obstacle.BUSY,
        "needs 1 node for 1:00:00; 1 is free now, but none for that long (job 2 comes first, in 0:10:00), "
        "enough are when job 2 ends in 1:10:00",
        NOW + 600 + HOUR,
        "/network_address=1,walltime=0:10:00",
    )


def test_conditions_of_the_user_are_told_and_those_of_rules_are_not():
    resources = table(*node("a1", 2, cluster="a", drain="NO"), *node("b1", 2, cluster="b", drain="NO"))
    reason = why(
        2,
        resources,
        runs(1, [1, 2], until=NOW + 60),
        asks(2, "{type = 'default'}/nodes=1/core=2", where="cluster = 'a' AND (type = 'default' AND drain = 'NO')"),
    )
    assert reason.says.startswith("needs 1 node with 2 cores of `cluster = 'a'` for 0:01:40; 0 are free now")


def under(policy: str, job_id: int, resources: ResourceTable, *jobs: Asked | PlacedJob) -> WaitReason:
    shot = snapshot(resources, *jobs, queues=(Queue("default", 2, policy),))
    made = finished_pass(shot, PlanSettings(security_time=0))
    return Explainer(made).why(job_id)


BLOCKED = (
    runs(1, [1, 2], until=NOW + 600),
    asks(2, "nodes=2", walltime=HOUR),
    asks(3, "nodes=1", walltime=HOUR),
    asks(4, "nodes=3", walltime=HOUR),
)


def test_a_job_without_a_date_is_told_who_comes_first():
    assert under("easy", 3, cluster(2, 2), *BLOCKED) == WaitReason(
        3,
        Obstacle.FAR_BACK,
        "needs 1 node for 1:00:00; 1 is free now, but none for that long (job 2 comes first, in 0:10:00); "
        "1 job of its queue comes first; no date is promised",
        None,
        "/network_address=1,walltime=0:10:00",
    )
    assert under("easy", 4, cluster(2, 2), *BLOCKED).obstacle == Obstacle.TOO_BIG


def test_where_nobody_passes_nothing_smaller_would_start():
    assert under("fcfs", 3, cluster(2, 2), *BLOCKED) == WaitReason(
        3,
        Obstacle.FAR_BACK,
        "needs 1 node for 1:00:00; 1 is free now, but none for that long (job 2 comes first, in 0:10:00); "
        "1 job of its queue comes first, and nobody passes; no date is promised",
    )


def test_a_dependent_job_is_promised_no_date_where_dates_are_few():
    waits = asks(2, "nodes=1", after=(Dependency(1, JobState.RUNNING),))
    reason = under("easy", 2, cluster(2, 1), runs(1, [1], until=NOW + 600), waits)
    assert (reason.obstacle, reason.says) == (
        Obstacle.DEPENDENCY,
        "it waits for job 1, which is not over; no date is promised",
    )


def test_a_job_that_is_too_big_hears_how_much_there_is():
    reason = why(1, cluster(3, 2), asks(1, "nodes=5"))
    assert reason == WaitReason(1, Obstacle.TOO_BIG, "needs 5 nodes; there are only 3 such nodes in all")


def test_a_job_that_needs_what_is_away_hears_how_much_is_left():
    resources = table(*node("n1", 2), *node("n2", 2, state="Suspected"))
    reason = why(1, resources, asks(1, "nodes=2"))
    says = "needs 2 nodes; only 1 of 2 such nodes can be used now (1 Suspected)"
    assert reason == WaitReason(1, Obstacle.UNAVAILABLE, says)


AWAY = table(
    *node("n1", 2, drain="NO"), *node("n2", 2, drain="NO", state="Suspected"), *node("n3", 2, drain="YES"),
    *node("n4", 2, drain="NO", state="Absent"), *node("n5", 2, drain="NO", state="Suspected"),
    *node("n6", 2, drain="NO", next_state="Absent"),
)  # fmt: skip


def test_nodes_that_are_away_are_named_by_their_state_with_their_count():
    reason = why(1, AWAY, asks(1, "nodes=4", where="drain = 'NO'"))
    told = "needs 4 nodes; only 1 of 6 such nodes can be used now (2 Suspected, 2 Absent, 1 drained)"
    assert (reason.obstacle, reason.says) == (Obstacle.UNAVAILABLE, told)
    reason = why(1, AWAY, asks(1, "nodes=7", where="drain = 'NO'"))
    assert (reason.obstacle, reason.says) == (Obstacle.TOO_BIG, "needs 7 nodes; there are only 6 such nodes in all")
    reason = why(1, AWAY, asks(1, "nodes=2+nodes=2", where="drain = 'NO'"))
    assert reason.says.endswith("(n[2,5] Suspected, n[4,6] Absent, n3 drained)")


def test_a_job_that_waits_for_another_hears_which_nodes_are_away_too():
    reason = why(2, AWAY, runs(1, [1, 2], until=NOW + 60), asks(2, "nodes=1", where="drain = 'NO'"))
    assert reason.says == (
        "needs 1 node for 0:01:40; 0 are free now (2 Suspected, 2 Absent, 1 drained), "
        "the first when job 1 ends in 0:01:00"
    )


def test_several_groups_are_joined_and_not_counted():
    resources = table(*node("n1", 2), {"type": "licence"})
    reason = why(
        2,
        resources,
        runs(1, [3], until=NOW + 60),
        asks(2, "nodes=1+{type = 'licence'}/resource_id=1"),
    )
    assert reason.says == (
        "needs 1 node and 1 resource of `type = 'licence'` for 0:01:40; that much is not free now, "
        "it is when job 1 ends in 0:01:00"
    )


def test_words_for_all_best_and_half():
    resources = cluster(2, 2)
    busy = runs(1, [1, 2, 3, 4], until=NOW + 60)
    told = {text: why(2, resources, busy, asks(2, text)).says.split(" for ")[0] for text in (
        "nodes=ALL", "nodes=BEST/core=1", "nodes=BESTHALF", "core=12"
    )}  # fmt: skip
    assert told == {
        "nodes=ALL": "needs all nodes",
        "nodes=BEST/core=1": "needs any nodes with 1 core each",
        "nodes=BESTHALF": "needs half of the free nodes",
        "core=12": "needs 12 cores; there are only 4 such cores in all",
    }


def test_a_dependant_hears_for_whom_it_waits():
    reason = why(
        2,
        cluster(2, 1),
        runs(1, [1], until=NOW + 300, types=("besteffort",), queue="besteffort"),
        asks(2, "nodes=1", walltime=60, after=(Dependency(1, JobState.RUNNING),)),
    )
    assert reason.says == (
        "needs 1 node for 0:01:00; 2 are free now, but job 1, which it depends on, has to end first; "
        "it starts in 0:05:00"
    )
    assert reason.smaller is None  # with less it would wait for job 1 just as long


def test_a_job_without_a_place_hears_what_stopped_it():
    stopped = Queue("default", 2, DEFAULT.policy, active=False)
    shot = snapshot(cluster(1, 1), asks(1, "nodes=1"), queues=(stopped, BESTEFFORT))
    made = finished_pass(shot, PlanSettings())
    assert Explainer(made).why(1) == WaitReason(1, Obstacle.QUEUE_STOPPED, "queue `default` is stopped")


def test_a_job_that_starts_now_is_about_to_start():
    assert why(1, cluster(1, 1), asks(1, "nodes=1")) == WaitReason(1, Obstacle.BUSY, "is about to start", NOW)


def test_a_job_on_a_sleeping_node_waits_for_it_to_wake():
    asleep = table(*node("n1", 1, state="Absent", cm_availability=NOW + 10_000))
    reason = why(1, asleep, asks(1, "nodes=1"), wake_up=True)
    assert reason.says == "starts as soon as n1 is awake"


def test_when_could_i_get_so_many_cores_for_so_long():
    made = after_pass(cluster(2, 2), runs(1, [1, 2, 3], until=NOW + 600), asks(2, "core=2", walltime=HOUR))
    explainer = Explainer(made)
    assert [explainer.when(shape(f"core={count}"), HOUR) for count in (1, 2, 4, 5)] == [
        FreeWindow(NOW, made.layout.bits_of([4])),
        FreeWindow(NOW + 600, made.layout.bits_of([3, 4])),
        FreeWindow(NOW + 600 + HOUR, made.layout.everything),
        None,
    ]


@pytest.mark.parametrize(("number", "word"), [(1, "first"), (10, "tenth"), (11, "11th"), (22, "22nd"), (111, "111th")])
def test_ordinals(number: int, word: str):
    assert ordinal(number) == word


TEXTS = (
    "nodes=1", "nodes=2", "nodes=3", "core=1", "core=3", "nodes=1/core=1", "nodes=2/core=2", "switch=1/nodes=2",
    "switch=2/nodes=1/core=1", "nodes=2/cpu=1", "cpu=2",
)  # fmt: skip


def _make_line(r: Random) -> tuple[Snapshot, PlanSettings]:
    """Draw a cluster of ordinary jobs: no best effort, no dates, nobody shares."""
    rows: list[dict[str, Value]] = []
    for at in range(r.randint(2, 5)):
        rows += node(f"n{at}", r.choice([2, 2, 4]), switch=f"s{at % 2}")
    resources = table(*rows)
    left = list(resources.ids)
    placed = []
    for number in range(1, r.randint(1, 4)):
        size = r.randint(0, len(left))
        mine, left = left[:size], left[size:]
        placed.append(runs(number, mine, until=NOW + r.randint(1, 200)))
    jobs = [asks(10 + at, r.choice(TEXTS), walltime=r.choice([30, 60, 100, 150])) for at in range(r.randint(1, 7))]
    settings = PlanSettings(security_time=r.choice([0, 1]), minimum_hole=r.choice([0, 0, 50]))
    return snapshot(resources, *placed, *jobs), settings


clusters = st.randoms(use_true_random=False).map(_make_line)


@given(clusters)
def test_the_suggested_smaller_request_does_start_at_once(drawn: tuple[Snapshot, PlanSettings]):
    snap, settings = drawn
    explainer = Explainer(finished_pass(snap, settings))
    for job in snap.waiting:
        told = explainer.why(job.job_id)
        if told.smaller is not None:
            again = make_plan(_asking(snap, job, told.smaller), now=NOW, settings=settings)
            assert again.placements[job.job_id].start == NOW, told


def _asking(snap: Snapshot, job: WaitingJob, text: str) -> Snapshot:
    """Let a job ask for something else; everybody else as before."""
    [alternative] = request.parse([text]).alternatives
    choice = Choice(job.choices[0].moldable_id, len(snap.shapes), alternative.walltime or 0)
    other = structs.replace(job, choices=(choice,))
    waiting = tuple(other if one.job_id == job.job_id else one for one in snap.waiting)
    return structs.replace(snap, shapes=(*snap.shapes, Shape(alternative.groups)), waiting=waiting)


@given(clusters)
def test_the_predicted_start_is_met_when_nothing_else_arrives(drawn: tuple[Snapshot, PlanSettings]):
    snap, settings = drawn
    promised = make_plan(snap, now=NOW, settings=settings)
    for instant in sorted({placement.start for placement in promised.placements.values()}):
        later = make_plan(_at(snap, promised, instant, settings), now=instant, settings=settings)
        due = {job_id: place for job_id, place in promised.placements.items() if place.start >= instant}
        assert {job_id: later.placements[job_id] for job_id in due} == due
        assert set(later.start) == {job_id for job_id, place in due.items() if place.start == instant}


def _at(snap: Snapshot, plan: Plan, instant: int, settings: PlanSettings) -> Snapshot:
    """Let time pass until an instant: jobs start when promised, and are gone when walltime and security time are."""
    started = [
        runs(job_id, plan.resources(job_id), place.stop, moldable_id=place.moldable_id, start=place.start)
        for job_id, place in plan.placements.items()
        if place.start < instant
    ]
    placed = tuple(job for job in (*snap.placed, *started) if job.stop + settings.security_time > instant)
    begun = {job.job_id for job in started}
    waiting = tuple(job for job in snap.waiting if job.job_id not in begun)
    return structs.replace(snap, waiting=waiting, placed=placed)


def test_the_reason_for_several_groups_has_no_numbers():
    reason = why(1, cluster(1, 2), asks(1, "nodes=1+nodes=1"))
    assert reason.says == "needs 1 node and 1 node; the cluster never has what it asks for, even empty"


def test_nothing_smaller_is_suggested_where_less_could_be_better():
    reason = why(2, cluster(1, 2), runs(1, [1], until=NOW + 60), asks(2, "core=1+core=1", walltime=600))
    assert (reason.start, reason.smaller) == (NOW + 60, None)


def test_a_job_waits_for_the_one_it_depends_on_though_all_is_free():
    needed = (Dependency(1, JobState.RUNNING),)
    reason = why(2, cluster(2, 1), runs(1, [1], until=NOW + 60), asks(2, "nodes=1", after=needed), security_time=5)
    assert reason.says == (
        "needs 1 node for 0:01:40; 1 is free now, "
        "but job 1, which it depends on, has to end first; it starts in 0:01:10"
    )


def test_a_node_that_is_awake_too_shortly_is_kept_for_nobody():
    sleepy = table(*node("a", 1), *node("b", 1, state="Absent", cm_availability=NOW + 500))
    reason = why(2, sleepy, runs(1, [1], until=NOW + 60), asks(2, "nodes=1", walltime=900), wake_up=True)
    assert reason.says == (
        "needs 1 node for 0:15:00; 1 is free now, but none for that long, enough are when job 1 ends in 0:01:00"
    )


def test_a_promised_place_is_kept_though_the_way_is_free():
    asked, settings = asks(2, "nodes=1"), PlanSettings(security_time=0)
    busy = make_plan(snapshot(cluster(1, 1), runs(1, [1], until=NOW + 50), asked), now=NOW, settings=settings)
    made = begin_pass(snapshot(cluster(1, 1), asked), now=NOW, settings=settings)
    run_pass(made, previous=structs.replace(busy, unfinished=True))
    assert Explainer(made).why(2).says.endswith("; it starts in 0:00:50")


def test_a_bad_job_that_nobody_looked_at_hears_who_comes_first():
    reason = under("fcfs", 5, cluster(2, 1), *BLOCKED[:2], asks(5, "colour=1", walltime=HOUR))
    assert reason == WaitReason(
        5, Obstacle.FAR_BACK, "1 job of its queue comes first, and nobody passes; no date is promised"
    )
