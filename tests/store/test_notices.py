"""Notices wait in the database until they were sent."""

from oarlock.store.engine.tx import Tx
from oarlock.store.queries import notices
from oarlock.store.queries.notices import PendingNotice

START, END = (PendingNotice(7, "ada", "fit", "mail:ada@lab.org", tag, "it's so") for tag in ("START", "END"))


def test_notices_are_kept_in_their_order_until_they_were_sent(tx: Tx):
    first, second = notices.add(tx, [START, END])
    [third] = notices.add(tx, [START])
    assert notices.pending(tx) == {first: START, second: END, third: START}
    notices.sent(tx, [first, third, 999])
    assert notices.pending(tx) == {second: END}
