"""What users did before, as far as a scheduler wants to know it: what they used, the less of it the longer ago."""

from collections.abc import Mapping

from msgspec import structs
from sqlalchemy import bindparam, func, select

from oarlock.model.snapshot import Usage
from oarlock.store.tables import accounting
from oarlock.store.tx import Tx

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
    """Add what every queue's users used; each row counts half after a half-life, a quarter after two."""
    used: dict[str, dict[str, float]] = {}
    for queue, user, start, consumed in tx.execute(_USED, {"since": now - _HALF_LIVES * half_life, "until": now}):
        mine = used.setdefault(queue, {})
        mine[user] = mine.get(user, 0.0) + int(consumed) * 0.5 ** ((now - start) / half_life)
    return {
        queue: structs.replace(usage.get(queue, Usage()), decayed_by_user=used.get(queue, {}))
        for queue in sorted({*usage, *used})
    }
