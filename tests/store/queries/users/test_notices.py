"""Notices wait in the database until they were sent."""

from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.cluster.events import PendingNotice

START, END = (PendingNotice(7, "ada", "fit", "mail:ada@lab.org", tag, "it's so") for tag in ("START", "END"))


def test_notices_are_kept_in_their_order_until_they_were_sent(tx: Tx):
    first, second = events.add_notices(tx, [START, END])
    [third] = events.add_notices(tx, [START])
    assert events.pending_notices(tx) == {first: START, second: END, third: START}
    events.remove_notices(tx, [first, third, 999])
    assert events.pending_notices(tx) == {second: END}
