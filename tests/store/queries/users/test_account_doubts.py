"""Users in doubt are kept, replaced and forgotten."""

from oarlock.store.queries.users import user_records
from oarlock.store.queries.users.user_records import AccountDoubt


def test_a_doubt_is_replaced_by_a_later_one_and_forgotten_with_its_user(tx):
    first = AccountDoubt("ada", "", 100, 100, 130, "no such user")
    user_records.put_doubt(tx, first)
    user_records.put_doubt(tx, AccountDoubt("ada", "node1", 0, 105, 135, "could not be looked up"))
    user_records.put_doubt(tx, first._replace(last=130, until=160))
    assert user_records.get_doubt(tx, "ada", "") == AccountDoubt("ada", "", 100, 130, 160, "no such user")
    assert (user_records.users_in_doubt(tx, now=159), user_records.users_in_doubt(tx, now=160)) == (
        {"ada"},
        frozenset(),
    )
    assert user_records.doubt_of(tx, "ada", now=120).until == 160
    user_records.remove_doubts(tx, "ada")
    assert user_records.get_doubt(tx, "ada", "node1") is None
