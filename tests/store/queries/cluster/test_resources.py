"""Resources keep their properties, and history keeps what they were."""

from typing import Any

import pytest

from oarlock.lang.where import check, parse
from oarlock.model.errors import BadPropertyValue, OarlockError, ResourceInUse, SystemColumn, UnknownResource
from oarlock.model.job import JobState
from oarlock.model.resource import NextState, ResourceState
from oarlock.model.submission_errors import TypesDiffer, UnknownProperty
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, rows, run, step


def _history(tx: Tx) -> list[tuple[Any, ...]]:
    return rows(
        tx,
        "SELECT resource_id, attribute, value, date_start, date_stop, finaud_decision "
        "FROM resource_logs ORDER BY resource_log_id",
    )


def test_resources_have_what_was_given_and_defaults_for_the_rest(tx: Tx):
    properties.add(tx, "mem", int)
    first, second = resources.add(
        tx, [{"network_address": "a", "mem": 64}, {"type": "licence", "state": "Absent"}], at=NOW
    )
    found = {one.id: one.properties for one in resources.listed(tx)}
    assert {name: found[first][name] for name in ("network_address", "type", "state", "state_num", "mem", "cpu")} == {
        "network_address": "a",
        "type": "default",
        "state": "Alive",
        "state_num": 1,
        "mem": 64,
        "cpu": None,
    }
    assert {name: found[second][name] for name in ("network_address", "type", "state", "state_num", "mem")} == {
        "network_address": "",
        "type": "licence",
        "state": "Absent",
        "state_num": 2,
        "mem": None,
    }
    assert (found[first]["besteffort"], found[first]["next_state"], found[first]["drain"]) == ("YES", "UnChanged", "NO")
    assert _history(tx) == [
        (first, "state", "Alive", NOW, 0, "NO"),
        (first, "network_address", "a", NOW, 0, "NO"),
        (first, "mem", "64", NOW, 0, "NO"),
        (second, "state", "Absent", NOW, 0, "NO"),
        (second, "type", "licence", NOW, 0, "NO"),
    ]


def test_to_change_nothing_changes_nothing(tx: Tx):
    [number] = resources.add(tx, [{"network_address": "a", "cpu": 2}], at=NOW)
    before = _history(tx)
    assert resources.set_properties(tx, [number], {}, at=NOW + 1) == {}
    assert resources.set_properties(tx, [number], {"cpu": 2}, at=NOW + 1) == {"cpu": 0}
    assert resources.set_properties(tx, [], {"cpu": 3}, at=NOW + 1) == {"cpu": 0}
    assert _history(tx) == before


def test_a_thousand_resources_are_added_at_once(tx: Tx):
    numbers = add_nodes(tx, [f"node{n}" for n in range(500)])
    assert [one.id for one in resources.listed(tx)] == numbers
    assert resources.listed(tx, numbers[998:]) == resources.listed(tx)[998:]


@pytest.mark.manual(74, 110)
def test_a_change_leaves_a_line_of_history_and_no_change_leaves_none(tx: Tx):
    first, second = resources.add(tx, [{}, {"switch": "s2"}], at=NOW)
    resources.set_properties(tx, [first, second], {"switch": "s2", "cpu": 4}, at=NOW + 5)
    assert [(one.properties["switch"], one.properties["cpu"]) for one in resources.listed(tx)] == [("s2", 4)] * 2
    resources.set_properties(tx, [first], {"cpu": None}, at=NOW + 6)
    assert resources.listed(tx, [first])[0].properties["cpu"] is None
    assert _history(tx)[3:] == [
        (first, "switch", "s2", NOW + 5, 0, "NO"),
        (first, "cpu", "4", NOW + 5, NOW + 6, "NO"),
        (second, "cpu", "4", NOW + 5, 0, "NO"),
        (first, "cpu", None, NOW + 6, 0, "NO"),
    ]


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"nonsense": 1}, UnknownProperty),
        ({"state": "Dead"}, SystemColumn),
        ({"resource_id": 7}, SystemColumn),
        ({"cpu": "four"}, TypesDiffer),
        ({"switch": 4}, TypesDiffer),
        ({"besteffort": "MAYBE"}, BadPropertyValue),
        ({"besteffort": None}, BadPropertyValue),
        ({"switch": "x" * 256}, BadPropertyValue),
        ({"switch": "\0"}, BadPropertyValue),
        ({"cpu": 2**63}, BadPropertyValue),
        ({"cpuset": ""}, BadPropertyValue),
        ({"cpuset": None}, BadPropertyValue),
        ({"cpuset": "0-"}, BadPropertyValue),
        ({"cpuset": "0-99999999"}, BadPropertyValue),
        ({"cpuset": -1}, BadPropertyValue),
        ({"cpuset": "0\n1"}, BadPropertyValue),
        ({"network_address": "-oProxyCommand=reboot"}, BadPropertyValue),
        ({"network_address": "../../etc"}, BadPropertyValue),
        ({"network_address": "a b"}, BadPropertyValue),
        ({"network_address": "a\nb"}, BadPropertyValue),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_changes(
    tx: Tx, values: dict[str, Any], refusal: type[OarlockError]
):
    [number] = resources.add(tx, [{}], at=NOW)
    before = resources.listed(tx), _history(tx)
    with pytest.raises(refusal):
        resources.set_properties(tx, [number], values, at=NOW)
    if "state" not in values:
        with pytest.raises(refusal):
            resources.add(tx, [{}, values], at=NOW)
    assert (resources.listed(tx), _history(tx)) == before


