"""What signs browsers in: links that are good once, and sessions. Only hashes are stored."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select

from oarlock.store.engine.tx import Tx
from oarlock.store.tables import browser_sessions

LINK, SESSION = "link", "session"
MOST_OF_ONE = 100
"""So many sessions a user may have; the oldest ends when another begins."""
_COLUMNS = [column.name for column in browser_sessions.columns]


class BrowserSession(NamedTuple):
    """A session of a browser, or a link that becomes one. `agent` is what the browser calls itself."""

    session_hash: str
    user: str
    uid: int | None
    purpose: str
    created: int
    expires: int
    agent: str = ""


def add(tx: Tx, session: BrowserSession) -> None:
    """Store a session or a link; those that are over are forgotten meanwhile, and the oldest of too many."""
    tx.execute(delete(browser_sessions).where(browser_sessions.c.expires <= session.created))
    too_many = of_user(tx, session.user, now=session.created)[MOST_OF_ONE - 1 :]
    if too_many and session.purpose == SESSION:
        hashes = [row.session_hash for row in too_many]
        tx.execute(delete(browser_sessions).where(browser_sessions.c.session_hash.in_(hashes)))
    tx.execute(insert(browser_sessions), dict(zip(_COLUMNS, session, strict=True)))


def valid(tx: Tx, session_hash: str, *, now: int, purpose: str = SESSION) -> BrowserSession | None:
    """Return a session or a link; None if it is unknown, revoked or over."""
    row = tx.execute(
        select(browser_sessions).where(
            browser_sessions.c.session_hash == session_hash,
            browser_sessions.c.purpose == purpose,
            browser_sessions.c.expires > now,
        )
    ).first()
    return None if row is None else BrowserSession(*row)


def redeem(tx: Tx, link_hash: str, session_hash: str, *, agent: str, now: int, until: int) -> BrowserSession | None:
    """Turn a link into a session, once; None if the link is not good, or no longer."""
    link = valid(tx, link_hash, now=now, purpose=LINK)
    if link is None:
        return None
    tx.execute(delete(browser_sessions).where(browser_sessions.c.session_hash == link_hash))
    session = BrowserSession(session_hash, link.user, link.uid, SESSION, now, until, agent)
    add(tx, session)
    return session


def of_user(tx: Tx, user: str, *, now: int) -> list[BrowserSession]:
    """Return the sessions of a user, newest first."""
    row = browser_sessions.c
    rows = tx.execute(
        select(browser_sessions)
        .where(row.user_name == user, row.purpose == SESSION, row.expires > now)
        .order_by(row.created.desc(), row.session_hash)
    )
    return [BrowserSession(*stored) for stored in rows]


def remove(tx: Tx, *, user: str, session_hash: str) -> bool:
    """End a session of a user; return False if there is no such session."""
    row = browser_sessions.c
    return (
        tx.execute(delete(browser_sessions).where(row.user_name == user, row.session_hash == session_hash)).rowcount > 0
    )
