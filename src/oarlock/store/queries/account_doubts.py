"""Accounts in doubt: users that a look-up did not find, on the server or on a node, and until when their jobs wait."""

from typing import NamedTuple

from sqlalchemy import bindparam, delete, select

from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import account_doubts

_COLUMNS = [column.name for column in account_doubts.columns]


class AccountDoubt(NamedTuple):
    """A user who was not found. `host` is empty for the server.

    `missing_since`: when a look-up that worked said so first, 0 if none did; `last`: the last look-up of any kind.
    """

    user: str
    host: str
    missing_since: int
    last: int
    until: int
    reason: str


def get(tx: Tx, user: str, host: str) -> AccountDoubt | None:
    """Return what is known of a user on a host, if the user is in doubt there."""
    row = tx.execute(_ONE, {"user": user, "host": host}).first()
    return None if row is None else AccountDoubt(*row)


def put(tx: Tx, doubt: AccountDoubt) -> None:
    """Store a doubt, replacing the one there may be."""
    tx.execute(_DELETE_ONE, {"user": doubt.user, "host": doubt.host})
    insert_rows(tx, "account_doubts", _COLUMNS, [doubt])


def remove(tx: Tx, user: str) -> None:
    """Delete all doubts about a user."""
    tx.execute(_DELETE, {"user": user})


def waiting(tx: Tx, *, now: int) -> frozenset[str]:
    """Return the users whose jobs must not start yet."""
    return frozenset(tx.execute(_WAITING, {"now": now}).scalars())


def of_user(tx: Tx, user: str, *, now: int) -> AccountDoubt | None:
    """Return why the jobs of a user must not start yet; None if they may."""
    row = tx.execute(_OF_USER, {"user": user, "now": now}).first()
    return None if row is None else AccountDoubt(*row)


_MINE = account_doubts.c.user_name == bindparam("user")
_HERE = account_doubts.c.host == bindparam("host")
_LATER = account_doubts.c.until > bindparam("now")
_ONE = select(account_doubts).where(_MINE, _HERE)
_DELETE_ONE = delete(account_doubts).where(_MINE, _HERE)
_DELETE = delete(account_doubts).where(_MINE)
_WAITING = select(account_doubts.c.user_name).where(_LATER)
_OF_USER = select(account_doubts).where(_MINE, _LATER).order_by(account_doubts.c.until.desc()).limit(1)