def test_a_resource_has_one_cpu_or_several_and_history_keeps_both(tx: Tx):
    [number] = resources.add(tx, [{"network_address": "a", "cpuset": 3}], at=NOW)
    assert resources.set_properties(tx, [number], {"cpuset": "3"}, at=NOW + 1) == {"cpuset": 0}
    assert resources.set_properties(tx, [number], {"cpuset": "0,32"}, at=NOW + 2) == {"cpuset": 1}
    assert [one.properties["cpuset"] for one in resources.listed(tx)] == ["0,32"]
    assert [line[1:5] for line in _history(tx)][2:] == [("cpuset", "3", NOW, NOW + 2), ("cpuset", "0,32", NOW + 2, 0)]


@pytest.mark.parametrize("name", ["node1", "node-2.site.example", "10.0.0.1", "fe80::1", "n_1", ""])
def test_a_node_has_a_name_of_the_net_and_what_is_on_no_node_has_none(tx: Tx, name: str):
    [number] = resources.add(tx, [{"network_address": name}], at=NOW)
    assert [one.properties["network_address"] for one in resources.listed(tx, [number])] == [name]


def test_a_resource_that_is_not_there_is_named(tx: Tx):
    [number] = resources.add(tx, [{}], at=NOW)
    for change in (
        lambda ids: resources.set_properties(tx, ids, {"cpu": 1}, at=NOW),
        lambda ids: resources.set_state(tx, ids, ResourceState.DEAD, at=NOW),
        lambda ids: resources.request_state(tx, ids, NextState.DEAD),
    ):
        with pytest.raises(UnknownResource, match=f"no resource {number + 1}"):
            change([number, number + 1])
    assert resources.listed(tx)[0].properties["state"] == "Alive"


@pytest.mark.manual(76)
def test_a_state_is_asked_for_and_then_applied(tx: Tx):
    first, second, third = resources.add(tx, [{}] * 3, at=NOW)
    resources.request_state(tx, [first, second], NextState.SUSPECTED, by_check=True)
    assert resources.requested_states(tx) == [(first, NextState.SUSPECTED, True), (second, NextState.SUSPECTED, True)]
    assert resources.set_state(tx, [first], ResourceState.SUSPECTED, at=NOW + 1, by_check=True) == [first]
    assert resources.requested_states(tx) == [(second, NextState.SUSPECTED, True)]
    assert resources.set_state(tx, [first, third], ResourceState.SUSPECTED, at=NOW + 2) == [third]
    found = {one.id: one.properties for one in resources.listed(tx)}
    assert [
        (found[n]["state"], found[n]["state_num"], found[n]["finaud_decision"]) for n in (first, second, third)
    ] == [
        ("Suspected", 3, "NO"),  # a person confirmed what the check had found
        ("Alive", 1, "NO"),
        ("Suspected", 3, "NO"),
    ]
    assert _history(tx) == [
        (first, "state", "Alive", NOW, NOW + 1, "NO"),
        (second, "state", "Alive", NOW, 0, "NO"),
        (third, "state", "Alive", NOW, NOW + 2, "NO"),
        (first, "state", "Suspected", NOW + 1, 0, "YES"),
        (third, "state", "Suspected", NOW + 2, 0, "NO"),
    ]


