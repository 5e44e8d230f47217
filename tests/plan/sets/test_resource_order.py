"""Which resources the scheduler prefers."""

import pytest

from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder
from oarlock.model.snapshot import ResourceTable
from oarlock.model.submission_errors import UnknownProperty
from oarlock.plan.sets.layout import preferred_rows
from tests.plan.drawing import licences, node, table


def ids(resources: ResourceTable, *order: ResourceOrder) -> list[int]:
    return [resources.ids[row] for row in preferred_rows(resources, order)]


@pytest.mark.manual(170)
def test_the_usual_order_is_by_priority_suspended_jobs_node_and_number():
    rows = [*node("b", 1), *node("a", 2), *node("a", 1, suspended_jobs="YES"), *node("a", 1, scheduler_priority=-1)]
    assert ids(table(*rows), *DEFAULT_ORDER) == [5, 2, 3, 1, 4]


def test_an_order_goes_either_way_and_ties_go_to_the_lower_number():
    resources = table(*(row for mem in (2, 1, 2, 3) for row in node("a", 1, mem=mem)))
    assert ids(resources, ResourceOrder("mem")) == [2, 1, 3, 4]
    assert ids(resources, ResourceOrder("mem", descending=True)) == [4, 1, 3, 2]
    assert ids(resources, ResourceOrder("mem"), ResourceOrder("resource_id", descending=True)) == [2, 3, 1, 4]
    assert ids(resources) == [1, 2, 3, 4]


@pytest.mark.parametrize("descending", [False, True])
def test_nothing_comes_last_in_either_direction(descending):
    resources = table(*licences(1, mem=None), *licences(1, mem=0), *licences(1, mem=None), *licences(1, mem=0))
    assert ids(resources, ResourceOrder("mem", descending=descending)) == [2, 4, 1, 3]


def test_numbers_and_texts_can_stand_in_one_column():
    resources = table(*licences(1, label="a"), *licences(1, label=7), *licences(1, label=""))
    assert ids(resources, ResourceOrder("label")) == [2, 3, 1]


def test_an_order_by_what_resources_do_not_have_is_refused_by_name():
    with pytest.raises(UnknownProperty, match="names `colour`, which is not a property"):
        ids(table(*node("a", 1)), ResourceOrder("colour"))
