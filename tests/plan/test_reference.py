"""The quick pass does what the plain one does: same starts, same resources, same reasons."""

from random import Random

import pytest
from hypothesis import given, settings

from oarlock.model.snapshot import Snapshot
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import NOW
from tests.plan.random_snapshots import MEDIUM, medium, snapshots
from tests.plan.reference import Place, Reference, Refusal


def agree(snapshot: Snapshot, asked: PlanSettings) -> None:
    """Plan twice and compare every waiting job."""
    plan = make_plan(snapshot, now=NOW, settings=asked)
    slow = Reference(snapshot, now=NOW, settings=asked).run()
    waiting = {job.job_id for job in snapshot.waiting}
    places = {
        job: Place(place.moldable_id, place.start, place.stop, frozenset(plan.resources(job)))
        for job, place in plan.placements.items()
        if job in waiting
    }
    refusals = {
        job: Refusal(unplaced.obstacle, unplaced.earliest) for job, unplaced in plan.unplaced.items() if job in waiting
    }
    assert (places, refusals) == (slow.places, slow.refusals)


@settings(max_examples=200)
@given(snapshots())
def test_small_clusters_with_everything_at_once(drawn):
    agree(*drawn)


@pytest.mark.parametrize("build", MEDIUM)
@pytest.mark.parametrize("seed", [1, 2])
def test_larger_clusters_of_every_build(build, seed):
    agree(*medium(Random(seed), build))
