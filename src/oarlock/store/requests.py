"""Request ids: a request that is sent twice is done once, and answered twice the same."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import and_, delete, insert, select

from oarlock.model.errors import RequestIdReused
from oarlock.store.rows import Given, insert_rows
from oarlock.store.tables import request_ids
from oarlock.store.tables.columns import TEXT_BY_CODE_POINT
from oarlock.store.tx import Tx

_ASKED = Given("asked", user=TEXT_BY_CODE_POINT, id=TEXT_BY_CODE_POINT)


class Request(NamedTuple):
    """A request of a user, by the id that the user gave it."""

    user: str
    request_id: str


class Done(NamedTuple):
    """What a request asked for, and what it was answered."""

    verb: str
    answer: str

    def answer_to(self, request: Request, verb: str) -> str:
        """Give the answer, or refuse an id that was used for something else (`RequestIdReused`)."""
        if self.verb != verb:
            raise RequestIdReused(
                f"The request id {request.request_id} was already used for `{self.verb}`, not for `{verb}`.",
                hint="Make a new id for every request; repeat one only to repeat the request.",
            )
        return self.answer


def answer(tx: Tx, *, user: str, request_id: str, verb: str) -> str | None:
    """Give what a request was answered when it was done; nothing if it never was."""
    request = Request(user, request_id)
    done = known(tx, [request]).get(request)
    return None if done is None else done.answer_to(request, verb)


def known(tx: Tx, requests: Collection[Request]) -> dict[Request, Done]:
    """Give those of many requests that were done before, in one query."""
    row, asked = request_ids.c, _ASKED.table(tx.dialect.name)
    rows = tx.execute(
        select(row.user_name, row.request_id, row.verb, row.answer).join(
            asked, and_(row.user_name == asked.c.user, row.request_id == asked.c.id)
        ),
        _ASKED.bound(tx, requests),
    )
    return {Request(user, number): Done(verb, text) for user, number, verb, text in rows}


def remember_all(tx: Tx, verb: str, answers: Mapping[Request, str], *, at: int) -> None:
    """Keep the answers to many requests of one kind, in the transaction that does what they ask."""
    rows = [(*request, verb, text, at) for request, text in answers.items()]
    insert_rows(tx, "request_ids", ["user_name", "request_id", "verb", "answer", "date"], rows)


def remember(tx: Tx, *, user: str, request_id: str, verb: str, answer: str, at: int) -> None:
    """Keep the answer to a request, in the transaction that does what it asks."""
    row = {"user_name": user, "request_id": request_id, "verb": verb, "answer": answer, "date": at}
    tx.execute(insert(request_ids), row)


def forget(tx: Tx, *, before: int) -> int:
    """Forget answers older than a date; say how many."""
    return tx.execute(delete(request_ids).where(request_ids.c.date < before)).rowcount
