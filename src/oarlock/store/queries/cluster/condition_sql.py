"""A condition as SQL: the same tree that the scheduler reads, with known columns and bound values only.

The condition has passed `lang.where.check` with the columns of the table.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Double, Numeric, Text, and_, between, false, literal, not_, or_, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean, TypeDecorator, TypeEngine

from oarlock.lang.where import OPERATORS, truth
from oarlock.model.condition import (
    And,
    Between,
    Column,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
)
from oarlock.store.tables.columns import INTEGER

Columns = Mapping[str, ColumnElement[Any]]


def sql_condition(condition: Condition, columns: Columns) -> ColumnElement[bool]:
    """Return the SQL of a condition over these columns."""
    match condition:
        case And(parts):
            return and_(*(sql_condition(part, columns) for part in parts))
        case Or(parts):
            return or_(*(sql_condition(part, columns) for part in parts))
        case Not(inner):
            return not_(sql_condition(inner, columns))
        case Compare(op, left, right):
            return _compared(op, left, right, columns)
        case _:
            return _tested(condition, columns)


def _compared(op: str, left: Operand, right: Operand, columns: Columns) -> ColumnElement[bool]:
    if isinstance(left, Literal) and isinstance(right, Literal):
        # No column lends its order to two texts, and the database's own may differ from ours.
        return true() if truth(Compare(op, left, right), {}) else false()
    compared: ColumnElement[bool] = OPERATORS[op](_operand(left, columns), _operand(right, columns))
    return compared


def _tested(test: In | Like | Between | IsNull, columns: Columns) -> ColumnElement[bool]:
    column = columns[test.column.name]
    match test:
        case In(items=items):
            tested: ColumnElement[bool] = column.in_([_value(item) for item in items])
        case Between(low=low, high=high):
            tested = between(column, _value(low), _value(high))
        case Like(pattern=pattern):
            tested = _Like(column, literal(pattern, _Pattern()))
        case _:
            tested = column.is_(None)
    return not_(tested) if test.negated else tested


def _operand(operand: Operand, columns: Columns) -> ColumnElement[Any]:
    return columns[operand.name] if isinstance(operand, Column) else _value(operand)


def _value(item: Literal) -> ColumnElement[Any]:
    kinds: Mapping[type, TypeEngine[Any]] = {int: INTEGER, float: _Decimal(), str: Text()}
    return literal(item.value, kinds[type(item.value)])


class _Decimal(TypeDecorator[float]):
    """A number with a fraction, compared with integers exactly: PostgreSQL would round large ones to doubles."""

    impl = Double
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Numeric() if dialect.name == "postgresql" else Double())

    def process_bind_param(self, value: float | None, dialect: Dialect) -> Any:
        return Decimal(value) if value is not None and dialect.name == "postgresql" else value


class _Pattern(TypeDecorator[str]):
    """The pattern of a LIKE. SQLite's LIKE ignores case, so GLOB is used there, which has other wildcards."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value.translate(_GLOB) if value is not None and dialect.name == "sqlite" else value


_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


class _Like(FunctionElement[bool]):
    """LIKE where case matters and a backslash stands for itself."""

    inherit_cache = True
    type = Boolean()


@compiles(_Like)
def _as_like(element: _Like, compiler: SQLCompiler, **options: Any) -> str:
    column, pattern = (compiler.process(part, **options) for part in element.clauses)
    return f"({column} LIKE {pattern} ESCAPE '')"


@compiles(_Like, "sqlite")
def _as_glob(element: _Like, compiler: SQLCompiler, **options: Any) -> str:
    column, pattern = (compiler.process(part, **options) for part in element.clauses)
    return f"({column} GLOB {pattern})"
