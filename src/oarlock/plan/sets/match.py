"""Evaluation of a condition on all resources at once.

SQL's logic has three values, so the result is two sets: where the condition is true and where it is unknown. A
comparison is evaluated once per distinct value of its column (by `lang.where.truth`); the logic is `&` and `|` of
integers.
"""

from dataclasses import dataclass

from oarlock.lang.where import columns, truth
from oarlock.model.condition import And, Condition, Not, Or
from oarlock.model.resource import Value
from oarlock.plan.sets.bitset import without
from oarlock.plan.sets.layout import ResourceLayout, bits_at


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Where a condition is true, and where it is unknown; everywhere else it is false."""

    true: int
    unknown: int


def matching(layout: ResourceLayout, condition: Condition | None) -> int:
    """Return the resources for which a condition is true (unknown is not true); all of them without a condition.

    `UnknownProperty` if it names what resources do not have.
    """
    return layout.everything if condition is None else _match(layout, condition).true


def _match(layout: ResourceLayout, condition: Condition) -> MatchResult:
    match condition:
        case And(parts):
            return _all(layout, [_match(layout, part) for part in parts])
        case Or(parts):
            negated = [_opposite(layout, _match(layout, part)) for part in parts]
            return _opposite(layout, _all(layout, negated))
        case Not(inner):
            return _opposite(layout, _match(layout, inner))
        case _:
            return _test(layout, condition)


def _all(layout: ResourceLayout, results: list[MatchResult]) -> MatchResult:
    true, possible = layout.everything, layout.everything
    for result in results:
        true &= result.true
        possible &= result.true | result.unknown
    return MatchResult(true, possible ^ true)


def _opposite(layout: ResourceLayout, result: MatchResult) -> MatchResult:
    return MatchResult(without(layout.everything, result.true | result.unknown), result.unknown)


def _test(layout: ResourceLayout, test: Condition) -> MatchResult:
    names = sorted(columns(test))
    if len(names) == 1:
        return _by_value(layout, test, names[0])
    return _by_row(layout, test, names)


def _by_value(layout: ResourceLayout, test: Condition, name: str) -> MatchResult:
    true = unknown = 0
    for value, bits in layout.by_value(name).items():
        result = truth(test, {name: value})
        if result is None:
            unknown |= bits
        elif result:
            true |= bits
    return MatchResult(true, unknown)


def _by_row(layout: ResourceLayout, test: Condition, names: list[str]) -> MatchResult:
    """Evaluate a test row by row: it compares two columns, or only literals."""
    values_by_column = [layout.column(name) for name in names]
    positions_by_truth: dict[bool | None, list[int]] = {True: [], None: [], False: []}
    for row, at in zip(layout.rows, layout.place, strict=True):
        values: dict[str, Value] = {name: column[row] for name, column in zip(names, values_by_column, strict=True)}
        positions_by_truth[truth(test, values)].append(at)
    return MatchResult(bits_at(positions_by_truth[True]), bits_at(positions_by_truth[None]))
