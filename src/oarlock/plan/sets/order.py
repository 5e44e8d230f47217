"""Which resources the scheduler prefers: SCHEDULER_RESOURCE_ORDER, applied."""

from collections.abc import Sequence

from oarlock.model.errors import UnknownProperty
from oarlock.model.resource import ResourceOrder, Value
from oarlock.model.snapshot import ResourceTable


def preferred_rows(table: ResourceTable, order: Sequence[ResourceOrder]) -> list[int]:
    """Give the row numbers of a table in that order; ties go to the lower resource id; nothing comes last."""
    rows = sorted(range(len(table.ids)), key=table.ids.__getitem__)
    for term in reversed(order):
        if term.column == "resource_id":
            rows.sort(key=table.ids.__getitem__, reverse=term.descending)
            continue
        column = table.columns.get(term.column)
        if column is None:
            raise UnknownProperty(
                f"The resource order names `{term.column}`, which is not a property of resources.",
                hint="`oarproperty -l` lists the properties.",
            )
        _sort_by(rows, column, descending=term.descending)
    return rows


def _sort_by(rows: list[int], column: Sequence[Value], *, descending: bool) -> None:
    """Sort stably by one column. Numbers come before texts, nothing after both, in either direction."""
    values = set(column)
    if len(values) == 1:  # most columns of most sites
        return
    ranked = [*sorted(values - {None}, key=_rank, reverse=descending), None]
    place = {value: at for at, value in enumerate(ranked)}
    rows.sort(key=lambda row: place[column[row]])


def _rank(value: Value) -> tuple[bool, int, str]:
    return (True, 0, value) if isinstance(value, str) else (False, value or 0, "")
