"""What is stored about users: tokens, doubts about their accounts, answers to their requests, the audit.

The audit is written in the transaction of a change and never changed again. Each row carries a hash over itself and
the hash before it, so that an edited or removed row is detected.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row, Select, and_, bindparam, delete, func, insert, select, tuple_

from oarlock.model.errors import RequestIdReused
from oarlock.store.engine import journal
from oarlock.store.engine.rows import BoundRows, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import account_doubts, audit, request_ids, tokens
from oarlock.store.tables.columns import TEXT_BY_CODE_POINT


class StoredToken(NamedTuple):
    """A token, by its hash; not valid from `expires` on. `scope`: the one thing that it is good for, if any."""

    token_hash: str
    user: str
    label: str
    created: int
    expires: int
    uid: int | None = None
    scope: str = ""


def add_token(tx: Tx, token: StoredToken) -> None:
    """Store a new token."""
    columns = [column.name for column in tokens.columns]
    tx.execute(insert(tokens), dict(zip(columns, token, strict=True)))


def valid_token(tx: Tx, token_hash: str, *, now: int) -> StoredToken | None:
    """Return a token; None if it is unknown, revoked or expired."""
    row = tx.execute(select(tokens).where(tokens.c.token_hash == token_hash, tokens.c.expires > now)).first()
    return None if row is None else StoredToken(*row)


def valid_tokens(tx: Tx, hashes: Collection[str], *, now: int) -> dict[str, str]:
    """Return those of the tokens that are neither revoked nor expired, with their users."""
    wanted = select(tokens.c.token_hash, tokens.c.user_name).where(
        tokens.c.token_hash.in_(list(hashes)), tokens.c.expires > now
    )
    return dict(tuple(row) for row in tx.execute(wanted))


def tokens_of(tx: Tx, user: str) -> list[StoredToken]:
    """Return the tokens of a user, oldest first, expired ones included."""
    rows = tx.execute(select(tokens).where(tokens.c.user_name == user).order_by(tokens.c.created, tokens.c.token_hash))
    return [StoredToken(*row) for row in rows]


def revoke_token(tx: Tx, *, user: str, token_hash: str) -> bool:
    """Delete a user's token; return False if the user has no such token."""
    revoked = delete(tokens).where(tokens.c.user_name == user, tokens.c.token_hash == token_hash)
    return tx.execute(revoked).rowcount > 0


def forget_tokens(tx: Tx, *, now: int) -> int:
    """Delete expired tokens; return how many."""
    return tx.execute(delete(tokens).where(tokens.c.expires <= now)).rowcount


_DOUBT_COLUMNS = [column.name for column in account_doubts.columns]


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


def get_doubt(tx: Tx, user: str, host: str) -> AccountDoubt | None:
    """Return what is known of a user on a host, if the user is in doubt there."""
    row = tx.execute(_ONE_DOUBT, {"user": user, "host": host}).first()
    return None if row is None else AccountDoubt(*row)


def put_doubt(tx: Tx, doubt: AccountDoubt) -> None:
    """Store a doubt, replacing the one there may be."""
    tx.execute(_DELETE_DOUBT, {"user": doubt.user, "host": doubt.host})
    insert_rows(tx, "account_doubts", _DOUBT_COLUMNS, [doubt])


def remove_doubts(tx: Tx, user: str) -> None:
    """Delete all doubts about a user."""
    tx.execute(_DELETE_DOUBTS, {"user": user})


def users_in_doubt(tx: Tx, *, now: int) -> frozenset[str]:
    """Return the users whose jobs must not start yet."""
    return frozenset(tx.execute(_IN_DOUBT, {"now": now}).scalars())


def doubt_of(tx: Tx, user: str, *, now: int) -> AccountDoubt | None:
    """Return why the jobs of a user must not start yet; None if they may."""
    row = tx.execute(_DOUBT_OF_USER, {"user": user, "now": now}).first()
    return None if row is None else AccountDoubt(*row)


_OF_USER = account_doubts.c.user_name == bindparam("user")
_ON_HOST = account_doubts.c.host == bindparam("host")
_NOT_OVER = account_doubts.c.until > bindparam("now")
_ONE_DOUBT = select(account_doubts).where(_OF_USER, _ON_HOST)
_DELETE_DOUBT = delete(account_doubts).where(_OF_USER, _ON_HOST)
_DELETE_DOUBTS = delete(account_doubts).where(_OF_USER)
_IN_DOUBT = select(account_doubts.c.user_name).where(_NOT_OVER)
_DOUBT_OF_USER = select(account_doubts).where(_OF_USER, _NOT_OVER).order_by(account_doubts.c.until.desc()).limit(1)


_ANSWER = select(request_ids.c.verb, request_ids.c.answer).where(
    request_ids.c.user_name == bindparam("user"), request_ids.c.request_id == bindparam("request_id")
)


