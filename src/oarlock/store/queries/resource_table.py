"""The resources that the scheduler looks at, as columns in the order that a site prefers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, TableClause, select

from oarlock.lang.where import known_column
from oarlock.model.resource import ResourceOrder, ResourceState, Value
from oarlock.model.snapshot import ResourceTable
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import properties


@dataclass(slots=True)
class ResourceTableCache:
    """The table that was read last; while nothing changes, the next read returns the same object."""

    rows: Sequence[tuple[Any, ...]] = ()
    order: Sequence[ResourceOrder] = ()
    table: ResourceTable | None = None


def read(
    tx: Tx,
    types: Mapping[str, type],
    order: Sequence[ResourceOrder],
    memory: ResourceTableCache | None = None,
    also: Select[Any] | None = None,
) -> ResourceTable:
    """Read the resources that are not Dead, and those whose numbers `also` selects, in the order that is preferred."""
    rows = [tuple(row) for row in tx.execute(_alive(properties.clause(types), also))]
    if memory is None:
        return _ordered(rows, types, order)
    table = memory.table
    if table is None or list(table.columns) != list(types) or memory.order != order or memory.rows != rows:
        table = _ordered(rows, types, order)
        memory.rows, memory.order, memory.table = rows, order, table
    return table


@lru_cache(maxsize=16)
def _alive(resource: TableClause, also: Select[Any] | None) -> Select[Any]:
    wanted = resource.c.state != ResourceState.DEAD.value
    if also is not None:
        wanted |= resource.c.resource_id.in_(also)
    return select(resource).where(wanted).order_by(resource.c.resource_id)


def _ordered(
    rows: Sequence[tuple[Any, ...]], types: Mapping[str, type], order: Sequence[ResourceOrder]
) -> ResourceTable:
    columns: dict[str, Sequence[Value]] = dict(
        zip(types, zip(*rows, strict=True) if rows else ((),) * len(types), strict=True)
    )
    order = [replace(key, column=known_column(key.column, types)) for key in order]
    places = _sorted(range(len(rows)), columns, order)
    sorted_columns = {name: tuple(map(column.__getitem__, places)) for name, column in columns.items()}
    return ResourceTable(ids=sorted_columns["resource_id"], columns=sorted_columns)  # type: ignore[arg-type]


def _sorted(places: Iterable[int], columns: Mapping[str, Sequence[Value]], order: Sequence[ResourceOrder]) -> list[int]:
    """Sort places by several columns; the two databases would put NULL at different ends."""
    result = list(places)
    for key in reversed(order):
        keys = [(value is not None, value) for value in columns[key.column]]
        result.sort(key=keys.__getitem__, reverse=key.descending)
    return result
