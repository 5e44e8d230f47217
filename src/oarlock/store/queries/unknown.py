"""Attempts on nodes that belong to another generation of the database: their resources are kept free of jobs."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import delete, select

from oarlock.model.snapshot import MaintenanceWindow
from oarlock.model.unknown import NoUnknownAttempt, UnknownAttempt
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import resources, unknown_attempts

_COLUMNS = [column.name for column in unknown_attempts.columns]
_DAY = 86_400


def add(tx: Tx, attempts: Sequence[UnknownAttempt]) -> None:
    """Insert attempts that were found on nodes."""
    numbers = allocate_ids(tx, unknown_attempts.c.unknown_id, len(attempts))
    insert_rows(
        tx,
        "unknown_attempts",
        _COLUMNS,
        [_row(attempt, number) for attempt, number in zip(attempts, numbers, strict=True)],
    )


def _row(attempt: UnknownAttempt, number: int) -> Sequence[Any]:
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


def listed(tx: Tx) -> list[UnknownAttempt]:
    """Return all, in the order in which they were found."""
    return [_attempt(row) for row in tx.execute(_LISTED)]


def get(tx: Tx, number: int) -> UnknownAttempt:
    """Return one by its number (`NoUnknownAttempt` if there is none)."""
    row = tx.execute(select(unknown_attempts).where(unknown_attempts.c.unknown_id == number)).one_or_none()
    if row is None:
        raise NoUnknownAttempt(number)
    return _attempt(row)


def of_node(tx: Tx, node: str) -> list[UnknownAttempt]:
    """Return those of one node."""
    return [_attempt(row) for row in tx.execute(_LISTED.where(unknown_attempts.c.network_address == node))]


def remove(tx: Tx, numbers: Iterable[int]) -> None:
    """Remove those that are over."""
    for number in numbers:
        tx.execute(delete(unknown_attempts).where(unknown_attempts.c.unknown_id == number))


_LISTED = select(unknown_attempts).order_by(unknown_attempts.c.unknown_id)


def _attempt(row: Any) -> UnknownAttempt:
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


def held(tx: Tx) -> dict[int, set[int]]:
    """Return the resources that each unknown attempt holds, by its number: all of its node where it is not known."""
    return _held(tx, listed(tx))


def _held(tx: Tx, attempts: Sequence[UnknownAttempt]) -> dict[int, set[int]]:
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


def windows(tx: Tx, *, now: int) -> list[MaintenanceWindow]:
    """Return when which resources are kept free for what runs on them unknown, for the scheduler.

    They end with the walltime where it is known. What lasts longer is looked at again each day: an end that moved with
    the clock would make every plan a new one.
    """
    attempts = listed(tx)
    kept = _held(tx, attempts)
    return [
        MaintenanceWindow(
            f"unknown job {attempt.job}",
            attempt.since,
            _end(attempt, now),
            tuple(sorted(kept[attempt.id])),
            lost_job=attempt.job,
        )
        for attempt in attempts
        if kept[attempt.id]
    ]


def _end(attempt: UnknownAttempt, now: int) -> int:
    end = attempt.since + attempt.walltime if attempt.walltime else attempt.since
    return end if end > now else end + ((now - end) // _DAY + 1) * _DAY
