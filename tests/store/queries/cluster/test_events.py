"""Events are kept with the hosts they name until somebody has acted on them."""

import pytest

from oarlock.model.event import Event, EventType
from oarlock.model.job import FragState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.cluster.events import EventRow
from oarlock.store.queries.job import moves
from tests.clusters import NOW
from tests.store.cluster import add_job

SUSPECTED = Event(EventType.PING_CHECKER_NODE_SUSPECTED, NOW, "no answer", hosts=("b", "a", "b"))
WALLTIME = Event(EventType.WALLTIME, NOW + 1, "over its walltime", job=7)
KILLED = Event(EventType.EXTERMINATE_JOB, NOW + 2, "did not end", job=7, hosts=("a",))


@pytest.mark.manual(96, 97)
def test_events_are_found_by_job_and_by_host(tx: Tx):
    first, second, third = events.add(tx, [SUSPECTED, WALLTIME, KILLED])
    suspected = EventRow(first, Event(SUSPECTED.type, NOW, "no answer", hosts=("a", "b")), to_check=True)
    killed = EventRow(third, KILLED, to_check=True)
    assert events.of_jobs(tx, [7, 8]) == [EventRow(second, WALLTIME, to_check=False), killed]
    assert events.of_jobs(tx, [0]) == []
    assert events.of_hosts(tx, ["a", "c"]) == [suspected, killed]
    assert events.of_hosts(tx, ["a"], since=NOW + 1) == [killed]
    assert events.of_hosts(tx, ["b"]) == [suspected]
    assert events.of_hosts(tx) == [suspected, killed]
    assert events.of_hosts(tx, most=1) == [killed]


@pytest.mark.manual(149)
def test_events_to_be_acted_on_are_listed_until_they_are_checked_off(tx: Tx):
    first, _, third = events.add(tx, [SUSPECTED, WALLTIME, KILLED])
    assert [one.id for one in events.to_check(tx)] == [first, third]
    events.check_off(tx, [first])
    assert [one.id for one in events.to_check(tx)] == [third]
    assert [one.to_check for one in events.of_hosts(tx, ["b"])] == [False]


@pytest.mark.manual(99)
def test_a_kill_is_asked_for_once_and_followed_to_its_end(tx: Tx):
    first, second = add_job(tx).id, add_job(tx).id
    assert moves.request_kills(tx, [second, second], at=NOW) == [second]
    assert moves.request_kills(tx, [first, second], at=NOW + 5) == [first]
    assert moves.kills_under_way(tx) == [(second, FragState.LEON, NOW), (first, FragState.LEON, NOW + 5)]
    moves.set_kill_state(tx, [first], FragState.TIMER_ARMED)
    moves.set_kill_state(tx, [second], FragState.FRAGGED)
    assert moves.kills_under_way(tx) == [(first, FragState.TIMER_ARMED, NOW + 5)]
