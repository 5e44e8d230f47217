"""Texts of rules with `{field}` in them: checked when the rule is read, filled when it applies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from oarlock.lang import duration
from oarlock.lang.rules.vocabulary import FIELDS, FieldValue, FieldValues
from oarlock.model.condition import And, Between, Column, Compare, Condition, In, Like, Literal, Not, Operand, Or

_PLACE = re.compile(r"\{([A-Za-z_]*)\}")
_SITE = ("default_walltime", "default_walltime_seconds", "walltime_seconds")
PLACES = frozenset({name for name, field in FIELDS.items() if not field.many} | set(_SITE))


class TemplateValues:
    """The texts of placeholders for a submission: walltimes as h:mm:ss, missing values as empty texts."""

    __slots__ = ("_answers", "_more")

    def __init__(self, answers: FieldValues, more: Mapping[str, str] | None = None) -> None:
        self._answers, self._more = answers, more or {}

    def __call__(self, name: str) -> str:
        """Return the text for a placeholder."""
        context = self._answers.context
        match name:
            case "default_walltime":
                return duration.show(context.default_walltime)
            case "default_walltime_seconds":
                return str(context.default_walltime)
            case "walltime_seconds":
                return _text(self._answers["walltime"])
            case _:
                return self._more[name] if name in self._more else self._field(name)

    def _field(self, name: str) -> str:
        answer = self._answers[name]
        return duration.show(answer) if FIELDS[name].duration and isinstance(answer, int) else _text(answer)


def _text(answer: FieldValue) -> str:
    return "" if answer is None else str(answer)


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders."""

    text: str

    def filled(self, values: TemplateValues) -> str:
        """Return the text with every placeholder filled; placeholders inside values are left alone."""
        return _PLACE.sub(lambda match: values(match[1]), self.text) if "{" in self.text else self.text

    def unknown(self, more: frozenset[str] = frozenset()) -> str | None:
        """Return the first unknown placeholder; None if there is none."""
        return next((name for name in _PLACE.findall(self.text) if name not in PLACES | more), None)


def fill(condition: Condition, values: TemplateValues) -> Condition:
    """Fill the places in the texts of a condition: values stay values, whatever they say."""
    fill_part = partial(fill, values=values)
    match condition:
        case And(parts) | Or(parts):
            return replace(condition, parts=tuple(map(fill_part, parts)))
        case Not(inner):
            return Not(fill_part(inner))
        case Compare(op, left, right):
            return Compare(op, _operand(left, values), _operand(right, values))
        case In(items=items):
            return replace(condition, items=tuple(_literal(item, values) for item in items))
        case Like(pattern=pattern):
            return replace(condition, pattern=Template(pattern).filled(values))
        case Between(low=low, high=high):
            return replace(condition, low=_literal(low, values), high=_literal(high, values))
        case _:
            return condition


def _operand(operand: Operand, values: TemplateValues) -> Operand:
    return operand if isinstance(operand, Column) else _literal(operand, values)


def _literal(literal: Literal, values: TemplateValues) -> Literal:
    return Literal(Template(literal.value).filled(values)) if isinstance(literal.value, str) else literal
