"""A transaction, and the allocation of numbers for new rows in it."""

from typing import Any

from sqlalchemy import Column, Connection, delete, func, insert, select

from oarlock.model.errors import DatabaseAway
from oarlock.store.tables import instance

Tx = Connection
"""A connection with an open transaction. Whoever opened it ends it; functions that receive one never commit."""


def allocate_ids(tx: Tx, column: Column[int], count: int, *, beside: tuple[Column[int], ...] = ()) -> range:
    """Return `count` numbers that `column` does not hold yet.

    There is one writer, so it counts in memory, from the highest number found when its connection first needed one;
    `beside` are columns where a number may outlive its row. A transaction that is rolled back leaves a gap, and no
    number is given twice.
    """
    counters: dict[Column[int], int] = tx.info.setdefault("next ids", {})
    if column not in counters:
        counters[column] = 1 + max(_skipped(tx, column), *(_highest(tx, source) for source in (column, *beside)))
    first = counters[column]
    counters[column] = first + count
    return range(first, first + count)


def skip_ids(tx: Tx, column: Column[int], reached: int) -> int:
    """Never allocate numbers of a column up to `reached`, also after a restart; return the next one."""
    [following] = allocate_ids(tx, column, 1)
    following = max(following, reached + 1)
    tx.info["next ids"][column] = following
    tx.execute(delete(instance).where(instance.c.name == _skips(column)))
    tx.execute(insert(instance), {"name": _skips(column), "value": str(following - 1)})
    return following


def highest_id(tx: Tx, column: Column[int]) -> int:
    """Return the highest number of a column that was given, or is never given."""
    return max(_skipped(tx, column), _highest(tx, column))


def _skips(column: Column[int]) -> str:
    return f"numbers of {column} begin above"


def _skipped(tx: Tx, column: Column[int]) -> int:
    return int(tx.execute(select(instance.c.value).where(instance.c.name == _skips(column))).scalar() or 0)


def _highest(tx: Tx, column: Column[Any]) -> int:
    return tx.execute(select(func.max(column))).scalar_one() or 0


class OutcomeUnknown(Exception):
    """Raised when the connection broke during the commit of a transaction, which may be on disk or not."""

    def __init__(self, transaction: int) -> None:
        super().__init__(f"the connection broke during the commit of transaction {transaction}")
        self.transaction = transaction


def transaction_number(tx: Connection) -> int | None:
    """Return the number by which a transaction can be asked for later; None if it has written nothing."""
    if tx.dialect.name != "postgresql":
        return None
    # Only of one that wrote: giving a number to any other would make its commit wait for the disk.
    number: int | None = tx.execute(_NUMBER).scalar_one()
    return number


def was_committed(tx: Connection, transaction: int) -> bool:
    """Return whether an earlier transaction was committed; refuse (`DatabaseAway`) while its commit is under way."""
    status = tx.execute(select(func.txid_status(transaction))).scalar_one()
    if status == "in progress":
        raise DatabaseAway("The database has not ended an earlier transaction yet.", hint="Ask again in a moment.")
    return bool(status == "committed")


_NUMBER = select(func.txid_current_if_assigned())
