"""Which kinds of mails users do not want."""

from collections.abc import Collection

from sqlalchemy import delete, insert, select

from oarlock.store.engine.tx import Tx
from oarlock.store.tables import mail_choices


def refuse(tx: Tx, user: str, kind: str, *, now: int) -> None:
    """Store that a user does not want mails of a kind."""
    accept(tx, user, kind)
    tx.execute(insert(mail_choices), {"user_name": user, "kind": kind, "date": now})


def accept(tx: Tx, user: str, kind: str) -> None:
    """Store that a user wants mails of a kind."""
    tx.execute(delete(mail_choices).where(mail_choices.c.user_name == user, mail_choices.c.kind == kind))


def refused_by(tx: Tx, user: str) -> frozenset[str]:
    """Return the kinds of mails that a user does not want."""
    return frozenset(tx.execute(select(mail_choices.c.kind).where(mail_choices.c.user_name == user)).scalars())


def refusing(tx: Tx, kind: str) -> Collection[str]:
    """Return the users who do not want mails of a kind."""
    return frozenset(tx.execute(select(mail_choices.c.user_name).where(mail_choices.c.kind == kind)).scalars())
