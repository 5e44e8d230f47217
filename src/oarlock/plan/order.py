"""SCHEDULER_RESOURCE_ORDER: which resources the scheduler prefers. `switch ASC, network_address DESC, resource_id`."""

from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.model.errors import SyntaxRefused, UnknownProperty
from oarlock.model.resource import Value
from oarlock.model.snapshot import ResourceTable

DEFAULT_ORDER = "scheduler_priority ASC, suspended_jobs ASC, network_address ASC, resource_id ASC"


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One column of the order."""

    column: str
    descending: bool = False


def parse(text: str) -> tuple[OrderTerm, ...]:
    """Read an order as SQL writes it: columns with ASC or DESC, separated by commas."""
    terms: list[OrderTerm] = []
    at = 0
    for part in text.split(","):
        words = part.split()
        if not 1 <= len(words) <= 2 or not words[0].isidentifier() or _direction(words) is None:
            raise SyntaxRefused(
                "The resource order cannot be read",
                text=text,
                at=at + len(part) - len(part.lstrip()),
                expected="a column, then ASC, DESC or nothing",
                hint="Example: SCHEDULER_RESOURCE_ORDER='switch ASC, network_address DESC, resource_id ASC'.",
            )
        terms.append(OrderTerm(words[0], descending=_direction(words) == "DESC"))
        at += len(part) + 1
    return tuple(terms)


def _direction(words: Sequence[str]) -> str | None:
    direction = words[1].upper() if len(words) == 2 else "ASC"
    return direction if direction in {"ASC", "DESC"} else None


def arranged(table: ResourceTable, order: Sequence[OrderTerm]) -> list[int]:
    """Give the row numbers of a table in that order; ties go to the lower resource id; nothing comes last."""
    rows = sorted(range(len(table.ids)), key=table.ids.__getitem__)
    for term in reversed(order):
        column = table.ids if term.column == "resource_id" else table.columns.get(term.column)
        if column is None:
            raise UnknownProperty(
                f"The resource order names `{term.column}`, which is not a property of resources.",
                hint="`oarproperty -l` lists the properties.",
            )
        _sort_by(rows, column, descending=term.descending)
    return rows


def _sort_by(rows: list[int], column: Sequence[Value], *, descending: bool) -> None:
    """Sort stably by one column. Numbers come before texts, nothing after both, in either direction."""
    here = [row for row in rows if column[row] is not None]
    nothing = [row for row in rows if column[row] is None]
    here.sort(key=lambda row: _rank(column[row]), reverse=descending)
    rows[:] = here + nothing


def _rank(value: Value) -> tuple[bool, int, str]:
    return (True, 0, value) if isinstance(value, str) else (False, value or 0, "")
