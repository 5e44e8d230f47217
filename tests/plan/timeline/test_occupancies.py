"""Which chart a job is looked at in, and who is seen in which."""

import pytest

from oarlock.plan.fit.fit import Fitter
from oarlock.plan.sets.selection import availability
from oarlock.plan.settings import PlanSettings
from oarlock.plan.timeline.occupancies import JobOccupation, Occupancies, OccupancyKind, SharingClass
from oarlock.plan.timeline.occupancy import Occupancy, Occupation
from tests.plan.drawing import NOW, cluster, laid, node, table

ORDINARY, BE = OccupancyKind(), OccupancyKind(besteffort=True)
ADA, BOB = OccupancyKind(sharing=SharingClass("ada", "*")), OccupancyKind(sharing=SharingClass("bob", "*"))


@pytest.mark.parametrize(
    ("one", "other", "seen"),
    [
        (ORDINARY, ORDINARY, True),
        (ORDINARY, BE, False),
        (BE, ORDINARY, True),
        (BE, BE, True),
        (ADA, ADA, False),
        (ADA, BOB, True),
        (ADA, ORDINARY, True),
        (ORDINARY, ADA, True),
        (ADA, ADA._replace(besteffort=True), False),
        (ADA._replace(besteffort=True), ADA, False),
        (OccupancyKind(reservation=True), ORDINARY, True),
    ],
)
def test_who_is_in_whose_way(one, other, seen):
    assert one.is_blocked_by(other) is seen


def board(resources, **settings):
    layout = laid(resources)
    fitter = Fitter(layout)
    available = availability(layout, PlanSettings(**settings), NOW)
    return Occupancies(lambda now, usable: Occupancy(fitter, now, usable), available, NOW)


def occupation(start, stop, resources):
    return Occupation(NOW + start, NOW + stop, resources)


def test_a_stay_is_shown_to_those_it_is_in_the_way_of():
    made = board(cluster(1, 4))
    early = made.occupancy(ORDINARY)
    made.settle(1, ADA, occupation(0, 10, 0b0011), found_in=made.occupancy(ADA))
    made.settle(2, BE, occupation(0, 10, 0b0100), found_in=made.occupancy(BE))
    free = {kind: made.occupancy(kind).free_resources(NOW, NOW + 10) for kind in (ORDINARY, ADA, BOB, BE)}
    assert free == {ORDINARY: 0b1100, ADA: 0b1111, BOB: 0b1100, BE: 0b1000}
    assert made.occupancy(ORDINARY) is early


def test_a_stay_can_be_taken_away_again():
    made = board(cluster(1, 4))
    made.settle(1, ADA, occupation(0, 10, 0b0011))
    assert made.occupancy(ORDINARY).free_resources(NOW, NOW + 10) == 0b1100
    made.occupancy(ADA)
    assert made.remove(1) == JobOccupation(ADA, occupation(0, 10, 0b0011))
    assert made.occupancy(ORDINARY).free_resources(NOW, NOW + 10) == 0b1111
    assert made.settled == {}


def test_reservations_count_on_what_is_away_jobs_on_what_wakes():
    rows = [*node("a", 1), *node("b", 1, state="Absent", cm_availability=NOW + 50), *node("c", 1, state="Suspected")]
    made = board(table(*rows), wake_up=True)
    free = {
        (kind.reservation, length): made.occupancy(kind).free_resources(NOW, NOW + length)
        for kind in (ORDINARY, OccupancyKind(reservation=True))
        for length in (50, 51)
    }
    a, b, c = 1, 1 << 8, 1 << 16
    assert free == {(False, 50): a | b, (False, 51): a, (True, 50): a | b | c, (True, 51): a | b | c}


def test_time_passes_in_every_chart():
    made = board(cluster(1, 1))
    occupancy = made.occupancy(ORDINARY)
    made.advance(NOW + 5)
    assert (made.now, occupancy.now) == (NOW + 5, NOW + 5)
