"""The `when` of a rule: read once, then asked about every submission."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from oarlock.lang import duration
from oarlock.lang import where as conditions
from oarlock.lang.rules.vocabulary import FIELDS, TYPES, FieldValue, FieldValues
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
from oarlock.model.resource import Value
from oarlock.model.submission_errors import TypesDiffer

Ask = Callable[[FieldValues], bool | None]
"""Asks a condition about a submission; `None` is unknown."""

_Test = Compare | In | Like | Between | IsNull


@dataclass(frozen=True, slots=True)
class RuleCondition:
    """A condition on a submission. A field that holds many is `=` a text if one of them is, `!=` if none is."""

    text: str
    condition: Condition
    ask: Ask = field(compare=False, repr=False)

    def holds(self, answers: FieldValues) -> bool:
        """Return whether the condition is true; unknown counts as false."""
        return self.ask(answers) is True

    @property
    def fields(self) -> frozenset[str]:
        """The fields it asks about."""
        return conditions.columns(self.condition)

    @property
    def files(self) -> frozenset[str]:
        """The files of names it asks about."""
        return frozenset(test.file for test in _tests(self.condition) if isinstance(test, In) and test.file)


def read(text: str, types: Types = TYPES) -> RuleCondition:
    """Read the condition of a rule."""
    checked = conditions.check(_in_seconds(conditions.parse(text, limits=RULE)), types)
    for test in _tests(checked):
        _check_many(test)
    return RuleCondition(text, checked, _compiled(checked))


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


def _compiled(condition: Condition) -> Ask:
    """Make a function of a condition: the same rules look at every submission."""
    match condition:
        case And(parts):
            return _all([_compiled(part) for part in parts])
        case Or(parts):
            return _not(_all([_not(_compiled(part)) for part in parts]))
        case Not(inner):
            return _not(_compiled(inner))
        case _:
            return _test(condition)


def _all(asks: list[Ask]) -> Ask:
    def every(answers: FieldValues) -> bool | None:
        result: bool | None = True
        for ask in asks:
            part = ask(answers)
            if part is False:
                return False
            result = result if part else None
        return result

    return every


def _not(ask: Ask) -> Ask:
    def opposite(answers: FieldValues) -> bool | None:
        answer = ask(answers)
        return None if answer is None else not answer

    return opposite


def _test(test: _Test) -> Ask:
    names = conditions.columns(test)
    for name in names:
        if FIELDS[name].many:
            return _of_many(test, name)
    if isinstance(test, In) and test.file:
        return _in_file(test.column.name, test.file, negated=test.negated)

    def plain(answers: FieldValues) -> bool | None:
        return conditions.truth(test, _row(names, answers))

    return plain


def _row(names: frozenset[str], answers: FieldValues) -> dict[str, Value]:
    return {name: value for name in names if not isinstance(value := answers[name], tuple)}


def _of_many(test: _Test, name: str) -> Ask:
    """Ask each of many: the condition holds if it does of one; a negated one if it does of none."""
    if isinstance(test, IsNull):
        nothing = not test.negated
        return lambda answers: (not answers[name]) == nothing
    negated = test.op == "!=" if isinstance(test, Compare) else test.negated
    if (listed := _listed(test)) is not None:
        return lambda answers: listed.isdisjoint(_many(answers[name])) == negated
    holds_for = _of_one(test, name)

    def some(answers: FieldValues) -> bool:
        return any(holds_for(value, answers) for value in _many(answers[name])) != negated

    return some


def _listed(test: _Test) -> frozenset[object] | None:
    """Return the values that the condition lists, if it lists any."""
    match test:
        case In(items=items, file=None):
            return frozenset(item.value for item in items)
        case Compare(left=Literal(wanted)) | Compare(right=Literal(wanted)):
            return frozenset({wanted})
        case _:
            return None


def _of_one(test: Compare | In | Like | Between, name: str) -> Callable[[str, FieldValues], bool]:
    """Ask about one of many, as if the condition were not negated."""
    match test:
        case In(file=str(file)):
            return lambda value, answers: value in answers.context.lists[file]
        case Like(pattern=pattern):
            return lambda value, _: conditions.like(pattern).fullmatch(value) is not None
        case _:
            raise ValueError(f"nothing to ask of one {name}")


def _many(answer: FieldValue) -> tuple[str, ...]:
    return answer if isinstance(answer, tuple) else ()


def _in_file(name: str, file: str, *, negated: bool) -> Ask:
    def listed(answers: FieldValues) -> bool | None:
        value = answers[name]
        return None if value is None else (str(value) in answers.context.lists[file]) != negated

    return listed
