"""Condition → text, in one form: keywords in capitals, `!=`, the parentheses that are needed and no others."""

from decimal import Decimal
from types import UnionType

from oarlock.lang.where.tokens import KEYWORDS, PLAIN_NAME
from oarlock.model.condition import (
    And,
    Between,
    Column,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Not,
    Operand,
    Or,
)


def show(condition: Condition) -> str:
    """Write a condition so that parsing it again gives the same tree."""
    match condition:
        case Compare(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case In(column, _, negated, str(file)):
            return f"{_operand(column)}{_not(negated)} IN FILE {_text(file)}"
        case In(column, items, negated):
            return f"{_operand(column)}{_not(negated)} IN ({', '.join(map(_operand, items))})"
        case Like(column, pattern, negated):
            return f"{_operand(column)}{_not(negated)} LIKE {_text(pattern)}"
        case Between(column, low, high, negated):
            return f"{_operand(column)}{_not(negated)} BETWEEN {_operand(low)} AND {_operand(high)}"
        case IsNull(column, negated):
            return f"{_operand(column)} IS{_not(negated)} NULL"
        case Not(inner):
            return f"NOT {_within(inner, And | Or)}"
        # A chain inside a chain of the same kind keeps its parentheses: the tree has them apart.
        case And(parts):
            return " AND ".join(_within(part, And | Or) for part in parts)
        case _:
            return " OR ".join(_within(part, Or) for part in condition.parts)


def _within(condition: Condition, bracketed: type | UnionType) -> str:
    return f"({show(condition)})" if isinstance(condition, bracketed) else show(condition)


def _not(negated: bool) -> str:
    return " NOT" if negated else ""


def _operand(operand: Operand) -> str:
    if isinstance(operand, Column):
        return _name(operand.name)
    if isinstance(operand.value, str):
        return _text(operand.value)
    return _number(operand.value)


def _name(name: str) -> str:
    if PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(value: float) -> str:
    """Write all digits: the language has no exponents."""
    return str(value) if isinstance(value, int) else format(Decimal(repr(value)), "f")
