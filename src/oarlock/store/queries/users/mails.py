"""Mails that wait or were sent, and which kinds of mails users do not want."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import delete, insert, literal_column, select, update

from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import mail_choices, mails

_WAITS = mails.c.sent == literal_column("0")
_COLUMNS = [column.name for column in mails.columns]


class NewMail(NamedTuple):
    """A mail to one address. `due` is when it may be sent first; `rule` names what it is about, `job` whose it is."""

    due: int
    user: str
    rule: str
    address: str
    subject: str
    body: str
    html: str = ""
    job: int = 0


class StoredMail(NamedTuple):
    """A mail of the queue. `sent` is 0 while it waits; one with a `problem` was given up then."""

    id: int
    date: int
    due: int
    user: str
    rule: str
    address: str
    subject: str
    body: str
    html: str
    job: int
    tries: int
    sent: int
    problem: str


def add(tx: Tx, mail: NewMail, *, now: int) -> int:
    """Store a mail until it is sent; return its number."""
    [number] = allocate_ids(tx, mails.c.mail_id, 1)
    tx.execute(insert(mails), dict(zip(_COLUMNS, (number, now, *mail, 0, 0, ""), strict=True)))
    return number


def due(tx: Tx, *, now: int, most: int) -> list[StoredMail]:
    """Return the mails whose time has come, those that wait longest first."""
    query = select(mails).where(_WAITS, mails.c.due <= now).order_by(mails.c.due, mails.c.mail_id).limit(most)
    return [StoredMail(*row) for row in tx.execute(query)]


def postpone(tx: Tx, number: int, *, until: int, problem: str) -> None:
    """Store that a mail could not be sent, and when it is tried again."""
    changes = {"due": until, "problem": problem, "tries": mails.c.tries + 1}
    tx.execute(update(mails).where(mails.c.mail_id == number, _WAITS).values(changes))


def close(tx: Tx, number: int, *, now: int, problem: str = "") -> None:
    """Store that a mail was sent or, with a problem, given up."""
    values = {"sent": now, "problem": problem, "tries": mails.c.tries + 1}
    tx.execute(update(mails).where(mails.c.mail_id == number, _WAITS).values(values))


def last(tx: Tx, *, most: int) -> list[StoredMail]:
    """Return the newest mails, those that wait and those that do not."""
    return [StoredMail(*row) for row in tx.execute(select(mails).order_by(mails.c.mail_id.desc()).limit(most))]


def users_since(tx: Tx, rule: str, since: int) -> Collection[str]:
    """Return the users for whom a mail about a rule was stored since an instant."""
    query = select(mails.c.user_name).where(mails.c.rule == rule, mails.c.date >= since)
    return frozenset(tx.execute(query).scalars())


def advice_since(tx: Tx, since: int, *, prefix: str, most: int, user: str | None = None) -> list[StoredMail]:
    """Return mails whose rule begins so, stored since an instant and not given up, newest first; of a user or all."""
    row = mails.c
    query = select(mails).where(row.rule.startswith(prefix, autoescape=True), row.date >= since)
    if user is not None:
        query = query.where(row.user_name == user)
    given_up = (row.sent > literal_column("0")) & (row.problem != "")
    rows = tx.execute(query.where(~given_up).order_by(row.date.desc(), row.mail_id.desc()).limit(most))
    return [StoredMail(*row) for row in rows]


def forget(tx: Tx, *, before: int) -> None:
    """Delete mails that were sent or given up before an instant."""
    tx.execute(delete(mails).where(mails.c.sent > literal_column("0"), mails.c.sent < before))


def refuse_kind(tx: Tx, user: str, kind: str, *, now: int) -> None:
    """Store that a user does not want mails of a kind."""
    accept_kind(tx, user, kind)
    tx.execute(insert(mail_choices), {"user_name": user, "kind": kind, "date": now})


def accept_kind(tx: Tx, user: str, kind: str) -> None:
    """Store that a user wants mails of a kind."""
    tx.execute(delete(mail_choices).where(mail_choices.c.user_name == user, mail_choices.c.kind == kind))


def refused_by(tx: Tx, user: str) -> frozenset[str]:
    """Return the kinds of mails that a user does not want."""
    return frozenset(tx.execute(select(mail_choices.c.kind).where(mail_choices.c.user_name == user)).scalars())


def refusing(tx: Tx, kind: str) -> Collection[str]:
    """Return the users who do not want mails of a kind."""
    return frozenset(tx.execute(select(mail_choices.c.user_name).where(mail_choices.c.kind == kind)).scalars())
