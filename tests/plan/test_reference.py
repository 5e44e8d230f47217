"""The quick pass does what the plain one does: same starts, same resources, same reasons."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from oarlock.model.plan import Plan
from oarlock.model.snapshot import Snapshot
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline import occupancy
from oarlock.plan.timeline.blocked import BlockedTimeline
from tests.plan.drawing import NOW
from tests.plan.random_snapshots import MEDIUM, medium, small, snapshots
from tests.plan.reference import Place, Reference, Refusal


def told(plan: Plan, snapshot: Snapshot) -> dict[int, Place]:
    """Give the places of waiting jobs."""
    waiting = {job.job_id for job in snapshot.waiting}
    return {
        job: Place(place.moldable_id, place.start, place.stop, frozenset(plan.resources(job)))
        for job, place in plan.placements.items()
        if job in waiting
    }


def agree(snapshot: Snapshot, asked: PlanSettings, now: int = NOW, previous: Plan | None = None) -> Plan:
    """Plan twice and compare every waiting job."""
    plan = make_plan(snapshot, now=now, settings=asked, previous=previous)
    promised = told(previous, snapshot) if previous is not None else None
    slow = Reference(snapshot, now=now, settings=asked, promised=promised).run()
    waiting = {job.job_id for job in snapshot.waiting}
    places = told(plan, snapshot)
    refusals = {
        job: Refusal(unplaced.obstacle, unplaced.earliest) for job, unplaced in plan.unplaced.items() if job in waiting
    }
    assert (places, refusals) == (slow.places, slow.refusals)
    return plan


@settings(max_examples=200)
@given(snapshots())
def test_small_clusters_with_everything_at_once(drawn):
    agree(*drawn)


@pytest.mark.parametrize("seed", [5012478, 5018461, 5024678])
def test_only_what_changes_for_a_job_is_an_instant_to_begin_at(seed):
    """Seeds with groups that want the same resources, and ends on resources that nobody can use, or of equal rules."""
    agree(*small(Random(seed)))


@given(st.randoms(use_true_random=False))
def test_dates_are_kept_or_bettered_where_the_policy_says_so(r):
    drawn, asked = small(r)
    queues = tuple(structs.replace(queue, policy="conservative") for queue in drawn.queues)
    drawn = structs.replace(drawn, queues=queues)
    before = agree(drawn, asked)
    left = tuple(job for job in drawn.placed if r.random() < 0.6)
    later = agree(structs.replace(drawn, placed=left), asked, NOW + r.choice([0, 1, 20]), before)
    assert later.ids == before.ids


@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy-sjbf", "depth-5", "depth-5-sjbf"])
@pytest.mark.parametrize("build", ["8 cores", "odd sizes", "interleaved"])
def test_larger_clusters_under_every_policy(build, policy):
    drawn, asked = medium(Random(3), build)
    agree(structs.replace(drawn, queues=(structs.replace(drawn.queues[0], policy=policy),)), asked)


@pytest.mark.parametrize("build", MEDIUM)
@pytest.mark.parametrize("seed", [1, 2])
def test_larger_clusters_of_every_build(build, seed):
    agree(*medium(Random(seed), build))


@pytest.mark.parametrize("build", MEDIUM)
def test_larger_clusters_with_their_timelines_in_blocks(build, monkeypatch):
    monkeypatch.setattr(occupancy, "_WIDE", 0)
    monkeypatch.setattr(BlockedTimeline, "full", 6)
    drawn, asked = medium(Random(4), build)
    plan = agree(drawn, asked)
    monkeypatch.undo()
    assert make_plan(drawn, now=NOW, settings=asked) == plan
