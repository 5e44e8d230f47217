"""Conditions on columns: names resolved, values brought to the types; and what a condition says of a row."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from oarlock.lang.limits import closest, short
from oarlock.lang.where.parse import INTEGER_DIGITS, INTEGERS
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
from oarlock.model.resource import PROPERTY_ALIASES
from oarlock.model.submission_errors import TypesDiffer, UnknownProperty

Types = Mapping[str, type]
"""The columns there are, each with `int` or `str`."""

_INTEGER = re.compile(rf"-?[0-9]{{1,{INTEGER_DIGITS}}}")


def columns(condition: Condition) -> frozenset[str]:
    """Return the names of all columns that a condition reads."""
    match condition:
        case And(parts) | Or(parts):
            return frozenset().union(*map(columns, parts))
        case Not(inner):
            return columns(inner)
        case Compare(_, left, right):
            return frozenset(operand.name for operand in (left, right) if isinstance(operand, Column))
        case _:
            return frozenset({condition.column.name})


def known_column(name: str, types: Types, *, hint: str = "", others: Iterable[str] = ()) -> str:
    """Find a column by its name or an alias, in capitals or not; the answer is spelt as the column is.

    `others` are words that are no columns and may have been meant.
    """
    if name in types:
        return name
    wanted = PROPERTY_ALIASES.get(name.lower(), name.lower())
    for by_name in types:
        if by_name.lower() == wanted:
            return by_name
    raise UnknownProperty(f"There is no property `{short(name)}`.", hint=hint or closest(name, types, others=others))


def check(condition: Condition, types: Types) -> Condition:
    """Return the condition with existing columns and values of their types, or refuse what does not fit.

    Against an integer column a text of digits becomes that integer; against a text column an integer becomes its text.
    """
    match condition:
        case And(parts):
            return And(tuple(check(part, types) for part in parts))
        case Or(parts):
            return Or(tuple(check(part, types) for part in parts))
        case Not(inner):
            return Not(check(inner, types))
        case Compare():
            return _compare(condition, types)
        case _:
            return _test(condition, types)


def _test(test: In | Like | Between | IsNull, types: Types) -> Condition:
    column = Column(known_column(test.column.name, types))
    match test:
        case In(items=items):
            return replace(test, column=column, items=tuple(_adapted(item, column, types) for item in items))
        case Between(low=low, high=high):
            bounds = _adapted(low, column, types), _adapted(high, column, types)
            return replace(test, column=column, low=bounds[0], high=bounds[1])
        case Like() if types[column.name] is not str:
            raise TypesDiffer(
                f"`{short(column.name)}` holds integers; LIKE is for texts.", hint="Use =, <, >, IN or BETWEEN."
            )
        case _:
            return replace(test, column=column)


def _compare(compare: Compare, types: Types) -> Condition:
    left, right = _resolved(compare.left, types, ""), _resolved(compare.right, types, _meant(compare.right))
    if isinstance(left, Column) and isinstance(right, Literal):
        right = _adapted(right, left, types)
    elif isinstance(left, Literal) and isinstance(right, Column):
        left = _adapted(left, right, types)
    elif _kind(left, types) is not _kind(right, types):
        raise TypesDiffer(
            f"{_described(left, types)}; {_described(right, types)}.",
            hint="Compare integers with integers, texts with texts.",
        )
    return Compare(compare.op, left, right)


def _resolved(operand: Operand, types: Types, hint: str) -> Operand:
    return Column(known_column(operand.name, types, hint=hint)) if isinstance(operand, Column) else operand


def _meant(operand: Operand) -> str:
    """On the right side of a comparison an unknown name is nearly always a text without its quotes."""
    if not isinstance(operand, Column):
        return ""
    return f"If it is a text, write it in single quotes: '{short(operand.name)}'."


def _adapted(literal: Literal, column: Column, types: Types) -> Literal:
    value, name = literal.value, short(column.name)
    if types[column.name] is int:
        if not isinstance(value, str):
            return literal
        if _INTEGER.fullmatch(value) and int(value) in INTEGERS:
            return Literal(int(value))
        raise TypesDiffer(f"`{name}` holds integers; '{short(value)}' is none.", hint="Compare it with a whole number.")
    if isinstance(value, float):
        # 1.10 and 1.1 are the same number and different texts: only the user knows which is meant.
        raise TypesDiffer(f"`{name}` holds texts; {value} is a number.", hint=f"As a text it is '{value}'.")
    return Literal(str(value))


def _kind(operand: Operand, types: Types) -> type:
    if isinstance(operand, Column):
        return types[operand.name]
    return str if isinstance(operand.value, str) else int


def _described(operand: Operand, types: Types) -> str:
    kind = _kind(operand, types)
    if isinstance(operand, Column):
        return f"`{short(operand.name)}` holds {'texts' if kind is str else 'integers'}"
    return f"'{short(str(operand.value))}' is a text" if kind is str else f"{operand.value} is a number"


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What comparisons do with two values, or with two columns of SQL."""


def truth(condition: Condition, row: Mapping[str, float | str | None]) -> bool | None:
    """Return whether a row fulfils a condition; `None` where SQL says UNKNOWN, because something compared is NULL.

    The condition has passed `check` with the columns of the row. Texts are ordered by code point.
    """
    match condition:
        case And(parts):
            return _every(truth(part, row) for part in parts)
        case Or(parts):
            return _opposite(_every(_opposite(truth(part, row)) for part in parts))
        case Not(inner):
            return _opposite(truth(inner, row))
        case IsNull(column, negated):
            return (row[column.name] is None) != negated
        case Compare(op, left, right):
            return _compared(op, _value(left, row), _value(right, row))
        case _:
            value = row[condition.column.name]
            return None if value is None else _holds(condition, value) != condition.negated


@lru_cache(maxsize=512)
def like(pattern: str) -> re.Pattern[str]:
    """Turn a LIKE pattern into one for `fullmatch`, whose time grows with pattern times text and no faster.

    There is no escape character: a backslash stands for itself.
    """
    first, *others = (re.escape(run).replace("_", ".") for run in pattern.split("%"))
    if not others:
        return re.compile(first, re.DOTALL)
    # The first place where a run fits is as good as any later one: never go back behind it.
    middle = "".join(f"(?>.*?{run})" for run in others[:-1])
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


def _every(answers: Iterable[bool | None]) -> bool | None:
    answer: bool | None = True
    for part in answers:
        if part is False:
            return False
        if part is None:
            answer = None
    return answer


def _opposite(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _value(operand: Operand, row: Mapping[str, float | str | None]) -> float | str | None:
    return row[operand.name] if isinstance(operand, Column) else operand.value


def _compared(op: str, left: float | str | None, right: float | str | None) -> bool | None:
    return None if left is None or right is None else OPERATORS[op](left, right)


def _holds(test: In | Like | Between, value: Any) -> bool:
    match test:
        case In(items=items):
            return any(value == item.value for item in items)
        case Like(pattern=pattern):
            return like(pattern).fullmatch(value) is not None
        case _:
            return bool(test.low.value <= value <= test.high.value)
