"""Request ids: a request that is sent twice is done once, and gets the same answer."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, delete, func, insert, select, tuple_

from oarlock.model.errors import RequestIdReused
from oarlock.store.engine.rows import BoundRows, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import request_ids
from oarlock.store.tables.columns import TEXT_BY_CODE_POINT

_ANSWER = select(request_ids.c.verb, request_ids.c.answer).where(
    request_ids.c.user_name == bindparam("user"), request_ids.c.request_id == bindparam("request_id")
)


def answer(tx: Tx, *, user: str, request_id: str, verb: str) -> str | None:
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


def remember(tx: Tx, *, user: str, request_id: str, verb: str, answer: str, at: int) -> None:
    """Store the answer to a request, in the transaction that does what it asks."""
    row = {"user_name": user, "request_id": request_id, "verb": verb, "answer": answer, "date": at}
    tx.execute(insert(request_ids), row)


def remember_all(tx: Tx, answers: Sequence[tuple[str, str, str]], *, verb: str, at: int) -> None:
    """Store the answers to several requests: user, request id and answer of each."""
    columns = ["user_name", "request_id", "answer", "verb", "date"]
    insert_rows(tx, "request_ids", columns, [(*answer, verb, at) for answer in answers])


def forget(tx: Tx, *, before: int, most_of_user: int, at_once: int) -> int:
    """Delete answers older than a date, and the oldest of users with more than `most_of_user`; return how many.

    Not more than `at_once`: others want to write, too.
    """
    row = request_ids.c
    gone = tx.execute(
        delete(request_ids).where(_KEY.in_(select(*_COLUMNS).where(row.date < before).limit(at_once)))
    ).rowcount
    many = select(row.user_name).group_by(row.user_name).having(func.count() > most_of_user)
    for user in tx.execute(many).scalars().all():
        newest_first = select(*_COLUMNS).where(row.user_name == user).order_by(row.date.desc(), row.request_id)
        oldest = newest_first.offset(most_of_user).limit(max(0, at_once - gone))
        gone += tx.execute(delete(request_ids).where(_KEY.in_(oldest))).rowcount
    return gone


_COLUMNS = (request_ids.c.user_name, request_ids.c.request_id)
_KEY = tuple_(*_COLUMNS)
