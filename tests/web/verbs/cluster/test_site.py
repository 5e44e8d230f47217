"""Resources, properties, queues and accounts, as administrators look after them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from oarlock.model.resource import NextState
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import Client, Running, alone, running


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["node1", "node2"])
    run(tx, add_job(tx, user="nobody"), [2, 3])
    ended = run(tx, add_job(tx, user="daemon", project="moon"), [1], at=NOW)
    step(tx, step(tx, ended, JobState.FINISHING, at=NOW + 60), JobState.TERMINATED, at=NOW + 60)


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(_fill)
    with running(database, accounting_window=1000) as api:
        yield api


def _ids(client: Client, query: str) -> list[int]:
    return [one["resource_id"] for one in client.get(f"/resources{query}").body["resources"]]


def test_resources_are_shown_with_all_columns_and_who_holds_them(api: Running):
    shown = api.client.get("/resources?nodes=node1").body
    assert shown["jobs"] == {"2": [1]}
    assert shown["resources"][1] == {
        "resource_id": 2, "type": "default", "network_address": "node1", "state": "Alive", "next_state": "UnChanged",
        "finaud_decision": "NO", "next_finaud_decision": "NO", "state_num": 1, "suspended_jobs": "NO",
        "scheduler_priority": 0, "switch": None, "cpu": None, "cpuset": "1", "besteffort": "YES", "deploy": "NO",
        "expiry_date": 0, "desktop_computing": "NO", "last_job_date": 0, "cm_availability": 0, "available_upto": 0,
        "drain": "NO", "core": 1,
    }  # fmt: skip


def test_resources_are_found_in_three_ways(api: Running):
    found = [
        _ids(api.client, query) for query in ("", "?ids=4,1", "?nodes=node2", "?where=core+%3E+1+and+cpuset%3D%271%27")
    ]
    assert found == [[1, 2, 3, 4], [1, 4], [3, 4], [4]]
    assert api.client.get("/resources?ids=9").body["kind"] == "UnknownResource"


def test_a_node_is_added_changed_and_removed(api: Running):
    client = api.client
    asked = {"host": "node3", "count": 2, "properties": {"core": 7, "switch": "s1"}, "state": "Absent"}
    assert client.post("/resources", asked).body == {"resource_ids": [5, 6]}
    changed = client.post("/resources/properties", {"nodes": ["node3"], "properties": {"core": 8, "switch": "s1"}})
    assert changed.body == {"resource_ids": [5, 6], "updated": {"core": 2, "switch": 0}}
    shown = client.get("/resources?nodes=node3").body["resources"]
    assert [(one["core"], one["switch"], one["state"], one["network_address"]) for one in shown] == [
        (8, "s1", "Absent", "node3"), (8, "s1", "Absent", "node3"),
    ]  # fmt: skip
    assert client.delete("/resources/5").body["kind"] == "ResourceInUse"
    assert api.core.asked == ["schedule", "schedule"]


def test_a_state_is_handed_to_the_server(api: Running):
    told = api.client.post("/resources/state", {"where": "core < 2", "state": "Absent", "now": True})
    assert told.body == {"resource_ids": [1, 2], "jobs": [1]}
    assert api.core.asked == [("state", [1, 2], NextState.ABSENT)]


def test_properties_come_change_their_name_and_go(api: Running):
    client = api.client
    client.post("/properties", {"name": "gpu", "kind": "str"})
    client.post("/properties/rename", {"old": "gpu", "new": "card"})
    shown = client.get("/properties").body
    assert (shown["properties"]["card"], shown["properties"]["core"], "gpu" in shown["properties"]) == (
        "str",
        "int",
        False,
    )
    assert "network_address" in shown["system"]
    assert not {"card", "core"} & set(shown["system"])
    assert client.delete("/properties/card").body == {}
    assert client.delete("/properties/state").body["kind"] == "SystemColumn"
    assert "card" not in client.get("/properties").body["properties"]


@pytest.mark.manual(82, 83)
def test_queues_come_stop_start_and_go(api: Running):
    client = api.client
    client.post("/queues", {"name": "night", "priority": 9, "policy": "fcfs"})
    client.post("/queues/stop", {"names": ["night"]})
    night = {"name": "night", "priority": 9, "policy": "fcfs", "active": False}
    assert night in client.get("/queues").body["queues"]
    client.post("/queues/start", {})
    assert {queue["active"] for queue in client.get("/queues").body["queues"]} == {True}
    assert client.delete("/queues/night").body == {}
    assert client.delete("/queues/default").body["kind"] == "QueueInUse"
    assert client.delete("/queues/night").body["kind"] == "UnknownQueue"


@pytest.mark.manual(78, 79, 80)
def test_accounts_are_brought_up_to_date_shown_and_made_anew(api: Running):
    client = api.client
    done = client.post("/accounting", {}).body
    assert (done["jobs"], done["rows"]) == (1, 5)
    used = {"window_start": NOW, "window_stop": NOW + 999, "user": "daemon", "project": "moon", "queue": "default",
            "type": "USED", "consumption": 60}  # fmt: skip
    assert used in client.get("/accounting?user=daemon&project=moon").body["rows"]
    assert client.get("/accounting?user=nobody").body == {"rows": [], "karma": {}}
    assert client.get("/accounting?project=sun").body == {"rows": [], "karma": {}}
    api.core.clock.at += 1  # windows count that began before
    # All that was used is daemon's, for one project, and so is most of what was asked for: 3 + 2 + 1.
    assert client.get("/accounting?user=daemon").body["karma"] == {"moon": 6.0}
    before = client.get("/accounting").body
    again = client.post("/accounting", {"reinitialize": True}).body
    assert again == done
    assert used in [{name: one[name] for name in used} for one in again["bookings"]]
    assert client.get("/accounting").body == before
    api.core.clock.at += 3000
    assert client.post("/accounting", {"delete_before": 1000}).body == {
        "jobs": 0, "rows": 3, "bookings": [],
    }  # fmt: skip
    assert len(client.get("/accounting").body["rows"]) == 2


@pytest.mark.manual(81)
@pytest.mark.parametrize(
    ("tag", "step"),
    [
        ("Term", "schedule"),
        ("walltime", "schedule"),
        ("Qdel", "watch"),
        ("Finaud", "check nodes"),
        ("ChState", "apply states"),
    ],
)
def test_a_tag_of_oar_has_its_step_done_at_once(sqlite_path: Path, tag: str, step: str):
    with alone(sqlite_path) as server:
        server.core.asked.clear()
        assert server.client.post("/notify", {"tag": tag}).status == 200
        assert server.core.asked == [step]
        refused = server.client.post("/notify", {"tag": "Nonsense"})
        assert (refused.status, refused.body["error"]) == (400, "There is no tag `Nonsense`.")


def test_a_queue_with_jobs_gets_another_priority_and_policy(database: Database):
    database.write(_fill)
    with running(database) as server:
        asked = {"name": "default", "priority": 9, "policy": "easy"}
        assert server.client.post("/queues/change", asked).status == 200
        [queue] = [q for q in server.client.get("/queues").body["queues"] if q["name"] == "default"]
        assert (queue["priority"], queue["policy"]) == (9, "easy")
        assert server.client.post("/queues/change", {**asked, "name": "zzz"}).body["kind"] == "UnknownQueue"
        assert server.client.post("/queues/change", {**asked, "policy": "esay"}).body["kind"] == "UnknownPolicy"
