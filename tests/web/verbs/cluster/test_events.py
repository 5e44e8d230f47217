"""What happened on nodes, as `oarnodes -e` asks for it."""

from collections.abc import Iterator

import pytest

from oarlock.model.event import Event, EventType
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from tests.web.nodeless_server import NOW, Running, running


def _fill(tx: Tx) -> None:
    lost, kind = EventType.PING_CHECKER_NODE_SUSPECTED, EventType.EPILOGUE_ERROR
    events.add(tx, [Event(lost, NOW + n, "no answer", hosts=(f"node{n}", "node9")) for n in range(1, 4)])
    events.add(tx, [Event(EventType.WALLTIME, NOW, "over", job=7), Event(kind, NOW + 9, "failed", 7, ("node1",))])


@pytest.fixture(scope="module")
def api(module_database: Database) -> Iterator[Running]:
    """A server where nobody changes anything."""
    module_database.write(_fill)
    with running(module_database) as api:
        yield api


def _found(api: Running, query: str) -> list[int]:
    return [one["id"] for one in api.client.get(f"/events{query}").body["events"]]


def test_events_of_nodes_are_found_by_name_date_and_number(api: Running):
    queries = ("", "?nodes=node1", "?nodes=node2,node3", f"?since={NOW + 3}", "?limit=2", "?nodes=none", "?nodes=")
    assert [_found(api, query) for query in queries] == [
        [1, 2, 3, 5], [1, 5], [2, 3], [3, 5], [3, 5], [], [],
    ]  # fmt: skip


def test_an_event_is_told_whole(api: Running):
    [told] = api.client.get(f"/events?since={NOW + 9}").body["events"]
    assert told == {
        "id": 5, "type": "EPILOGUE_ERROR", "at": NOW + 9, "description": "failed", "job_id": 7, "hosts": ["node1"],
        "to_check": True,
    }  # fmt: skip


@pytest.mark.parametrize("query", ["?limit=0", "?limit=10001", "?since=-1", "?node=n"])
def test_a_question_that_makes_no_sense_is_refused(api: Running, query: str):
    assert api.client.get(f"/events{query}").status == 400
