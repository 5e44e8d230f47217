"""Charts: who has what until when, and where there is room."""

import pytest

from oarlock.plan.fit.fit import Fitter
from oarlock.plan.timeline.occupancy import FOREVER, Occupancy, Occupation
from oarlock.plan.timeline.timeline import FreeWindow
from tests.plan.drawing import NOW, cluster, free, laid, licences, node, shape, table


class Room:
    """A chart of a cluster, asked in texts and answered in ids."""

    def __init__(self, resources, away=()):
        self.layout = laid(resources)
        self.fitter = Fitter(self.layout)
        usable = self.layout.bits_of(set(resources.ids) - set(away))
        self.occupancy = Occupancy(self.fitter, NOW, usable)
        self.fits = {}

    def fit(self, text):
        return self.fits.setdefault(text, self.fitter.compile(shape(text)))

    def add(self, job_id, start, stop, ids, *, exclusive=False):
        self.occupancy.add(job_id, Occupation(NOW + start, NOW + stop, self.layout.bits_of(ids)), exclusive=exclusive)

    def find(self, text, duration, not_before=0):
        fit = self.fit(text)
        found = self.occupancy.find(fit, duration, NOW + not_before)
        return None if found is None else (found.start - NOW, self.layout.ids_of(fit.take(found.free)))


def test_a_place_is_found_where_nobody_stays():
    room = Room(cluster(2, 2))
    room.add(1, 0, 50, [1, 2, 3])
    assert room.find("core=1", 100) == (0, (4,))
    assert room.find("core=2", 100) == (50, (1, 2))
    assert room.find("nodes=1", 100) == (50, (1, 2))
    assert room.find("core=5", 1) is None


def test_a_stay_added_later_is_seen_by_both_timelines():
    room = Room(cluster(2, 2))
    assert (room.find("nodes=2", 10), room.find("core=4", 10)) == ((0, (1, 2, 3, 4)), (0, (1, 2, 3, 4)))
    room.add(1, 0, 30, [1, 2], exclusive=True)
    assert (room.find("nodes=2", 10), room.find("core=4", 10)) == ((30, (1, 2, 3, 4)), (30, (1, 2, 3, 4)))
    room.add(2, 30, 40, [3], exclusive=True)
    assert (room.find("nodes=2", 10), room.find("core=4", 10)) == ((40, (1, 2, 3, 4)), (40, (1, 2, 3, 4)))


def test_whole_nodes_differ_from_cores_of_the_same_number():
    room = Room(table(*(row for name in "abcd" for row in node(name, 4)), *licences(1)))
    room.add(1, 0, 60, [8])
    assert room.find("nodes=1", 10) == (0, (1, 2, 3, 4))
    room.add(2, 0, 60, [1, 2, 3, 4, 5, 6, 7, 17], exclusive=True)  # as many as two nodes have, but not two nodes
    assert room.find("nodes=1", 10) == (0, (9, 10, 11, 12))
    assert room.find("nodes=3", 10) == (60, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))


def test_a_search_may_begin_later_and_then_says_nothing_of_earlier():
    room = Room(cluster(1, 2))
    assert room.find("core=1", 10, not_before=40) == (40, (1,))
    assert room.find("core=1", 10) == (0, (1,))


def test_groups_that_want_the_same_are_tried_at_every_instant():
    rows = [*node("a", 2, mem=2), *node("b", 2, mem=1), *node("c", 1, mem=1)]
    room = Room(table(*rows))
    asked = "nodes=1+{mem = 2}/core=1"  # the first group takes node a as long as it is free, and with it all memory
    room.find("core=1", 1)  # a timeline is there, so that stays are told to it one by one
    room.add(1, 0, 10, [5], exclusive=True)
    room.add(2, 10, 30, [5], exclusive=True)  # it takes what the first one leaves: in the timeline nothing changes
    room.add(3, 25, 60, [2], exclusive=True)
    assert room.find(asked, 5) == (25, (1, 3, 4))
    assert room.find(asked, 20) == (10, (1, 3, 4))
    assert room.find(asked, 20, not_before=41) == (41, (1, 3, 4))
    assert room.find(asked, 60) == (0, (1, 3, 4))
    room.add(4, 0, FOREVER, [1], exclusive=False)
    assert room.find(asked, 30) == (60, (2, 3, 4))
    room.add(5, 0, FOREVER, [2], exclusive=False)
    assert room.find(asked, 5) is None