def test_the_end_of_maintenance_gives_back_what_it_replaced(tx: Tx):
    rows = [{"network_address": f"n{n}", "cm_availability": date} for n, date in enumerate((9000, 9000, 0))]
    woken, never_away, never_woken = resources.add(tx, rows, at=1)
    resources.set_properties(tx, [never_away], {"cm_availability": 0}, at=2)
    every = [woken, never_away, never_woken]
    resources.set_state(tx, every, ResourceState.ABSENT, at=3, by_check=False)
    resources.set_properties(tx, every, {"cm_availability": 0}, at=3)
    resources.end_maintenance(tx, every, at=9)
    resources.end_maintenance(tx, every, at=10)
    assert [one.properties["cm_availability"] for one in resources.listed(tx, every)] == [9000, 0, 0]


def test_resources_are_found_by_condition(tx: Tx):
    numbers = add_nodes(tx, ["a", "b"])
    types = properties.types(tx)
    assert resources.matching(tx, check(parse("network_address = 'b' AND core >= 2"), types), types) == numbers[2:]


@pytest.mark.manual(77)
def test_only_a_dead_and_free_resource_can_be_removed(tx: Tx):
    first, second = add_nodes(tx, ["a"])
    job = run(tx, add_job(tx), [second])
    with pytest.raises(ResourceInUse, match=f"Resource {first} is Alive"):
        resources.remove(tx, first, at=NOW)
    resources.set_state(tx, [first, second], ResourceState.DEAD, at=NOW)
    with pytest.raises(ResourceInUse, match="still belongs to a job"):
        resources.remove(tx, second, at=NOW)
    resources.remove(tx, first, at=NOW)
    step(tx, step(tx, job, JobState.FINISHING), JobState.TERMINATED)
    resources.remove(tx, second, at=NOW)
    assert resources.listed(tx) == []
    assert rows(tx, "SELECT count(*) FROM resource_logs WHERE date_stop = 0") == [(0,)]
    with pytest.raises(UnknownResource):
        resources.remove(tx, first, at=NOW)


def test_the_number_of_a_removed_resource_is_never_given_again(database: Database, place: str):
    def add_and_remove(tx: Tx) -> int:
        [number] = resources.add(tx, [{"state": "Dead"}], at=NOW)
        resources.remove(tx, number, at=NOW)
        return number

    removed = database.write(add_and_remove)
    database.close()
    with open_database(place) as again:
        assert again.write(lambda tx: resources.add(tx, [{}], at=NOW)) == [removed + 1]


def test_history_shows_when_resources_were_not_alive(tx: Tx):
    first, second, third, last = resources.add(tx, [{"network_address": "a"}] * 4, at=NOW)
    resources.set_state(tx, [first, second], ResourceState.SUSPECTED, at=NOW + 2)
    resources.set_state(tx, [first], ResourceState.DEAD, at=NOW + 4)
    resources.set_state(tx, [second], ResourceState.ALIVE, at=NOW + 6)
    resources.set_state(tx, [second], ResourceState.ABSENT, at=NOW + 7)
    resources.set_state(tx, [second], ResourceState.ALIVE, at=NOW + 7)
    resources.set_state(tx, [third], ResourceState.DEAD, at=NOW + 8)
    resources.remove(tx, third, at=NOW + 9)
    resources.set_state(tx, [last], ResourceState.SUSPECTED, at=NOW + 20)
    assert resources.states_between(tx, NOW + 5, NOW + 20, most=9) == [
        (first, NOW + 4, NOW + 20, "Dead"),
        (second, NOW + 2, NOW + 6, "Suspected"),
        (third, NOW + 8, NOW + 9, "Dead"),
    ]
    assert resources.states_between(tx, NOW, NOW + 2, most=9) == []
    assert resources.states_between(tx, NOW + 6, NOW + 9, most=1) == [(first, NOW + 4, NOW + 9, "Dead")]
