"""Attempts: every launch of a job, with the secret that proves a report about it and its times in microseconds."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Select, Update, select, update
from sqlalchemy.types import TypeEngine

from oarlock.model.errors import AttemptOpen, StaleAttempt
from oarlock.model.record import changed
from oarlock.store.engine import journal
from oarlock.store.engine.rows import BoundRows, bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import attempt_nodes, attempts
from oarlock.store.tables.columns import INTEGER, TEXT_BY_CODE_POINT


@dataclass(frozen=True, slots=True)
class AttemptNode:
    """A node of an attempt; the boot id is known once it answered. `memory`: bytes that the job may use, None: all."""

    name: str
    boot_id: str = ""
    memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch of a job. It is live until `closed_us`: only then may there be another one."""

    job_id: int
    number: int = 0  # given by `begin`
    secret_hash: str
    nodes: tuple[AttemptNode, ...]
    opened_us: int
    started_us: int | None = None
    ended_us: int | None = None
    closed_us: int | None = None
    exit_code: int | None = None
    outcome: str = ""
    generation: str = ""  # of the database, when it was begun
    nonce: str = ""  # random; with the server's key it makes the secret


_COLUMNS = [column.name for column in attempts.columns]
_CHANGING: dict[str, TypeEngine[Any]] = {
    "started_us": INTEGER,
    "ended_us": INTEGER,
    "closed_us": INTEGER,
    "exit_code": INTEGER,
    "outcome": TEXT_BY_CODE_POINT,
}
_NEWS = BoundRows("news", job_id=INTEGER, number=INTEGER, **_CHANGING)
_BOOTS = BoundRows("boots", job_id=INTEGER, number=INTEGER, position=INTEGER, boot_id=TEXT_BY_CODE_POINT)


def begin(tx: Tx, new: Sequence[Attempt]) -> list[Attempt]:
    """Write launches down before they are tried, each with the next number of its job.

    A job whose last attempt is still live refuses them all (`AttemptOpen`).
    """
    last = {attempt.job_id: attempt for attempt in of_jobs(tx, [one.job_id for one in new])}
    begun = []
    for one in new:
        before = last.get(one.job_id)
        if before is not None and before.closed_us is None:
            raise AttemptOpen(
                f"Attempt {before.number} of job {one.job_id} is not over.",
                hint="It ends when its nodes answer, have rebooted, or its lease is over.",
            )
        begun.append(changed(one, number=1 if before is None else before.number + 1))
        last[one.job_id] = begun[-1]
    insert_rows(tx, "attempts", _COLUMNS, [[getattr(one, name) for name in _COLUMNS] for one in begun])
    nodes = [(a.job_id, a.number, place, n.name, n.boot_id, n.memory) for a in begun for place, n in enumerate(a.nodes)]
    insert_rows(tx, "attempt_nodes", [column.name for column in attempt_nodes.columns], nodes)
    for one in begun:
        nodes_named = ",".join(node.name for node in one.nodes)
        journal.note(tx, journal.JOBS, "attempt begun", {"job": one.job_id, "attempt": one.number, "node": nodes_named})
    return begun


def record(tx: Tx, changed: Sequence[Attempt]) -> None:
    """Write what became of attempts: times, exit code, outcome, boot ids.

    An attempt that is closed, or never was, refuses them all (`StaleAttempt`).
    """
    before = of_jobs(tx, [one.job_id for one in changed])
    there = {(one.job_id, one.number): one.nodes for one in before if one.closed_us is None}
    for one in changed:
        if (one.job_id, one.number) not in there:
            raise StaleAttempt(f"Attempt {one.number} of job {one.job_id} is over, or never was.")
    tx.execute(
        _update_attempts(tx.dialect.name),
        _NEWS.bound(tx, [(one.job_id, one.number, *(getattr(one, name) for name in _CHANGING)) for one in changed]),
    )
    moved = [one for one in changed if one.nodes != there[one.job_id, one.number]]
    boots = [(one.job_id, one.number, place, n.boot_id) for one in moved for place, n in enumerate(one.nodes)]
    if boots:
        tx.execute(_update_boots(tx.dialect.name), _BOOTS.bound(tx, boots))


@cache
def _update_attempts(engine: str) -> Update:
    news = _NEWS.table(engine)
    return (
        update(attempts)
        .where(attempts.c.job_id == news.c.job_id, attempts.c.number == news.c.number)
        .values({name: news.c[name] for name in _CHANGING})
    )


@cache
def _update_boots(engine: str) -> Update:
    boots = _BOOTS.table(engine)
    node = attempt_nodes.c
    return (
        update(attempt_nodes)
        .where(node.job_id == boots.c.job_id, node.number == boots.c.number, node.position == boots.c.position)
        .values(boot_id=boots.c.boot_id)
    )


def of_jobs(tx: Tx, ids: Collection[int]) -> list[Attempt]:
    """Give all attempts of jobs, by job and number."""
    return _attempts(tx, _of_jobs(tx.dialect.name), bind_ids(tx, ids))


def live(tx: Tx) -> list[Attempt]:
    """Give the attempts that are not known to be over."""
    return _attempts(tx, _IN_ORDER.where(attempts.c.closed_us.is_(None)), {})


_IN_ORDER = select(attempts).order_by(attempts.c.job_id, attempts.c.number)


@cache
def _of_jobs(engine: str) -> Select[Any]:
    return _IN_ORDER.where(id_in(engine, attempts.c.job_id))


@cache
def _nodes_of_jobs(engine: str) -> Select[Any]:
    return select(attempt_nodes).where(id_in(engine, attempt_nodes.c.job_id)).order_by(attempt_nodes.c.position)


def _attempts(tx: Tx, query: Select[Any], bound: dict[str, Any]) -> list[Attempt]:
    rows = tx.execute(query, bound).all()
    if not rows:
        return []
    nodes = defaultdict(list)
    numbers = bind_ids(tx, [row.job_id for row in rows])
    for job_id, number, _, name, boot_id, memory in tx.execute(_nodes_of_jobs(tx.dialect.name), numbers):
        nodes[job_id, number].append(AttemptNode(name, boot_id, memory))
    return [Attempt(**row._mapping, nodes=tuple(nodes[row.job_id, row.number])) for row in rows]
