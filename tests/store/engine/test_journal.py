"""The log tells what is on disk: every move, event, node and queue, and nothing that was undone."""

import logging

import pytest

from oarlock.model.errors import IllegalMove
from oarlock.model.event import Event, EventType
from oarlock.model.job import JobState, move
from oarlock.model.resource import ResourceState
from oarlock.node.log_lines import DetailFormatter
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import moves
from oarlock.store.queries.site import administration
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, database: Database):
    """Return the lines so far, of one logger if one is named; whatever was asked for is on disk by then."""
    caplog.set_level(logging.INFO)

    def read(name: str = "") -> list[str]:
        database.write(lambda tx: None)  # the writer logs behind its answer: the next answer is later
        form = DetailFormatter("%(levelname)s %(message)s")
        return [form.format(record) for record in caplog.records if record.name.startswith(f"oarlock.{name}")]

    return read


def test_the_log_tells_every_move_of_a_job_with_its_user_and_end(database: Database, lines):
    def live(tx: Tx) -> None:
        job = run(tx, add_job(tx), add_nodes(tx, ["node1"]))
        for state, changes in ((JobState.FINISHING, {}), (JobState.TERMINATED, {"exit_code": 3 << 8})):
            moved = move(job, state, at=NOW + 9, why="the command ended", **changes)
            moves.record(tx, [moved])
            job = moved.job

    database.write(live)
    assert lines("jobs") == [
        "INFO job moved job=1 user=ada state=toLaunch was=Waiting why=because",
        "INFO job moved job=1 user=ada state=Launching was=toLaunch why=because",
        "INFO job moved job=1 user=ada state=Running was=Launching why=because",
        'INFO job moved job=1 user=ada state=Finishing was=Running why="the command ended"',
        'INFO job moved job=1 user=ada state=Terminated was=Finishing exit="exit 3" why="the command ended"',
    ]


def test_the_log_warns_of_suspected_nodes_and_stopped_queues(database: Database, lines):
    def trouble(tx: Tx) -> None:
        ids = add_nodes(tx, ["node1", "node2"])
        event = Event(EventType.PING_CHECKER_NODE_SUSPECTED, NOW, "no answer", hosts=("node1",))
        events.add(tx, [event])
        resources.set_state(tx, ids[:2], ResourceState.SUSPECTED, at=NOW)
        administration.stop_queues(tx, ["default"])
        administration.stop_queues(tx, ["default"])  # is stopped already: not told again
        resources.set_state(tx, ids, ResourceState.ALIVE, at=NOW)
        administration.start_queues(tx, ["default"])
        resources.set_properties(tx, ids[:2], {"drain": "YES"}, at=NOW)

    database.write(trouble)
    assert lines("site") == [
        "INFO resources added node=node1 resources=2",
        "INFO resources added node=node2 resources=2",
        'WARNING event event=PING_CHECKER_NODE_SUSPECTED node=node1 why="no answer"',
        "WARNING node state changed node=node1 state=Suspected was=Alive resources=2",
        "WARNING queue stopped queue=default",
        "INFO node state changed node=node1 state=Alive was=Suspected resources=2",
        "INFO queue started queue=default",
        "INFO property changed node=node1 property=drain value=YES resources=2",
    ]


def test_a_change_that_is_undone_leaves_no_line_in_the_log(database: Database, lines):
    def half(tx: Tx) -> None:
        administration.stop_queues(tx)
        raise IllegalMove("It cannot be done.")

    with pytest.raises(IllegalMove):
        database.write(half)
    assert lines("site") == []
