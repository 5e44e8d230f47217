"""The `when` of a rule: read once, then asked about every submission."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from oarlock.lang import duration
from oarlock.lang import where as conditions
from oarlock.lang.rules.vocabulary import FIELDS, TYPES, Answer, Context
from oarlock.lang.where import RULE, Types
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
from oarlock.model.errors import TypesDiffer
from oarlock.model.resource import Value

_Test = Compare | In | Like | Between | IsNull


@dataclass(frozen=True, slots=True)
class When:
    """A condition on a submission. A field that holds many is `=` a text if one of them is, `!=` if none is."""

    text: str
    condition: Condition

    def holds(self, answers: Mapping[str, Answer], context: Context) -> bool:
        """Say whether the condition is true; what is unknown is not."""
        return _truth(self.condition, answers, context) is True

    @property
    def fields(self) -> frozenset[str]:
        """The fields it asks about."""
        return conditions.columns(self.condition)

    @property
    def files(self) -> frozenset[str]:
        """The files of names it asks about."""
        return frozenset(test.file for test in _tests(self.condition) if isinstance(test, In) and test.file)


def read(text: str, types: Types = TYPES) -> When:
    """Read the condition of a rule."""
    checked = conditions.check(_in_seconds(conditions.parse(text, limits=RULE)), types)
    for test in _tests(checked):
        _check_many(test)
    return When(text, checked)


def _tests(condition: Condition) -> Iterator[_Test]:
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _tests(part)
        case Not(inner):
            yield from _tests(inner)
        case _:
            yield condition


def _in_seconds(condition: Condition) -> Condition:
    """Turn texts that a walltime is compared with (`'12:00:00'`) into seconds."""
    match condition:
        case And(parts) | Or(parts):
            return replace(condition, parts=tuple(map(_in_seconds, parts)))
        case Not(inner):
            return Not(_in_seconds(inner))
        case Compare(op, left, right) if _is_duration(left) or _is_duration(right):
            return Compare(op, _seconds(left), _seconds(right))
        case In(column, items) if _is_duration(column):
            return replace(condition, items=tuple(map(_literal_seconds, items)))
        case Between(column, low, high) if _is_duration(column):
            return replace(condition, low=_literal_seconds(low), high=_literal_seconds(high))
        case _:
            return condition


def _is_duration(operand: Operand) -> bool:
    return isinstance(operand, Column) and (field := FIELDS.get(operand.name.lower())) is not None and field.duration


def _seconds(operand: Operand) -> Operand:
    return operand if isinstance(operand, Column) else _literal_seconds(operand)


def _literal_seconds(literal: Literal) -> Literal:
    return Literal(duration.parse(literal.value)) if isinstance(literal.value, str) else literal


def _check_many(test: _Test) -> None:
    """Refuse what makes no sense of a field that holds many: an order, or a comparison with another field."""
    named = [name for name in conditions.columns(test) if FIELDS[name].many]
    fine = isinstance(test, In | Like | IsNull) or (
        isinstance(test, Compare) and test.op in {"=", "!="} and len(conditions.columns(test)) == 1
    )
    if named and not fine:
        raise TypesDiffer(f"`{named[0]}` holds many texts.", hint="Use =, !=, IN, LIKE or IS NULL with a text.")


def _truth(condition: Condition, answers: Mapping[str, Answer], context: Context) -> bool | None:
    match condition:
        case And(parts):
            return _every([_truth(part, answers, context) for part in parts])
        case Or(parts):
            return _opposite(_every([_opposite(_truth(part, answers, context)) for part in parts]))
        case Not(inner):
            return _opposite(_truth(inner, answers, context))
        case _:
            return _one(condition, answers, context)


def _every(found: list[bool | None]) -> bool | None:
    return False if False in found else None if None in found else True


def _opposite(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _one(test: _Test, answers: Mapping[str, Answer], context: Context) -> bool | None:
    names = conditions.columns(test)
    for name in names:
        held = answers[name]
        if isinstance(held, tuple):
            return _of_many(test, name, held, context)
    if isinstance(test, In) and test.file:
        return _in_file(test, answers[test.column.name], context)
    plain: dict[str, Value] = {name: value for name in names if not isinstance(value := answers[name], tuple)}
    return conditions.truth(test, plain)


def _of_many(test: _Test, name: str, held: tuple[str, ...], context: Context) -> bool:
    if isinstance(test, IsNull):
        return (not held) != test.negated
    positive, negated = _positive(test)
    return any(_one(positive, {name: value}, context) for value in held) != negated


def _positive(test: _Test) -> tuple[_Test, bool]:
    if isinstance(test, Compare):
        return replace(test, op="="), test.op == "!="
    return (replace(test, negated=False), test.negated) if not isinstance(test, IsNull) else (test, False)


def _in_file(test: In, value: Answer, context: Context) -> bool | None:
    if value is None:
        return None
    return (str(value) in context.lists[test.file or ""]) != test.negated
