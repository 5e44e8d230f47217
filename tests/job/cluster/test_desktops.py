"""Which desktops are admitted, what becomes of their resources while they are away, and when they are back."""

import pytest

from oarlock.config import Config
from oarlock.job.cluster import desktops
from oarlock.job.cluster.desktops import DesktopIdentity
from oarlock.job.cluster.inventory import Machine
from oarlock.model.errors import DesktopElsewhere, NotDesktop, UnknownNode
from oarlock.model.resource import ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources

MACHINE = Machine(sockets=(((0, 2), (1, 3)),), memory=8 << 30)
DESK = DesktopIdentity("desk", "token", "m1", MACHINE)
OPEN = Config(desktop_computing_allow_create_node=True)


def rows(tx: Tx, *names: str) -> list[tuple[object, ...]]:
    return [tuple(resource.properties[name] for name in names) for resource in resources.listed(tx)]


def test_a_new_desktop_gets_a_resource_a_core_that_is_absent_at_first(tx: Tx):
    properties.add(tx, "core", int)
    with pytest.raises(UnknownNode, match="There is no node `desk`"):
        desktops.admit(tx, Config(), DESK, now=7)
    assert resources.listed(tx) == []
    desktops.admit(tx, OPEN, DESK, now=7)
    desktops.admit(tx, OPEN, DESK, now=8)  # again: nothing is added twice
    columns = ("network_address", "core", "cpuset", "desktop_computing", "state", "expiry_date")
    assert rows(tx, *columns) == [
        ("desk", 1, "0,2", "YES", "Absent", 7),
        ("desk", 2, "1,3", "YES", "Absent", 7),
    ]


def test_the_node_of_a_server_is_no_desktop(tx: Tx):
    resources.add(tx, [{"network_address": "desk"}], at=1)
    with pytest.raises(NotDesktop, match="`desk` is not a desktop"):
        desktops.admit(tx, OPEN, DESK, now=2)


def test_a_token_is_good_for_one_machine_and_a_new_one_for_another(tx: Tx):
    desktops.admit(tx, OPEN, DESK, now=1)
    with pytest.raises(DesktopElsewhere, match="used on another machine"):
        desktops.admit(tx, OPEN, DesktopIdentity("desk", "token", "m2", MACHINE), now=2)
    desktops.admit(tx, OPEN, DesktopIdentity("desk", "new", "m2", MACHINE), now=3)
    with pytest.raises(DesktopElsewhere):  # the first machine is no longer the node
        desktops.admit(tx, OPEN, DESK, now=4)
    desktops.admit(tx, OPEN, DesktopIdentity("desk", "newer", "m2", MACHINE), now=5)
    desktops.admit(tx, OPEN, DesktopIdentity("desk", "new", "m2", MACHINE), now=6)  # both are its own


def test_who_returns_is_alive_unless_an_administrator_took_it_out(tx: Tx):
    numbers = resources.add(tx, [{"network_address": "desk", "desktop_computing": "YES"}] * 5, at=1)
    gone, dead, blamed, absent, alive = numbers
    for number, state in ((gone, "Absent"), (dead, "Dead"), (blamed, "Suspected"), (absent, "Absent")):
        resources.set_state(tx, [number], ResourceState(state), at=2)
    desktops.expire(tx, [gone, dead, alive], at=9, now=2)
    desktops.returned(tx, "desk", now=3)
    assert rows(tx, "state", "expiry_date") == [
        ("Alive", 0), ("Alive", 0), ("Alive", 0), ("Absent", 0), ("Alive", 0),
    ]  # fmt: skip


def test_only_desktops_that_are_away_get_a_date(tx: Tx):
    away, _, _ = resources.add(
        tx,
        [
            {"network_address": "away", "desktop_computing": "YES"},
            {"network_address": "here", "desktop_computing": "YES"},
            {"network_address": "node"},
        ],
        at=1,
    )
    assert desktops.undated(tx, {"here"}) == [away]
    desktops.expire(tx, [away], at=70, now=60)
    assert desktops.undated(tx, {"here"}) == []
    assert rows(tx, "expiry_date") == [(70,), (0,), (0,)]
    assert resources.desktops(tx) == {"away", "here"}