def answer_of(tx: Tx, *, user: str, request_id: str, verb: str) -> str | None:
    """Return the stored answer to a request; None if it was never done."""
    row = tx.execute(_ANSWER, {"user": user, "request_id": request_id}).first()
    if row is None:
        return None
    if row.verb != verb:
        raise RequestIdReused(
            f"The request id {request_id} was already used for `{row.verb}`, not for `{verb}`.",
            hint="Make a new id for every request; repeat one only to repeat the request.",
        )
    return str(row.answer)


_KEYS = BoundRows("asked", user=TEXT_BY_CODE_POINT, request_id=TEXT_BY_CODE_POINT)


def answered_keys(tx: Tx, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of these requests (user and request id) that were done before, whatever they asked for."""
    return {
        (user, request_id)
        for user, request_id in tx.execute(_answered_keys(tx.dialect.name), _KEYS.parameters(tx, keys))
    }


@cache
def _answered_keys(engine: str) -> Select[Any]:
    keys, row = _KEYS.table(engine), request_ids.c
    same = and_(row.user_name == keys.c.user, row.request_id == keys.c.request_id)
    return select(row.user_name, row.request_id).join(keys, same)


def remember_answer(tx: Tx, *, user: str, request_id: str, verb: str, answer: str, at: int) -> None:
    """Store the answer to a request, in the transaction that does what it asks."""
    row = {"user_name": user, "request_id": request_id, "verb": verb, "answer": answer, "date": at}
    tx.execute(insert(request_ids), row)


def remember_answers(tx: Tx, answers: Sequence[tuple[str, str, str]], *, verb: str, at: int) -> None:
    """Store the answers to several requests: user, request id and answer of each."""
    columns = ["user_name", "request_id", "answer", "verb", "date"]
    insert_rows(tx, "request_ids", columns, [(*answer, verb, at) for answer in answers])


def forget_answers(tx: Tx, *, before: int, most_of_user: int, at_once: int) -> int:
    """Delete answers older than a date, and the oldest of users with more than `most_of_user`; return how many.

    Not more than `at_once`: others want to write, too.
    """
    row = request_ids.c
    gone = tx.execute(
        delete(request_ids).where(_KEY.in_(select(*_KEY_COLUMNS).where(row.date < before).limit(at_once)))
    ).rowcount
    many = select(row.user_name).group_by(row.user_name).having(func.count() > most_of_user)
    for user in tx.execute(many).scalars().all():
        newest_first = select(*_KEY_COLUMNS).where(row.user_name == user).order_by(row.date.desc(), row.request_id)
        oldest = newest_first.offset(most_of_user).limit(max(0, at_once - gone))
        gone += tx.execute(delete(request_ids).where(_KEY.in_(oldest))).rowcount
    return gone


_KEY_COLUMNS = (request_ids.c.user_name, request_ids.c.request_id)
_KEY = tuple_(*_KEY_COLUMNS)


_NUMBERS = re.compile(r'"ids":\[([0-9,]*)(\]?)')  # the jobs that a change was about, the last one perhaps cut off
_LAST_CHAIN = select(audit.c.chain).order_by(audit.c.id.desc()).limit(1)


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


def add_audit(tx: Tx, entry: AuditEntry) -> None:
    """Insert an entry, in the transaction of the change; or one for a request that was refused."""
    [number] = allocate_ids(tx, audit.c.id, 1)
    chain = _chained(tx.execute(_LAST_CHAIN).scalar() or "", number, entry)
    row = {"user_name": entry.user, "behalf": entry.behalf, "verb": entry.verb, "channel": entry.channel}
    details = {"asked": entry.asked, "refused": entry.refused, "chain": chain}
    tx.execute(insert(audit), {"id": number, "date": entry.date, **row, **details})
    if entry.refused:
        about = {"user": entry.user, "verb": entry.verb, "channel": entry.channel, "why": entry.refused}
        journal.note(tx, journal.JOBS, "request refused", about)


def audit_entries(
    tx: Tx, *, user: str | None = None, job: int | None = None, since: int = 0, most: int
) -> list[AuditEntry]:
    """Return the last changes from a date on, oldest first; only those of one user, or about one job, if one is named.

    Whom a very long list of jobs names behind the place where it was cut off is not found.
    """
    query = select(audit).where(audit.c.date >= since).order_by(audit.c.id.desc())
    if user is not None:
        query = query.where(audit.c.user_name == user)
    if job is None:
        return [_entry(row) for row in tx.execute(query.limit(most))][::-1]
    query = query.where(audit.c.verb.startswith("jobs."), audit.c.asked.contains(str(job)))
    entries = (entry for entry in map(_entry, tx.execute(query)) if job in _jobs_of_entry(entry))
    return list(islice(entries, most))[::-1]


def _jobs_of_entry(entry: AuditEntry) -> set[int]:
    """Parse the job numbers of an entry."""
    named = _NUMBERS.search(entry.asked)
    if named is None:
        return set()
    numbers = named[1].split(",")
    return {int(number) for number in (numbers if named[2] else numbers[:-1]) if number}


def broken_audit(tx: Tx) -> int | None:
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
