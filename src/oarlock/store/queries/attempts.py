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
    """A node of an attempt; its boot id is set once it answered. `memory`: bytes that the job may use, None: all."""

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
_UPDATES = BoundRows("updates", job_id=INTEGER, number=INTEGER, **_CHANGING)
_BOOTS = BoundRows("boots", job_id=INTEGER, number=INTEGER, position=INTEGER, boot_id=TEXT_BY_CODE_POINT)


def begin(tx: Tx, new: Sequence[Attempt]) -> list[Attempt]:
    """Insert launches before they are tried, each with the next number of its job.

    A job whose last attempt is still live refuses them all (`AttemptOpen`).
    """
    last = {attempt.job_id: attempt for attempt in of_jobs(tx, [launch.job_id for launch in new])}
    begun = []
    for launch in new:
        before = last.get(launch.job_id)
        if before is not None and before.closed_us is None:
            raise AttemptOpen(
                f"Attempt {before.number} of job {launch.job_id} is not over.",
                hint="It ends when its nodes answer, have rebooted, or its lease is over.",
            )
        begun.append(changed(launch, number=1 if before is None else before.number + 1))
        last[launch.job_id] = begun[-1]
    insert_rows(tx, "attempts", _COLUMNS, [[getattr(attempt, name) for name in _COLUMNS] for attempt in begun])
    nodes = [(a.job_id, a.number, place, n.name, n.boot_id, n.memory) for a in begun for place, n in enumerate(a.nodes)]
    insert_rows(tx, "attempt_nodes", [column.name for column in attempt_nodes.columns], nodes)
    for attempt in begun:
        about = {
            "job": attempt.job_id,
            "attempt": attempt.number,
            "node": ",".join(node.name for node in attempt.nodes),
        }
        journal.note(tx, journal.JOBS, "attempt begun", about)
    return begun


def record(tx: Tx, changed: Sequence[Attempt]) -> None:
    """Update attempts: times, exit code, outcome, boot ids.

    An attempt that is closed, or never was, refuses them all (`StaleAttempt`).
    """
    before = of_jobs(tx, [attempt.job_id for attempt in changed])
    open_nodes = {(attempt.job_id, attempt.number): attempt.nodes for attempt in before if attempt.closed_us is None}
    for attempt in changed:
        if (attempt.job_id, attempt.number) not in open_nodes:
            raise StaleAttempt(f"Attempt {attempt.number} of job {attempt.job_id} is over, or never was.")
    rows = [(attempt.job_id, attempt.number, *(getattr(attempt, name) for name in _CHANGING)) for attempt in changed]
    tx.execute(_update_attempts(tx.dialect.name), _UPDATES.parameters(tx, rows))
    moved = [attempt for attempt in changed if attempt.nodes != open_nodes[attempt.job_id, attempt.number]]
    boots = [(a.job_id, a.number, place, n.boot_id) for a in moved for place, n in enumerate(a.nodes)]
    if boots:
        tx.execute(_update_boots(tx.dialect.name), _BOOTS.parameters(tx, boots))


@cache
def _update_attempts(engine: str) -> Update:
    updates = _UPDATES.table(engine)
    return (
        update(attempts)
        .where(attempts.c.job_id == updates.c.job_id, attempts.c.number == updates.c.number)
        .values({name: updates.c[name] for name in _CHANGING})
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
    """Return all attempts of jobs, by job and number."""
    return _attempts(tx, _of_jobs(tx.dialect.name), bind_ids(tx, ids))


def live(tx: Tx) -> list[Attempt]:
    """Return the attempts that are not known to be over."""
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
