"""A condition on resources or jobs, as a tree: what `-p`, `{…}`, `--sql` and admission rules say.

Written by `lang.where`, read three ways: on one row (`lang.where.truth`), on all resources at once (`plan.match`), and
as bound SQL (`store.where`). The logic is SQL's: a comparison with nothing is neither true nor false.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A property, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a text."""

    value: int | float | str


Operand = Column | Literal


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right`, with op one of = != < <= > >= (`<>` is read as `!=`)."""

    op: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    """`column [NOT] IN (…)`, or in admission rules `column [NOT] IN FILE '…'`: a file with one text a line."""

    column: Column
    items: tuple[Literal, ...]
    negated: bool = False
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Like:
    """`column [NOT] LIKE 'pattern'`; `%` any run, `_` one character, case matters."""

    column: Column
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """`column [NOT] BETWEEN low AND high`, both ends included."""

    column: Column
    low: Literal
    high: Literal
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS [NOT] NULL`."""

    column: Column
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT condition`."""

    condition: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of them."""

    parts: tuple["Condition", ...]


Condition = Compare | In | Like | Between | IsNull | Not | And | Or


def both(first: Condition | None, second: Condition | None) -> Condition | None:
    """Join two conditions that must both hold; trees are joined, never texts, so precedence cannot slip."""
    if first is None or second is None:
        return first or second
    return And((first, second))
