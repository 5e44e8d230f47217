"""Rows of another resource manager become rows of ours: values that fit, free numbers, and counts of both."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Column, Table, func, select

from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, highest_id
from oarlock.store.queries.site.oar_reader import SourceRow


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """A row of OAR's admission rules, as it stands there."""

    number: int
    priority: int
    enabled: bool
    text: str


@dataclass(slots=True)
class ImportCounts:
    """What an import did. `copied` and `present` count rows by table; `no_place` has a sentence each."""

    version: str = ""
    copied: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    no_place: list[str] = field(default_factory=list)
    rules: list[ForeignRule] = field(default_factory=list)


def fitted(target: Table, row: SourceRow, **given: Any) -> tuple[Any, ...]:
    """Return the values of a row in the order of our columns; what has no place or no value is our default."""
    return tuple(_value(column, given.get(column.name, row.get(column.name))) for column in target.columns)


def _value(column: Column[Any], value: Any) -> Any:
    default = column.info.get("default")
    if value is None:
        return default
    if isinstance(column.type, BigInteger):
        return int(value)
    words = column.info.get("words")
    return default if words is not None and value not in words else str(value)


def insert(tx: Tx, target: Table, rows: Sequence[tuple[Any, ...]], report: ImportCounts) -> None:
    insert_rows(tx, target.name, [column.name for column in target.columns], rows)
    report.copied[target.name] += len(rows)


class FreeNumbers:
    """Numbers for rows of a table: the source's own where ours are free, otherwise above all of both."""

    def __init__(self, tx: Tx, key: Column[int], highest: int) -> None:
        self._tx, self._key = tx, key
        self._empty = tx.execute(select(func.count()).select_from(key.table)).scalar_one() == 0
        self._next = max(highest, highest_id(tx, key)) + 1

    def of(self, wanted: Iterable[int]) -> dict[int, int]:
        """Return the number of each."""
        wanted = list(dict.fromkeys(wanted))
        taken = set() if self._empty else self._taken(wanted)
        chosen = {}
        for number in wanted:
            chosen[number] = self._following() if number in taken else number
        return chosen

    def _taken(self, wanted: list[int]) -> set[int]:
        query = select(self._key).where(id_in(self._tx.dialect.name, self._key))
        return set(self._tx.execute(query, bind_ids(self._tx, wanted)).scalars())

    def _following(self) -> int:
        self._next += 1
        return self._next - 1
