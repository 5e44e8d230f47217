"""Conditions on all resources at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.lang import where
from oarlock.model.resource import ResourceOrder
from oarlock.model.snapshot import ResourceTable
from oarlock.model.submission_errors import UnknownProperty
from oarlock.plan.sets.layout import make_layout
from oarlock.plan.sets.selection import matching
from tests.lang.trees import TYPES, conditions, rows
from tests.plan.drawing import cluster, laid, licences, node, table


@given(st.lists(rows(), max_size=8), conditions())
def test_a_condition_matches_the_resources_it_is_true_of_row_by_row(drawn, condition):
    ids = tuple(range(1, len(drawn) + 1))
    columns = {name: tuple(row[name] for row in drawn) for name in TYPES}
    layout = make_layout(ResourceTable(ids, columns), (ResourceOrder("mem"),))
    expected = {id_ for id_, row in zip(ids, drawn, strict=True) if where.truth(condition, row) is True}
    assert set(layout.ids_of(matching(layout, condition))) == expected


def test_everything_matches_no_condition():
    layout = laid(table(*node("a", 2), *licences(1)))
    assert layout.ids_of(matching(layout, None)) == (1, 2, 3)


def test_nothing_known_is_not_a_match_and_neither_is_its_opposite():
    layout = laid(table(*node("a", 1, gpu=1), *node("b", 1)))
    assert layout.ids_of(matching(layout, where.parse("gpu = 1"))) == (1,)
    assert layout.ids_of(matching(layout, where.parse("not gpu = 1"))) == ()


def test_a_resource_can_be_asked_for_by_number():
    layout = laid(cluster(2, 2))
    assert layout.ids_of(matching(layout, where.parse("resource_id >= 3"))) == (3, 4)


@pytest.mark.parametrize("text", ["colour = 'red'", "colour = network_address", "not (core = 1 and colour is null)"])
def test_a_condition_on_what_resources_do_not_have_is_refused_by_name(text):
    with pytest.raises(UnknownProperty, match="no property `colour`"):
        matching(laid(cluster(1, 1)), where.parse(text))
