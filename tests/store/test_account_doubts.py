"""Users in doubt are kept, replaced and forgotten."""

from oarlock.store.queries import account_doubts
from oarlock.store.queries.account_doubts import AccountDoubt


def test_a_doubt_is_replaced_by_a_later_one_and_forgotten_with_its_user(tx):
    first = AccountDoubt("ada", "", 100, 100, 130, "no such user")
    account_doubts.put(tx, first)
    account_doubts.put(tx, AccountDoubt("ada", "node1", 0, 105, 135, "could not be looked up"))
    account_doubts.put(tx, first._replace(last=130, until=160))
    assert account_doubts.get(tx, "ada", "") == AccountDoubt("ada", "", 100, 130, 160, "no such user")
    assert (account_doubts.waiting(tx, now=159), account_doubts.waiting(tx, now=160)) == ({"ada"}, frozenset())
    assert account_doubts.of_user(tx, "ada", now=120).until == 160
    account_doubts.remove(tx, "ada")
    assert account_doubts.get(tx, "ada", "node1") is None
