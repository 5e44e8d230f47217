"""The hierarchy of a request as a tree, and the choice in it."""

import pytest

from oarlock.model.submission import ALL, BEST, BESTHALF, Level
from oarlock.plan.fit.tree import RequestTrees, Vertex, build_tree, choose, count_kept, minimum_size, survivors
from tests.plan.drawing import free, laid, licences, node, table

#       a (s1)    b (s1)    c (s2)
#       0 1 2 3   8 9       16 17 18
LAYOUT = laid(table(*node("a", 4, switch=1), *node("b", 2, switch=1), *node("c", 3, switch=2), *licences(1)))
A, B, C = 0b1111, 0b11 << 8, 0b111 << 16


def tree(*levels):
    allowed = LAYOUT.everything if levels[0][0] == "resource_id" else A | B | C
    return build_tree(LAYOUT, allowed, [Level(name, count) for name, count in levels])


@pytest.mark.manual(36)
def test_a_vertex_is_a_value_below_the_value_above():
    assert tree(("switch", 1), ("network_address", BEST)) == Vertex(
        A | B | C,
        1,
        (
            Vertex(A | B, BEST, (Vertex(A, ALL), Vertex(B, ALL))),
            Vertex(C, BEST, (Vertex(C, ALL),)),
        ),
    )


def test_below_the_last_level_all_resources_are_wanted():
    assert tree(("network_address", 2)).children[1] == Vertex(B, ALL)
    assert tree(("network_address", 2), ("resource_id", 1)).children[1] == Vertex(B, 1)
    assert tree(("resource_id", 3)) == Vertex(LAYOUT.everything, 3)


def test_resources_without_a_value_are_left_out():
    assert build_tree(LAYOUT, LAYOUT.everything, [Level("switch", 1)]).bits == A | B | C


@pytest.mark.manual(36)
@pytest.mark.parametrize(
    ("count", "survivors", "total", "kept"),
    [
        (2, 3, 3, 2), (2, 2, 9, 2), (2, 1, 9, 0),
        (ALL, 3, 3, 3), (ALL, 2, 3, 0),
        (BEST, 2, 3, 2), (BEST, 0, 3, 0),
        (BESTHALF, 5, 9, 2), (BESTHALF, 1, 9, 1), (BESTHALF, 0, 9, 0),
    ],
)  # fmt: skip
def test_a_count_says_how_many_of_the_survivors_are_kept(count, survivors, total, kept):
    assert count_kept(count, survivors, total) == kept


@pytest.mark.parametrize("count", [0, -4])
def test_what_is_no_count_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} is not a count"):
        count_kept(count, 1, 1)


def test_the_first_survivors_are_taken():
    asked = tree(("switch", 1), ("network_address", 1), ("resource_id", 2))
    assert choose(asked, A | B | C) == 0b11
    assert choose(asked, 0b1000 | B | C) == B
    assert choose(asked, 0b1000 | 1 << 8 | C) == 0b11 << 16
    assert choose(asked, 0b1001 & 0b1) == 0
    assert choose(asked, 0) == 0


def test_survivors_are_counted_at_the_root():
    asked = tree(("network_address", 9), ("resource_id", 2))
    assert (survivors(asked, A | B | C), survivors(asked, A | 1 << 8)) == (3, 1)
    assert survivors(Vertex(0b1111, 9), free(".#.#")) == 2


@pytest.mark.parametrize(
    ("levels", "needed"),
    [
        ([("network_address", 1)], 2),
        ([("network_address", 2)], 5),
        ([("network_address", ALL)], 9),
        ([("network_address", 9)], 9),
        ([("network_address", BEST)], 2),
        ([("network_address", BESTHALF), ("resource_id", 3)], 3),
        ([("switch", ALL), ("network_address", 1)], 5),
        ([("resource_id", BEST)], 1),
        ([("resource_id", ALL)], 10),
    ],
)
def test_no_fewer_resources_than_the_least_will_ever_do(levels, needed):
    assert minimum_size(tree(*levels)) == needed


@pytest.mark.parametrize("levels", [[("switch", 2), ("network_address", ALL)], [("network_address", 1), ("core", 2)]])
def test_a_tree_is_grown_once_and_copied_with_other_counts(levels):
    forest, first = RequestTrees(LAYOUT), [Level(name, 1) for name, _ in levels]
    assert forest.tree(A | B | C, first) == build_tree(LAYOUT, A | B | C, first)
    assert forest.tree(A | B | C, [Level(*level) for level in levels]) == tree(*levels)