def test_what_was_given_back_is_found_again():
    room = Room(cluster(2, 2))
    room.add(1, 0, 50, [1, 2, 3])
    room.add(2, 20, 90, [3])
    assert (room.find("core=4", 10), room.find("nodes=2", 10)) == ((90, (1, 2, 3, 4)), (90, (1, 2, 3, 4)))
    room.occupancy.remove(1)
    assert room.find("core=4", 10) == (0, (1, 2, 3, 4))
    assert room.find("nodes=2", 10) == (0, (1, 2, 3, 4))
    assert room.find("nodes=2", 30) == (90, (1, 2, 3, 4))
    assert room.find("core=3", 30) == (0, (1, 2, 4))


def test_what_others_share_stays_taken_when_one_of_them_leaves():
    room = Room(cluster(1, 2))
    assert room.find("core=2", 5) == (0, (1, 2))
    room.add(1, 0, 50, [1, 2])
    room.add(2, 0, 30, [2])
    room.add(3, 60, 70, [1, 2])
    room.occupancy.remove(1)
    assert room.find("core=2", 5) == (30, (1, 2))
    assert room.find("core=1", 5) == (0, (1,))


def test_absent_resources_do_not_come_back_with_their_job():
    room = Room(cluster(2, 2), away=[1])
    room.add(1, 0, 50, [1, 2])
    assert (room.find("core=1", 5), room.find("nodes=1", 5)) == ((0, (3,)), (0, (3, 4)))
    room.occupancy.remove(1)
    assert room.find("core=4", 5) is None
    assert room.find("core=3", 5) == (0, (2, 3, 4))
    assert room.find("nodes=2", 5) is None


def test_a_copy_is_changed_apart():
    room = Room(cluster(1, 2))
    room.add(1, 0, 50, [1])
    room.find("core=1", 5)
    duplicate = room.occupancy.copy()
    duplicate.remove(1)
    fit = room.fit("core=2")
    assert duplicate.find(fit, 5) == FreeWindow(NOW, 0b11)
    assert room.occupancy.find(fit, 5) == FreeWindow(NOW + 50, 0b11)


def test_time_passes_and_the_past_is_forgotten():
    room = Room(cluster(1, 2))
    room.add(1, 0, 50, [1, 2])
    assert room.find("core=1", 5) == (50, (1, 2)[:1])
    room.occupancy.advance(NOW + 70)
    assert room.find("core=1", 5) == (70, (1,))


def test_free_room_between_two_instants_is_told_in_units_of_the_shape():
    room = Room(cluster(2, 2))
    room.add(1, 10, 20, [3])
    assert room.occupancy.free(room.fit("nodes=1"), NOW, NOW + 11) == 0b01
    assert room.occupancy.free(room.fit("core=1"), NOW, NOW + 10) == room.layout.everything
    assert room.layout.ids_of(room.occupancy.free_resources(NOW, NOW + 11)) == (1, 2, 4)


def test_no_place_is_remembered_until_something_is_given_back():
    room = Room(cluster(1, 2))
    room.add(1, 0, FOREVER, [1])
    assert [room.find("core=2", 5), room.find("core=2", 5)] == [None, None]
    room.occupancy.remove(1)
    assert room.find("core=2", 5) == (0, (1, 2))


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (Occupation(10, 20, free("#.")), False),
        (Occupation(10, 20, free(".#")), True),
        (Occupation(20, 30, free(".#")), False),
        (Occupation(0, 10, free(".#")), False),
        (Occupation(19, 30, free("..")), True),
    ],
)
def test_stays_meet_when_they_share_a_resource_at_some_instant(other, meets):
    assert Occupation(10, 20, free(".#")).meets(other) is meets
