"""The tree of a request, with a memory of nodes."""

import pytest

from oarlock.model.submission import ALL, BEST, BESTHALF, Level
from oarlock.plan.fit import tree
from oarlock.plan.fit.tree import TreeFit, build_tree, choose
from tests.plan.drawing import cluster, laid, licences, node, table

SWITCHES = table(*(row for at in range(6) for row in node(f"n{at}", 4, switch=at // 3)))

WIDE = table(*(row for at in range(12) for row in node(f"n{at:02d}", 2)), *node("fat", 20))


def asked(layout, *levels):
    wanted = [Level(name, count) for name, count in levels]
    return TreeFit(layout, build_tree(layout, layout.everything, wanted), wanted)


@pytest.mark.parametrize(
    "levels",
    [
        [("network_address", 2), ("cpu", 1)],
        [("cpu", 3)],
        [("switch", 2), ("network_address", 1), ("cpu", 1), ("core", 1)],
        [("switch", 1), ("cpu", 5)],
        [("switch", ALL), ("network_address", BEST), ("cpu", BESTHALF)],
    ],
)
def test_a_request_cut_into_nodes_takes_what_the_tree_takes(levels):
    layout = laid(SWITCHES)
    quick = asked(layout, *levels)
    assert quick._nodes
    root = build_tree(layout, layout.everything, [Level(*level) for level in levels])
    for gone in range(24):
        free = layout.bits_of(set(range(1, 25)) - set(range(gone, 24, 5)))
        assert quick.take(free) == choose(root, free)
        assert quick.fits(free) == bool(choose(root, free))


@pytest.mark.parametrize("resources", [SWITCHES, WIDE], ids=["equal", "wide"])
def test_asking_again_gives_the_same_whatever_was_asked_in_between(resources):
    layout = laid(resources)
    levels = [Level("network_address", 2), Level("cpu", 1)]
    quick = TreeFit(layout, build_tree(layout, layout.everything, levels), levels)
    sets = [layout.bits_of(range(first, 45, step)) for first in range(1, 45, 4) for step in (1, 2, 3, 11)]
    answers = [(quick.fits(free), quick.take(free), quick.offers(free)) for free in sets]
    assert [(quick.fits(free), quick.take(free), quick.offers(free)) for free in reversed(sets)] == answers[::-1]


def test_where_blocks_span_nodes_the_tree_is_walked_as_it_is():
    layout = laid(SWITCHES)
    spanning = asked(layout, ("switch", 1))
    assert not spanning._nodes
    assert layout.ids_of(spanning.take(layout.everything)) == tuple(range(1, 13))
    assert spanning.offers(layout.everything) == 2
    assert not spanning.fits(layout.bits_of([1, 13]))
    loose = laid(table(*node("a", 2), *licences(2, core="l")))
    assert not asked(loose, ("core", 1))._nodes


def test_a_count_of_resources_alone_has_no_tree_to_cut():
    layout = laid(cluster(1, 2))
    assert asked(layout, ("resource_id", 1)).take(layout.everything) == 1


def test_nodes_of_the_same_build_share_one_memory():
    layout = laid(SWITCHES)
    quick = asked(layout, ("network_address", 1), ("cpu", 1))
    assert len({id(cell.build) for cell in quick._nodes}) == 1
    quick.take(layout.everything)
    [build] = {id(cell.build): cell.build for cell in quick._nodes}.values()
    assert build.choices[0b1111] == (0b11,)


def test_the_memory_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(tree, "_REMEMBERED", 2)
    layout = laid(cluster(1, 4))
    quick = asked(layout, ("network_address", 1), ("cpu", 1))
    taken = [quick.take(free) for free in range(1, 16)]
    root = build_tree(layout, layout.everything, [Level("network_address", 1), Level("cpu", 1)])
    assert taken == [choose(root, free) for free in range(1, 16)]
    assert len(quick._nodes[0].build.choices) <= 2
