"""A condition on resources or jobs, as a tree: what `-p`, `{…}`, `--sql` and admission rules say.

Written by `lang.where`, read three ways: on one row (`lang.where.truth`), on all resources at once
(`plan.sets.selection`), and as bound SQL (`store.queries.cluster.condition_sql`). The logic is SQL's: a comparison with
nothing is neither true nor false.
"""

from collections.abc import Iterable

from msgspec import Struct


class Column(Struct, frozen=True):
    """A property, by name."""

    name: str


class Literal(Struct, frozen=True):
    """A number or a text."""

    value: int | float | str


Operand = Column | Literal


class Compare(Struct, frozen=True):
    """`left op right`, with op one of = != < <= > >= (`<>` is read as `!=`)."""

    op: str
    left: Operand
    right: Operand


class In(Struct, frozen=True):
    """`column [NOT] IN (…)`, or in admission rules `column [NOT] IN FILE '…'`: a file with one text a line."""

    column: Column
    items: tuple[Literal, ...]
    negated: bool = False
    file: str | None = None


class Like(Struct, frozen=True):
    """`column [NOT] LIKE 'pattern'`; `%` any run, `_` one character, case matters."""

    column: Column
    pattern: str
    negated: bool = False


class Between(Struct, frozen=True):
    """`column [NOT] BETWEEN low AND high`, both ends included."""

    column: Column
    low: Literal
    high: Literal
    negated: bool = False


class IsNull(Struct, frozen=True):
    """`column IS [NOT] NULL`."""

    column: Column
    negated: bool = False


class Not(Struct, frozen=True):
    """`NOT condition`."""

    condition: "Condition"


class And(Struct, frozen=True):
    """All of them."""

    parts: tuple["Condition", ...]


class Or(Struct, frozen=True):
    """At least one of them."""

    parts: tuple["Condition", ...]


Condition = Compare | In | Like | Between | IsNull | Not | And | Or


def both(first: Condition | None, second: Condition | None) -> Condition | None:
    """Join two conditions that must both hold; trees are joined, never texts, so precedence cannot slip.

    A condition that is there already is not added again: a job that is submitted again meets the same rules.
    """
    if first is None or second is None:
        return first or second
    return first if second in conjuncts(first) else And((first, second))


def conjuncts(condition: Condition | None) -> list[Condition]:
    """Return the conditions that must all hold, however deep they are nested."""
    if condition is None:
        return []
    if not isinstance(condition, And):
        return [condition]
    return [inner for part in condition.parts for inner in conjuncts(part)]


def without(condition: Condition | None, left_out: Iterable[Condition]) -> Condition | None:
    """Return a condition without those of its conjuncts that are to be left out."""
    unwanted = list(left_out)
    kept = [part for part in conjuncts(condition) if part not in unwanted]
    if len(kept) > 1:
        return And(tuple(kept))
    return kept[0] if kept else None
