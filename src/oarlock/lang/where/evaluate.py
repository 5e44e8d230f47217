"""What a condition says of one row: the plain reading, which the planner's sets and the store's SQL must agree with."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from oarlock.model.condition import And, Between, Column, Compare, Condition, In, IsNull, Like, Not, Operand, Or
from oarlock.model.resource import Value

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What comparisons do with two values, or with two columns of SQL."""


def truth(condition: Condition, row: Mapping[str, Value]) -> bool | None:
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


def _value(operand: Operand, row: Mapping[str, Value]) -> float | str | None:
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
