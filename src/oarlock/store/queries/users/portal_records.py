"""What the portal keeps: links by which jobs are shared, lists of jobs that users keep, notices to all."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select, update

from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import job_shares, saved_views, site_notices

_SHARE_COLUMNS = [column.name for column in job_shares.columns]


class JobShare(NamedTuple):
    """A link to one job, by its hash. `uses`: how often it was opened, the last time at `last_used`."""

    share_hash: str
    job: int
    user: str
    uid: int | None
    created: int
    expires: int
    uses: int = 0
    last_used: int = 0


def add_share(tx: Tx, share: JobShare) -> None:
    """Store a link; those that are over are forgotten meanwhile."""
    tx.execute(delete(job_shares).where(job_shares.c.expires <= share.created))
    tx.execute(insert(job_shares), dict(zip(_SHARE_COLUMNS, share, strict=True)))


def shares_of(tx: Tx, user: str, *, now: int) -> list[JobShare]:
    """Return the links of a user that are still good, newest first."""
    row = job_shares.c
    query = select(job_shares).where(row.user_name == user, row.expires > now)
    return [JobShare(*share) for share in tx.execute(query.order_by(row.created.desc(), row.share_hash))]


def use_share(tx: Tx, share_hash: str, *, now: int) -> JobShare | None:
    """Count that a link was opened, and return it; None if there is none, or it is over."""
    row = job_shares.c
    share = tx.execute(select(job_shares).where(row.share_hash == share_hash, row.expires > now)).first()
    if share is None:
        return None
    changes = {"uses": row.uses + 1, "last_used": now}
    tx.execute(update(job_shares).where(row.share_hash == share_hash).values(changes))
    return JobShare(*share)


def remove_share(tx: Tx, *, user: str, share_hash: str) -> None:
    """Make a link of a user worthless."""
    row = job_shares.c
    tx.execute(delete(job_shares).where(row.user_name == user, row.share_hash == share_hash))


def views_of(tx: Tx, user: str) -> list[tuple[str, str]]:
    """Return the lists that a user keeps, as name and query, by name."""
    row = saved_views.c
    query = select(row.name, row.query).where(row.user_name == user).order_by(row.name)
    return [(name, text) for name, text in tx.execute(query)]


def save_view(tx: Tx, user: str, name: str, query: str, *, now: int) -> None:
    """Keep a list under a name, in place of the one that had it."""
    remove_view(tx, user, name)
    tx.execute(insert(saved_views), {"user_name": user, "name": name, "query": query, "date": now})


def remove_view(tx: Tx, user: str, name: str) -> bool:
    """Forget a list; return whether there was one of that name."""
    row = saved_views.c
    return tx.execute(delete(saved_views).where(row.user_name == user, row.name == name)).rowcount > 0


class SiteNotice(NamedTuple):
    """What administrators tell everybody, until an instant."""

    id: int
    date: int
    until: int
    says: str
    author: str


def add_notice(tx: Tx, says: str, *, until: int, author: str, now: int) -> int:
    """Store a notice; those that are over are forgotten meanwhile. Return its number."""
    tx.execute(delete(site_notices).where(site_notices.c.until <= now))
    [number] = allocate_ids(tx, site_notices.c.notice_id, 1)
    row = {"notice_id": number, "date": now, "until": until, "says": says, "author": author}
    tx.execute(insert(site_notices), row)
    return number


def notices(tx: Tx, *, now: int) -> list[SiteNotice]:
    """Return the notices that hold now, newest first."""
    query = select(site_notices).where(site_notices.c.until > now).order_by(site_notices.c.notice_id.desc())
    return [SiteNotice(*row) for row in tx.execute(query)]


def remove_notice(tx: Tx, number: int) -> bool:
    """Remove a notice; return whether there was one."""
    return tx.execute(delete(site_notices).where(site_notices.c.notice_id == number)).rowcount > 0
