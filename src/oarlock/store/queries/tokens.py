"""Tokens of users over HTTP: only their hashes are stored."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select

from oarlock.store.engine.tx import Tx
from oarlock.store.tables import tokens


class StoredToken(NamedTuple):
    """A token, by its hash; not valid from `expires` on."""

    token_hash: str
    user: str
    label: str
    created: int
    expires: int
    uid: int | None = None


def add(tx: Tx, token: StoredToken) -> None:
    """Store a new token."""
    columns = [column.name for column in tokens.columns]
    tx.execute(insert(tokens), dict(zip(columns, token, strict=True)))


def owner(tx: Tx, token_hash: str, *, now: int) -> tuple[str, int | None] | None:
    """Return whose token it is, by name and number; None if it is unknown, revoked or expired.

    The number is unknown (None) of tokens that were made before it was kept.
    """
    query = select(tokens.c.user_name, tokens.c.uid).where(tokens.c.token_hash == token_hash, tokens.c.expires > now)
    row = tx.execute(query).first()
    return None if row is None else (row.user_name, row.uid)


def of_user(tx: Tx, user: str) -> list[StoredToken]:
    """Return the tokens of a user, oldest first, expired ones included."""
    rows = tx.execute(select(tokens).where(tokens.c.user_name == user).order_by(tokens.c.created, tokens.c.token_hash))
    return [StoredToken(*row) for row in rows]


def revoke(tx: Tx, *, user: str, token_hash: str) -> bool:
    """Delete a user's token; return False if the user has no such token."""
    revoked = delete(tokens).where(tokens.c.user_name == user, tokens.c.token_hash == token_hash)
    return tx.execute(revoked).rowcount > 0


def forget(tx: Tx, *, now: int) -> int:
    """Delete expired tokens; return how many."""
    return tx.execute(delete(tokens).where(tokens.c.expires <= now)).rowcount
