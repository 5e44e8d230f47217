"""Where each resource stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder
from oarlock.model.submission_errors import UnknownProperty
from oarlock.plan.sets.layout import NodeResources, bits_at
from tests.plan.drawing import cluster, laid, licences, node, table

BY_ID = (ResourceOrder("resource_id"),)


def test_nodes_get_fields_of_one_width_one_after_the_other():
    layout = laid(table(*node("a", 3), *node("b", 2)))
    assert layout.width == 8
    assert layout.nodes == (NodeResources("a", 0b111, 0, 8), NodeResources("b", 0b11 << 8, 8, 16))
    assert layout.ids == (1, 2, 3, 0, 0, 0, 0, 0, 4, 5)


@pytest.mark.parametrize(("cores", "width"), [(1, 8), (8, 8), (9, 16), (32, 32), (33, 64), (200, 256)])
def test_a_field_is_a_power_of_two_that_holds_a_node(cores, width):
    assert laid(cluster(2, cores)).width == width


def test_the_one_fat_node_of_a_cluster_takes_several_fields():
    rows = [row for at in range(10) for row in node(f"a{at}", 4)]
    layout = laid(table(*rows, *node("fat", 20)))
    assert layout.width == 8
    assert [(found.name, found.low, found.high) for found in layout.nodes[-2:]] == [("a9", 72, 80), ("fat", 80, 104)]


def test_priorities_of_single_resources_do_not_cost_the_fields():
    rows = [*node("a", 2), *node("b", 3), *node("c", 2)]
    for at, priority in ((0, 6), (1, 2), (2, 6), (3, 6), (4, 2)):
        rows[at]["scheduler_priority"] = priority
    layout = laid(table(*rows), DEFAULT_ORDER)
    assert (layout.width, [found.name for found in layout.nodes]) == (8, ["c", "a", "b"])
    assert layout.ids_of(layout.everything) == (6, 7, 2, 1, 5, 3, 4)
    mixed = (ResourceOrder("scheduler_priority"), ResourceOrder("core"))  # the site wants nodes mixed
    for at, row in enumerate(rows):
        row["core"] = at % 2
    assert laid(table(*rows), mixed).width == 0


def test_resources_without_a_node_come_last_whatever_the_order_says():
    rows = [*licences(1), *node("a", 2), *licences(1), *node("b", 1)]
    together = laid(table(*rows), BY_ID)
    assert together.ids_of(together.everything) == (2, 3, 5, 1, 4)
    mixed = laid(table(*rows, *node("a", 1)), BY_ID)
    assert mixed.ids_of(mixed.everything) == (2, 3, 5, 6, 1, 4)


def test_nodes_whose_resources_are_mixed_in_the_order_have_no_fields():
    layout = laid(table(*node("a", 1), *node("b", 2), *node("a", 1), *licences(1)), BY_ID)
    assert layout.width == 0
    assert layout.ids == (1, 2, 3, 4, 5)
    assert layout.nodes == (NodeResources("a", 0b1001, 0, 0), NodeResources("b", 0b0110, 0, 0))
    assert layout.node_at(0) is None


def test_a_position_belongs_to_the_node_whose_field_it_is_in():
    layout = laid(table(*node("a", 2), *node("b", 2), *licences(3)))
    names = [found.name if (found := layout.node_at(at)) else None for at in (0, 7, 8, 15, 16, 99)]
    assert names == ["a", "a", "b", "b", None, None]


def test_a_set_is_told_in_ids_rows_and_nodes():
    layout = laid(table(*node("b", 2), *node("a", 2), *licences(1)))
    some = layout.bits_of([1, 4, 5, 99])
    assert layout.ids_of(some) == (4, 1, 5)
    assert layout.rows_of(some) == [3, 0, 4]
    assert layout.nodes_of(some) == ["a", "b"]


def test_resources_are_found_by_the_value_of_a_property():
    layout = laid(table(*node("a", 2, gpu=1), *node("b", 1, gpu=2), *licences(1)))
    ids = {value: layout.ids_of(bits) for value, bits in layout.by_value("gpu").items()}
    assert ids == {1: (1, 2), 2: (3,), None: (4,)}
    assert layout.by_value("gpu") is layout.by_value("gpu")
    assert layout.by_value("resource_id") == {at: layout.bits_of([at]) for at in (1, 2, 3, 4)}


def test_a_property_that_nobody_has_is_refused_by_name():
    with pytest.raises(UnknownProperty, match="no property `colour`"):
        laid(cluster(1, 1)).by_value("colour")


def test_a_cluster_may_be_empty():
    layout = laid(table())
    assert (layout.everything, layout.ids, layout.nodes, layout.node_at(0)) == (0, (), (), None)


@given(st.sets(st.integers(0, 300)))
def test_a_set_of_positions_has_exactly_these_members(places):
    assert bits_at(sorted(places)) == sum(1 << at for at in places)
