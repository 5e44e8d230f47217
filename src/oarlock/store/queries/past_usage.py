"""Past usage, for the scheduler: decayed usage of users, and how long their last jobs ran."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from msgspec import structs
from sqlalchemy import Select, bindparam, func, select

from oarlock.model.job import FINAL
from oarlock.model.snapshot import Usage
from oarlock.store.engine.rows import BoundRows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import accounting, jobs
from oarlock.store.tables.columns import TEXT_BY_CODE_POINT

_HALF_LIVES = 20  # after so many, a millionth is left
_WHO = (accounting.c.queue_name, accounting.c.accounting_user, accounting.c.window_start)
_USED = (
    select(*_WHO, func.sum(accounting.c.consumption))
    .where(
        accounting.c.consumption_type == "USED",
        accounting.c.window_start >= bindparam("since"),
        accounting.c.window_start < bindparam("until"),
    )
    .group_by(*_WHO)
    .order_by(*_WHO)
)


def with_decayed(tx: Tx, usage: Mapping[str, Usage], *, half_life: int, now: int) -> dict[str, Usage]:
    """Add the decayed usage of every queue's users: a row counts half after a half-life, a quarter after two."""
    used: dict[str, dict[str, float]] = {}
    for queue, user, start, consumed in tx.execute(_USED, {"since": now - _HALF_LIVES * half_life, "until": now}):
        mine = used.setdefault(queue, {})
        mine[user] = mine.get(user, 0.0) + int(consumed) * 0.5 ** ((now - start) / half_life)
    return {
        queue: structs.replace(usage.get(queue, Usage()), decayed_by_user=used.get(queue, {}))
        for queue in sorted({*usage, *used})
    }


_RECENT = 2
_PEOPLE = BoundRows("people", person=TEXT_BY_CODE_POINT)


def recent(tx: Tx, users: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Return how long the last two jobs of users ran: of those that are over, the ones that were submitted last."""
    rows = tx.execute(_last(tx.dialect.name), _PEOPLE.parameters(tx, [(user,) for user in sorted(users)]))
    runs: defaultdict[str, list[int]] = defaultdict(list)
    for user, start, stop in rows:
        runs[user].append(max(0, stop - start))
    return {user: tuple(seconds) for user, seconds in runs.items()}


@cache
def _last(engine: str) -> Select[Any]:
    people, others = _PEOPLE.table(engine), jobs.alias("others")
    last = (
        select(others.c.job_id)
        .where(
            others.c.job_user == people.c.person,
            others.c.state.in_([state.value for state in FINAL]),
            others.c.start_time > 0,
        )
        .order_by(others.c.job_id.desc())
        .limit(_RECENT)
        .correlate(people)
    )
    return (
        select(people.c.person, jobs.c.start_time, jobs.c.stop_time)
        .join_from(people, jobs, jobs.c.job_id.in_(last))
        .order_by(people.c.person, jobs.c.job_id.desc())
    )
