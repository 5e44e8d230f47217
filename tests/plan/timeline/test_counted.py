"""Resources that are all alike: counted instead of known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.snapshot import Choice, ResourceTable, Snapshot, WaitingJob
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancy import Occupation
from oarlock.simulate.platform import CountedFit, CountedOccupancy, counted_inputs
from tests.plan.drawing import DEFAULT, NOW, obstacles, shape

SIZE = 8
STAYS = st.lists(
    st.tuples(st.integers(-5, 60), st.integers(1, 40), st.integers(1, 4)).map(
        lambda drawn: Occupation(NOW + drawn[0], NOW + drawn[0] + drawn[1], drawn[2])
    ),
    max_size=6,
)


def chart_of(occupations: list[Occupation]) -> tuple[CountedOccupancy, list[Occupation]]:
    """Take stays as far as there is room; gives those that were taken, too."""
    inputs = counted_inputs(SIZE)
    occupancy = inputs.new_occupancy(NOW, SIZE)
    assert isinstance(occupancy, CountedOccupancy)
    taken = []
    for number, occupation in enumerate(occupations):
        if occupancy.has_free(occupation):
            occupancy.add(number, occupation)
            taken.append(occupation)
    return occupancy, taken


def plainly_free(occupations: list[Occupation], start: int, stop: int) -> int:
    """Count second by second."""
    return min(
        SIZE - sum(occupation.resources for occupation in occupations if occupation.start <= at < occupation.stop)
        for at in range(start, stop)
    )


@given(STAYS, st.integers(1, SIZE), st.integers(1, 50), st.integers(-3, 70))
def test_the_earliest_place_is_the_first_second_from_which_there_is_room(occupations, count, duration, later):
    occupancy, taken = chart_of(occupations)
    found = occupancy.find(CountedFit(count), duration, NOW + later)
    first = max(NOW, NOW + later)
    plain = next(at for at in range(first, NOW + 200) if plainly_free(taken, at, at + duration) >= count)
    assert found is not None
    assert found.start == plain
    assert (occupancy.find_now(CountedFit(count), duration) is not None) == (
        plainly_free(taken, NOW, NOW + duration) >= count
    )


@given(STAYS, st.integers(0, 50))
def test_what_is_given_back_is_free_again_also_later(occupations, passed):
    occupancy, taken = chart_of(occupations)
    duplicate = occupancy.copy()
    occupancy.advance(NOW + passed)
    for number in list(occupancy.occupations):
        occupancy.remove(number)
    assert occupancy.free_resources(NOW + passed, NOW + 500) == SIZE
    assert duplicate.free_resources(NOW, NOW + 1) == plainly_free(taken, NOW, NOW + 1)


@pytest.mark.parametrize("text", ["nodes=1/core=2", "core=ALL", "core=1+core=1"])
def test_only_a_number_can_be_asked_for(text):
    with pytest.raises(ValueError, match="only be asked for by number"):
        counted_inputs(SIZE).fitter.compile(shape(text))


def test_more_than_there_are_never_has_a_place():
    occupancy, _ = chart_of([])
    assert occupancy.find(CountedFit(SIZE + 1), 10) is None
    assert occupancy.find_now(CountedFit(SIZE + 1), 10) is None
    assert isinstance(counted_inputs(SIZE).fitter, Fitter)


@given(STAYS, st.integers(1, SIZE), st.integers(1, 30))
def test_a_number_is_told_and_found_again_as_it_is_free(occupations, count, duration):
    occupancy, taken = chart_of(occupations)
    fit = CountedFit(count)
    found = occupancy.find_same(count, duration, NOW)
    assert found == occupancy.find(fit, duration, NOW)
    assert found is not None
    assert occupancy.free(fit, found.start, found.start + duration) == plainly_free(
        taken, found.start, found.start + duration
    )
    seen = occupancy.from_now(of_nodes=False)
    assert seen.until(NOW + duration) == plainly_free(taken, NOW, NOW + duration)
    assert fit.offers(seen.until(NOW + duration)) == seen.until(NOW + duration)


def test_a_pool_has_no_nodes():
    assert counted_inputs(SIZE).fitter.whole_nodes(SIZE) == 0


def test_jobs_of_a_pool_start_and_wait_by_their_number_alone():
    drawn = Snapshot(
        resources=ResourceTable((), {}), queues=(DEFAULT,), shapes=(shape("core=3"), shape("core=9")),
        waiting=tuple(
            WaitingJob(job_id=at, user="ada", queue="default", choices=(Choice(at, wanted, 100),))
            for at, wanted in ((1, 0), (2, 0), (3, 0), (4, 1))
        ),
    )  # fmt: skip
    made = IncrementalPlan(
        drawn, now=NOW, settings=PlanSettings(security_time=0), inputs=counted_inputs(SIZE), punctual=True
    )
    plan = made.refresh()
    assert {job: place.start - NOW for job, place in plan.placements.items()} == {1: 0, 2: 0, 3: 100}
    assert obstacles(plan) == {4: "too big"}
    for job_id in plan.start:
        made.started(job_id)
    made.advance(NOW + 100)  # nobody overstays, so that nothing has to be told for the next one to start
    assert made.decide().start == (3,)
