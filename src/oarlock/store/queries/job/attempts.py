"""Attempts: every launch of a job, with the secret that proves a report about it and its times in microseconds.

Unknown attempts belong to another generation of the database: their resources are kept free of jobs.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Select, Update, delete, select, update
from sqlalchemy.types import TypeEngine

from oarlock.model.errors import AttemptOpen, StaleAttempt
from oarlock.model.job import NoUnknownAttempt, UnknownAttempt
from oarlock.model.snapshot import MaintenanceWindow
from oarlock.store.engine import journal
from oarlock.store.engine.rows import BoundRows, bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import attempt_nodes, attempts, resources, unknown_attempts
from oarlock.store.tables.columns import INTEGER, TEXT_BY_CODE_POINT


class AttemptNode(Struct, frozen=True):
    """A node of an attempt; its boot id is set once it answered. `memory`: bytes that the job may use, None: all."""

    name: str
    boot_id: str = ""
    memory: int | None = None


class Attempt(Struct, frozen=True, kw_only=True):
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
        begun.append(replace(launch, number=1 if before is None else before.number + 1))
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


def ending(tx: Tx) -> list[Attempt]:
    """Return the live attempts whose command is over."""
    return _attempts(tx, _IN_ORDER.where(attempts.c.closed_us.is_(None), attempts.c.ended_us.is_not(None)), {})


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


_UNKNOWN_COLUMNS = [column.name for column in unknown_attempts.columns]
_DAY = 86_400


def add_unknown(tx: Tx, attempts: Sequence[UnknownAttempt]) -> None:
    """Insert attempts that were found on nodes."""
    numbers = allocate_ids(tx, unknown_attempts.c.unknown_id, len(attempts))
    insert_rows(
        tx,
        "unknown_attempts",
        _UNKNOWN_COLUMNS,
        [_unknown_row(attempt, number) for attempt, number in zip(attempts, numbers, strict=True)],
    )


def _unknown_row(attempt: UnknownAttempt, number: int) -> Sequence[Any]:
    held = json.dumps(attempt.resources)
    return (
        number,
        attempt.node,
        attempt.job,
        attempt.attempt,
        attempt.tag,
        attempt.generation,
        attempt.user,
        attempt.since,
        attempt.walltime,
        held,
    )


def all_unknown(tx: Tx) -> list[UnknownAttempt]:
    """Return all, in the order in which they were found."""
    return [_unknown_attempt(row) for row in tx.execute(_ALL_UNKNOWN)]


def get_unknown(tx: Tx, number: int) -> UnknownAttempt:
    """Return one by its number (`NoUnknownAttempt` if there is none)."""
    row = tx.execute(select(unknown_attempts).where(unknown_attempts.c.unknown_id == number)).one_or_none()
    if row is None:
        raise NoUnknownAttempt(number)
    return _unknown_attempt(row)


def unknown_of_node(tx: Tx, node: str) -> list[UnknownAttempt]:
    """Return those of one node."""
    return [_unknown_attempt(row) for row in tx.execute(_ALL_UNKNOWN.where(unknown_attempts.c.network_address == node))]


def remove_unknown(tx: Tx, numbers: Iterable[int]) -> None:
    """Remove those that are over."""
    for number in numbers:
        tx.execute(delete(unknown_attempts).where(unknown_attempts.c.unknown_id == number))


_ALL_UNKNOWN = select(unknown_attempts).order_by(unknown_attempts.c.unknown_id)


def _unknown_attempt(row: Any) -> UnknownAttempt:
    return UnknownAttempt(
        id=row.unknown_id,
        node=row.network_address,
        job=row.job_id,
        attempt=row.number,
        tag=row.tag,
        generation=row.generation,
        user=row.user_name,
        since=row.since,
        walltime=row.walltime,
        resources=tuple(json.loads(row.resources)),
    )


def held_by_unknown(tx: Tx) -> dict[int, set[int]]:
    """Return the resources that each unknown attempt holds, by its number: all of its node where it is not known."""
    return _held_by(tx, all_unknown(tx))


def _held_by(tx: Tx, attempts: Sequence[UnknownAttempt]) -> dict[int, set[int]]:
    if not attempts:
        return {}
    nodes: dict[str, set[int]] = {}
    rows = tx.execute(select(resources.c.resource_id, resources.c.network_address))
    for number, node in rows:
        nodes.setdefault(node, set()).add(number)
    return {
        attempt.id: (nodes.get(attempt.node, set()) & set(attempt.resources)) or nodes.get(attempt.node, set())
        for attempt in attempts
    }


def unknown_windows(tx: Tx, *, now: int) -> list[MaintenanceWindow]:
    """Return when which resources are kept free for what runs on them unknown, for the scheduler.

    They end with the walltime where it is known. What lasts longer is looked at again each day: an end that moved with
    the clock would make every plan a new one.
    """
    attempts = all_unknown(tx)
    kept = _held_by(tx, attempts)
    return [
        MaintenanceWindow(
            f"unknown job {attempt.job}",
            attempt.since,
            _unknown_end(attempt, now),
            tuple(sorted(kept[attempt.id])),
            lost_job=attempt.job,
        )
        for attempt in attempts
        if kept[attempt.id]
    ]


def _unknown_end(attempt: UnknownAttempt, now: int) -> int:
    end = attempt.since + attempt.walltime if attempt.walltime else attempt.since
    return end if end > now else end + ((now - end) // _DAY + 1) * _DAY
