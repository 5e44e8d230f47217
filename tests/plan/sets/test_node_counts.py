"""Counting the free resources of all nodes at once."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.model.plan import lowest, union
from oarlock.plan.sets.layout import NodeFields
from tests.plan.drawing import cluster, laid, licences, node, table

SIZES = [1, 3, 8, 9, 16, 31, 33, 64, 100, 128, 129, 200, 256]


def drawn(r: Random, cores: int):
    """Make a cluster of nodes with at most so many cores, and some free resources; licences stand behind."""
    sizes = [r.randint(max(1, cores - 2), cores) for _ in range(r.randint(1, 12))] + [cores] * 3
    rows = [row for at, size in enumerate(sizes) for row in node(f"n{at:02d}", size)]
    layout = laid(table(*rows, *licences(5)))
    share = r.random()
    return layout, layout.bits_of(at for at in layout.ids if r.random() < share)


@pytest.mark.parametrize("cores", SIZES)
@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_fields_count_as_one_does_by_hand(cores, seed):
    r = Random(seed)
    layout, free = drawn(r, cores)
    fields = NodeFields(layout)
    here = [(free & found.bits).bit_count() for found in layout.nodes]
    wanted = r.choice([1, 2, r.randint(1, cores), cores, cores + 1, fields.width, fields.width + 1])
    enough = [at for at, count in enumerate(here) if count >= wanted]
    lows = fields.lows_of(fields.at_least(free, wanted))
    assert lows == sum(1 << layout.nodes[at].low for at in enough)
    assert fields.nodes(lows) == sum(1 << at for at in enough)
    assert fields.nonempty(free) == sum(1 << found.low for found in layout.nodes if free & found.bits)
    assert fields.touched(free) == sum(1 << at for at, count in enumerate(here) if count)
    assert fields.filled(lows) == sum(((1 << fields.width) - 1) << layout.nodes[at].low for at in enough)


@pytest.mark.parametrize("cores", SIZES)
@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_nodes_become_resources_and_nodes_again(cores, seed):
    r = Random(seed)
    layout, _ = drawn(r, cores)
    fields = NodeFields(layout)
    nodes = r.getrandbits(len(layout.nodes))
    resources = fields.resources(nodes)
    assert resources == sum(found.bits for at, found in enumerate(layout.nodes) if nodes >> at & 1)
    assert fields.touched(resources) == nodes
    assert fields.touched(resources | 0) == nodes


@pytest.mark.parametrize("cores", SIZES)
@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_the_lowest_members_are_taken_of_the_first_fields_that_have_enough(cores, seed):
    r = Random(seed)
    layout, free = drawn(r, cores)
    fields, count = NodeFields(layout), r.randint(1, cores)
    enough = [found for found in layout.nodes if (free & found.bits).bit_count() >= count]
    chosen = enough[: r.randint(0, len(enough))]
    given = fields.lowest(free, fields.at_least(free, count), len(chosen), count)
    assert given == union(lowest(free & found.bits, count) for found in chosen)
    assert fields.touched(given) == sum(1 << layout.nodes.index(found) for found in chosen)
    assert (fields.whole(given), fields.whole(given + (1 << 300))) == (False, None)


def test_what_is_behind_the_fields_is_not_counted():
    layout = laid(table(*node("a", 2), *licences(20)))
    fields = NodeFields(layout)
    behind = layout.everything ^ fields.everything
    assert behind.bit_count() == 20
    assert (fields.at_least(behind, 1), fields.at_least(behind, 2), fields.touched(behind)) == (0, 0, 0)


def test_a_single_node_has_one_field():
    fields = NodeFields(laid(cluster(1, 4)))
    assert (fields.lows, fields.resources(1), fields.resources(0)) == (1, 0b1111, 0)
