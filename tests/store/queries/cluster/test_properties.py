"""A site's own properties are columns that come and go while the server runs."""

import pytest

from oarlock.model.errors import BadPropertyName, PropertyExists, SystemColumn
from oarlock.model.submission_errors import UnknownProperty
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.tables import resources as table
from tests.clusters import NOW
from tests.store.cluster import rows


@pytest.mark.manual(69)
def test_a_property_holds_integers_or_texts_and_nothing_at_first(tx: Tx):
    [number] = resources.add(tx, [{"network_address": "a"}], at=NOW)
    properties.add(tx, "mem", int)
    properties.add(tx, "GpuModel", str)
    types = properties.types(tx)
    assert (types["mem"], types["GpuModel"], types["cpu"], types["state"]) == (int, str, int, str)
    [resource] = resources.listed(tx, [number])
    assert (resource.properties["mem"], resource.properties["GpuModel"]) == (None, None)


@pytest.mark.manual(109)
def test_the_columns_of_the_manual_have_the_types_that_were_declared(tx: Tx):
    assert properties.types(tx) == {column.name: int if "INT" in str(column.type) else str for column in table.columns}


@pytest.mark.manual(70)
def test_a_renamed_property_keeps_its_values_and_its_history(tx: Tx):
    properties.add(tx, "mem", int)
    [number] = resources.add(tx, [{"mem": 64}], at=NOW)
    properties.rename(tx, "mem", "memory")
    resources.set_properties(tx, [number], {"memory": 128}, at=NOW + 1)
    [resource] = resources.listed(tx, [number])
    assert resource.properties["memory"] == 128
    assert rows(tx, "SELECT attribute, value, date_stop FROM resource_logs ORDER BY resource_log_id") == [
        ("state", "Alive", 0),
        ("memory", "64", NOW + 1),
        ("memory", "128", 0),
    ]


def test_only_the_case_of_a_name_can_be_changed(tx: Tx):
    properties.add(tx, "Mem", int)
    properties.rename(tx, "Mem", "mem")
    assert properties.types(tx)["mem"] is int


@pytest.mark.manual(70)
def test_a_dropped_property_is_gone_and_its_history_ends(tx: Tx):
    properties.add(tx, "mem", int)
    resources.add(tx, [{"mem": 64}], at=NOW)
    properties.drop(tx, "mem", at=NOW + 9)
    assert "mem" not in properties.types(tx)
    assert rows(tx, "SELECT value, date_stop FROM resource_logs WHERE attribute = 'mem'") == [("64", NOW + 9)]


@pytest.mark.parametrize("name", ["bad name", "", "1st", "é", "a-b", "x" * 64, "select", "AND", "walltime", "Nodes"])
def test_a_name_that_would_be_read_as_something_else_is_refused(tx: Tx, name: str):
    properties.add(tx, "mem", int)
    with pytest.raises(BadPropertyName, match="cannot be the name"):
        properties.add(tx, name, int)
    with pytest.raises(BadPropertyName, match="cannot be the name"):
        properties.rename(tx, "mem", name)


@pytest.mark.manual(71)
@pytest.mark.parametrize("name", ["state", "cpu", "resource_id", "STATE"])
def test_columns_of_every_cluster_stay_as_they_are(tx: Tx, name: str):
    properties.add(tx, "mem", int)
    with pytest.raises(SystemColumn, match=f"`{name.lower()}`"):
        properties.add(tx, name, str if name == "cpu" else int)
    with pytest.raises(SystemColumn):
        properties.rename(tx, "mem", name)
    if name != "STATE":
        with pytest.raises(SystemColumn):
            properties.rename(tx, name, "other")
        with pytest.raises(SystemColumn):
            properties.drop(tx, name, at=NOW)


@pytest.mark.parametrize(("name", "kind"), [("cpu", int), ("mem", int), ("host", str), ("available_upto", int)])
def test_a_property_that_is_there_and_holds_the_same_is_no_error(tx: Tx, name: str, kind: type):
    for own, own_kind in (("mem", int), ("host", str)):
        assert properties.add(tx, own, own_kind)
    before = properties.types(tx)
    assert not properties.add(tx, name, kind)
    assert properties.types(tx) == before
    with pytest.raises((SystemColumn, PropertyExists)):
        properties.add(tx, name, str if kind is int else int)


def test_the_same_name_twice_is_refused_in_capitals_too(tx: Tx):
    properties.add(tx, "mem", int)
    properties.add(tx, "gpu", int)
    with pytest.raises(PropertyExists, match="already a property `mem`"):
        properties.add(tx, "MEM", str)
    with pytest.raises(PropertyExists, match="already a property `mem`"):
        properties.rename(tx, "gpu", "mem")


def test_a_property_that_is_not_there_cannot_be_changed(tx: Tx):
    properties.add(tx, "mem", int)
    with pytest.raises(UnknownProperty, match="no property `men`") as refused:
        properties.drop(tx, "men", at=NOW)
    assert "`mem`" in refused.value.hint
    with pytest.raises(UnknownProperty):
        properties.rename(tx, "men", "other")


def test_readers_see_a_property_as_soon_as_it_is_there(database: Database):
    """Also those that have asked the same before: a database must not answer from what it remembers."""
    for number in range(8):
        database.write(lambda tx, number=number: properties.add(tx, f"p{number}", int))
        database.write(lambda tx, number=number: resources.add(tx, [{f"p{number}": number}], at=NOW))
        with database.read() as tx:
            assert resources.listed(tx)[-1].properties[f"p{number}"] == number
    database.write(lambda tx: properties.drop(tx, "p0", at=NOW))
    with database.read() as tx:
        assert "p0" not in resources.listed(tx)[0].properties
