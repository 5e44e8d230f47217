"""Maintenance windows, as administrators say them."""

from collections.abc import Iterator

import pytest

from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run
from tests.web.nodeless_server import Running, running

WINDOW = {"name": "cooling", "start": NOW + 100, "stop": NOW + 200}


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["node1", "node2"])
    run(tx, add_job(tx, user="nobody"), [2, 3])


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(_fill)
    with running(database) as api:
        yield api


def test_a_window_is_added_listed_and_removed(api: Running):
    added = api.client.post("/maintenance", {**WINDOW, "nodes": ["node2"]}).body
    number = added["window"]["id"]
    window = {**WINDOW, "id": number, "where": "network_address IN ('node2')", "by": "root"}
    assert added == {"window": window, "resources": 2, "running": [1], "reservations": []}
    assert api.client.get("/maintenance").body == {"windows": [window]}
    assert api.client.delete(f"/maintenance/{number}").status == 200
    assert api.client.get("/maintenance").body == {"windows": []}
    assert api.client.delete(f"/maintenance/{number}").body["kind"] == "UnknownWindow"


def test_a_window_may_be_about_a_condition_or_everything(api: Running):
    some = api.client.post("/maintenance", {**WINDOW, "where": "core >= 3"}).body
    everything = api.client.post("/maintenance", WINDOW).body
    assert (some["resources"], some["running"], everything["resources"]) == (1, [], 4)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"stop": NOW + 100}, "BadWindow"),
        ({"start": NOW - 9, "stop": NOW - 5}, "BadWindow"),
        ({"stop": NOW + 400 * 86400}, "BadWindow"),
        ({"name": "a\nb"}, "BadWindow"),
        ({"nodes": ["node1"], "where": "core = 1"}, "BadWindow"),
        ({"nodes": ["node9"]}, "UnknownNode"),
        ({"where": "colour = 1"}, "UnknownProperty"),
        ({"where": "core ="}, "SyntaxRefused"),
    ],
)
def test_a_window_that_cannot_be_is_refused_with_a_sentence(api: Running, asked, kind):
    reply = api.client.post("/maintenance", {**WINDOW, **asked})
    assert reply.body["kind"] == kind
    assert reply.body["error"].endswith(".") or kind == "SyntaxRefused"
    assert api.client.get("/maintenance").body == {"windows": []}
