"""A transaction, and the numbers that new rows get in it."""

from typing import Any

from sqlalchemy import Column, Connection, func, select

Tx = Connection
"""A connection with an open transaction. Whoever opened it ends it; functions that receive one never commit."""


def take_ids(tx: Tx, column: Column[int], count: int, *, beside: tuple[Column[int], ...] = ()) -> range:
    """Give `count` numbers that `column` does not hold yet.

    There is one writer, so it counts in memory, from the highest number found when its connection first needed one;
    `beside` are columns where a number may outlive its row. A transaction that is rolled back leaves a gap, and no
    number is given twice.
    """
    counters: dict[Column[int], int] = tx.info.setdefault("next ids", {})
    if column not in counters:
        counters[column] = 1 + max(_highest(tx, one) for one in (column, *beside))
    first = counters[column]
    counters[column] = first + count
    return range(first, first + count)


def _highest(tx: Tx, column: Column[Any]) -> int:
    return tx.execute(select(func.max(column))).scalar_one() or 0
