"""Many rows in one statement: bound as a table of an UPDATE or SELECT, or inserted, or added up."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    column,
    func,
    insert,
    literal_column,
    select,
    table,
    type_coerce,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

from oarlock.store.engine.tx import Tx
from oarlock.store.tables.columns import INTEGER

_FEWEST_TO_COPY = 30
"""Below this, COPY on PostgreSQL costs more than it saves."""


class BoundRows:
    """Rows bound to a statement, usable in it like a table: one JSON text on SQLite, arrays on PostgreSQL."""

    def __init__(self, name: str, **types: TypeEngine[Any]) -> None:
        self._name = name
        self._types = types
        self._tables: dict[str, FromClause] = {}

    def table(self, engine: str) -> FromClause:
        """Return the rows as a table, in the words of `sqlite` or `postgresql`; made once, since that is slow."""
        if engine not in self._tables:
            self._tables[engine] = self._json() if engine == "sqlite" else self._arrays()
        return self._tables[engine]

    def parameters(self, tx: Tx, rows: Collection[Sequence[Any]]) -> dict[str, Any]:
        """Return the parameters that bring these rows, each in the order of the columns."""
        if tx.dialect.name == "sqlite":
            return {self._name: msgspec.json.encode(rows).decode()}
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._types)
        return {f"{self._name}_{name}": list(values) for name, values in zip(self._types, columns, strict=True)}

    def _json(self) -> FromClause:
        each = func.json_each(bindparam(self._name, type_=Text())).table_valued("value", name=f"{self._name}_each")
        columns = (
            type_coerce(func.json_extract(each.c.value, literal_column(f"'$[{place}]'")), type_).label(name)
            for place, (name, type_) in enumerate(self._types.items())
        )
        return select(*columns).subquery(self._name)

    def _arrays(self) -> FromClause:
        arrays = (bindparam(f"{self._name}_{name}", type_=ARRAY(type_)) for name, type_ in self._types.items())
        return func.unnest(*arrays).table_valued(*self._types, name=self._name).render_derived()


_IDS = BoundRows("given", id=INTEGER)


@lru_cache(maxsize=256)
def id_in(engine: str, column: ColumnElement[int]) -> ColumnElement[bool]:
    """Build the condition that a column holds one of the numbers bound by `bind_ids`, however many they are.

    In the words of `sqlite` or `postgresql`: a statement that is made often is made once for each (`functools.cache`),
    since SQLAlchemy takes longer to make one and to know it again than SQLite takes to carry it out.
    """
    if engine == "sqlite":
        return column.in_(select(_IDS.table(engine).c.id))
    return column == any_(bindparam("given_id", type_=ARRAY(INTEGER)))


def id_in_query(engine: str, column: ColumnElement[int], chosen: Select[Any]) -> ColumnElement[bool]:
    """Build the condition that a column holds one of the numbers that a query returns.

    PostgreSQL is made to run that query first, and once: what it would do otherwise is chosen by statistics, which a
    table does not have in the minute after it was filled, and ends in minutes for an array of ten thousand jobs.
    """
    if engine == "sqlite":
        return column.in_(chosen)
    return column == any_(func.array(chosen.scalar_subquery(), type_=ARRAY(INTEGER)))


def bind_ids(tx: Tx, ids: Iterable[int]) -> dict[str, Any]:
    """Return the parameters of a statement that uses `id_in`."""
    return _IDS.parameters(tx, [(number,) for number in ids])


@cache
def add_up(engine: str, table: Table, *, latest: str = "") -> Any:
    """Build the statement that adds rows to those with the same key: columns are sums, but for the `latest` one."""
    insert_into: Any = import_module(f"sqlalchemy.dialects.{engine}").insert(table)  # the other one is not loaded
    changes = {
        column.name: insert_into.excluded[column.name] + (0 if column.name == latest else column)
        for column in table.columns
        if not column.primary_key
    }
    return insert_into.on_conflict_do_update(index_elements=list(table.primary_key), set_=changes)


def insert_rows(tx: Tx, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows into the table of that name: plain values (int, str, float, None) in the order of `columns`."""
    if not rows:
        return
    if tx.dialect.name == "sqlite":
        tx.exec_driver_sql(_insert_text(name, tuple(columns)), list(map(tuple, rows)))
    elif len(rows) < _FEWEST_TO_COPY:
        into = table(name, *map(column, columns))
        tx.execute(insert(into), [dict(zip(columns, row, strict=True)) for row in rows])
    else:
        _copy(tx, name, columns, rows)


@lru_cache(maxsize=256)
def _insert_text(name: str, columns: tuple[str, ...]) -> str:
    return str(insert(table(name, *map(column, columns))).compile(dialect=sqlite.dialect()))


def _copy(tx: Tx, name: str, columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    import psycopg  # late: a server on SQLite starts without it
    from psycopg import sql

    connection = tx.connection.driver_connection
    assert isinstance(connection, psycopg.Connection)  # noqa: S101  (tells mypy)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
