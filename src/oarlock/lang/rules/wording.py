"""Texts of rules with `{field}` in them: checked when the rule is read, filled when it applies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from oarlock.lang import duration
from oarlock.lang.rules.vocabulary import FIELDS, Answer, Context
from oarlock.model.condition import And, Between, Column, Compare, Condition, In, Like, Literal, Not, Operand, Or

_PLACE = re.compile(r"\{([A-Za-z_]*)\}")
_SITE = ("default_walltime", "default_walltime_seconds", "walltime_seconds")
PLACES = frozenset({name for name, field in FIELDS.items() if not field.many} | set(_SITE))


@dataclass(frozen=True, slots=True)
class Wording:
    """A text with places to fill."""

    text: str

    def filled(self, values: Mapping[str, str]) -> str:
        """Give the text with every place filled; what a value itself says is never looked at."""
        return _PLACE.sub(lambda found: values.get(found[1], found[0]), self.text)

    def unknown(self, more: frozenset[str] = frozenset()) -> str | None:
        """Give the first place that has no meaning; none if all are good."""
        return next((name for name in _PLACE.findall(self.text) if name not in PLACES | more), None)


def values(answers: Mapping[str, Answer], context: Context) -> dict[str, str]:
    """Give what each place says for a submission; walltimes as h:mm:ss, what is not given as nothing."""
    filled = {name: _said(name, answers[name]) for name in PLACES if name in answers}
    walltime = answers["walltime"]
    return filled | {
        "walltime_seconds": "" if walltime is None else str(walltime),
        "default_walltime": duration.show(context.default_walltime),
        "default_walltime_seconds": str(context.default_walltime),
    }


def _said(name: str, answer: Answer) -> str:
    if answer is None:
        return ""
    return duration.show(answer) if FIELDS[name].duration and isinstance(answer, int) else str(answer)


def fill(condition: Condition, said: Mapping[str, str]) -> Condition:
    """Fill the places in the texts of a condition: values stay values, whatever they say."""
    one = partial(fill, said=said)
    match condition:
        case And(parts) | Or(parts):
            return replace(condition, parts=tuple(map(one, parts)))
        case Not(inner):
            return Not(one(inner))
        case Compare(op, left, right):
            return Compare(op, _operand(left, said), _operand(right, said))
        case In(items=items):
            return replace(condition, items=tuple(_literal(item, said) for item in items))
        case Like(pattern=pattern):
            return replace(condition, pattern=Wording(pattern).filled(said))
        case Between(low=low, high=high):
            return replace(condition, low=_literal(low, said), high=_literal(high, said))
        case _:
            return condition


def _operand(operand: Operand, said: Mapping[str, str]) -> Operand:
    return operand if isinstance(operand, Column) else _literal(operand, said)


def _literal(literal: Literal, said: Mapping[str, str]) -> Literal:
    return Literal(Wording(literal.value).filled(said)) if isinstance(literal.value, str) else literal
