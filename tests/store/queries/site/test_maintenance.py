"""Maintenance windows, stored."""

import pytest

from oarlock.model.limits import Maintenance, UnknownWindow
from oarlock.model.snapshot import MaintenanceWindow
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.planning import snapshot
from oarlock.store.queries.site import administration
from tests.clusters import NOW, add_nodes


def test_windows_are_listed_by_their_begin_until_they_are_over(tx: Tx):
    late = administration.add_maintenance(tx, Maintenance(0, "late", NOW + 50, NOW + 60, "", "root"))
    early = administration.add_maintenance(tx, Maintenance(0, "early", NOW - 9, NOW + 10, "core > 1", "root"))
    assert early.id == late.id + 1
    assert administration.all_maintenance(tx, now=NOW) == [early, late]
    assert administration.all_maintenance(tx, now=NOW + 10) == [late]


def test_a_window_is_removed_once(tx: Tx):
    number = administration.add_maintenance(tx, Maintenance(0, "x", NOW, NOW + 10, "", "root")).id
    administration.remove_maintenance(tx, number)
    with pytest.raises(UnknownWindow, match=f"There is no maintenance {number}"):
        administration.remove_maintenance(tx, number)


def test_the_scheduler_sees_windows_with_their_resources(tx: Tx):
    ids = tuple(add_nodes(tx, ["node1", "node2"]))
    for where in ("network_address = 'node2'", "", "core = 0", "gone = 1"):
        administration.add_maintenance(tx, Maintenance(0, where or "all", NOW, NOW + 10, where, "root"))
    administration.add_maintenance(tx, Maintenance(0, "over", NOW - 10, NOW, "", "root"))
    seen = snapshot.read(tx, karma_window=9, now=NOW).snapshot.windows
    assert [(one.name, one.resources) for one in seen] == [
        ("network_address = 'node2'", ids[2:]), ("all", ids), ("core = 0", ids[:1]), ("gone = 1", ids),
    ]  # fmt: skip
    assert administration.maintenance_windows(tx, properties.types(tx), now=NOW)[2] == MaintenanceWindow(
        "core = 0", NOW, NOW + 10, ids[:1]
    )
