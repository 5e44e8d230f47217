"""The audit: who changed what and when, written in the transaction of the change and never changed again.

Each row carries a hash over itself and the hash before it, so that an edited or removed row is detected.
"""

import hashlib
import re
from dataclasses import astuple, dataclass
from itertools import islice

import msgspec
from sqlalchemy import Row, insert, select

from oarlock.store.engine import journal
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import audit

_NUMBERS = re.compile(r'"ids":\[([0-9,]*)(\]?)')  # the jobs that a change was about, the last one perhaps cut off
_LAST = select(audit.c.chain).order_by(audit.c.id.desc()).limit(1)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change: user (`behalf`: on whose behalf), channel, verb and payload. `id` is allocated by `add`."""

    date: int
    user: str
    behalf: str
    verb: str
    channel: str
    asked: str  # JSON, cut short when it is very long
    refused: str = ""  # why it was not done; nothing for what was
    id: int = 0


def add(tx: Tx, entry: AuditEntry) -> None:
    """Insert an entry, in the transaction of the change; or one for a request that was refused."""
    [number] = allocate_ids(tx, audit.c.id, 1)
    chain = _chained(tx.execute(_LAST).scalar() or "", number, entry)
    row = {"user_name": entry.user, "behalf": entry.behalf, "verb": entry.verb, "channel": entry.channel}
    details = {"asked": entry.asked, "refused": entry.refused, "chain": chain}
    tx.execute(insert(audit), {"id": number, "date": entry.date, **row, **details})
    if entry.refused:
        about = {"user": entry.user, "verb": entry.verb, "channel": entry.channel, "why": entry.refused}
        journal.note(tx, journal.JOBS, "request refused", about)


def listed(tx: Tx, *, user: str | None = None, job: int | None = None, since: int = 0, most: int) -> list[AuditEntry]:
    """Return the last changes from a date on, oldest first; only those of one user, or about one job, if one is named.

    Whom a very long list of jobs names behind the place where it was cut off is not found.
    """
    query = select(audit).where(audit.c.date >= since).order_by(audit.c.id.desc())
    if user is not None:
        query = query.where(audit.c.user_name == user)
    if job is None:
        return [_entry(row) for row in tx.execute(query.limit(most))][::-1]
    query = query.where(audit.c.verb.startswith("jobs."), audit.c.asked.contains(str(job)))
    entries = (entry for entry in map(_entry, tx.execute(query)) if job in _jobs(entry))
    return list(islice(entries, most))[::-1]


def _jobs(entry: AuditEntry) -> set[int]:
    """Parse the job numbers of an entry."""
    named = _NUMBERS.search(entry.asked)
    if named is None:
        return set()
    numbers = named[1].split(",")
    return {int(number) for number in (numbers if named[2] else numbers[:-1]) if number}


def broken(tx: Tx) -> int | None:
    """Return the first row that was edited, or before which a row is missing; None if the chain is intact."""
    before = ""
    for row in tx.execute(select(audit).order_by(audit.c.id)):
        before = _chained(before, row.id, _entry(row))
        if before != row.chain:
            return int(row.id)
    return None


def _chained(before: str, number: int, entry: AuditEntry) -> str:
    values = [before, number, *astuple(entry)[:6]]
    if entry.refused:  # rows of older versions have none, and their hashes stay true
        values.append(entry.refused)
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()


def _entry(row: Row[tuple[object, ...]]) -> AuditEntry:
    return AuditEntry(row.date, row.user_name, row.behalf, row.verb, row.channel, row.asked, row.refused, row.id)
