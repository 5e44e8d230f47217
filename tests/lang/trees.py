"""Random conditions and rows, for every reading of a condition that must agree with the others.

Conditions are as `where.check` leaves them: known columns, values of their types. The values are few and close
together, so that comparisons come out both ways; NULL is frequent.
"""

from collections.abc import Mapping

from hypothesis import strategies as st

from oarlock.model.condition import And, Between, Column, Compare, Condition, In, IsNull, Like, Literal, Not, Or
from oarlock.model.resource import Value

TYPES: Mapping[str, type] = {"mem": int, "cores": int, "host": str, "gpu": str}

# Capitals, accents, an astral character, LIKE's own signs, quotes and a backslash: where collations and escapes differ.
ALPHABET = "abzABZ09 _%'\"\\\n-éßÉ€🜁"

texts = st.text(ALPHABET, max_size=4) | st.sampled_from(
    ["", "a", "A", "node1", "node10", "Node2", "été", "a%", "a_", "\\"]
)
patterns = st.text("abA%_\\é\n", max_size=5) | st.sampled_from(["%", "_", "", "node%", "node_", "%1%", "%\\", "%%a_"])
integers = st.integers(-3, 3) | st.sampled_from([-(2**63), -(2**53) - 1, 2**31, 2**53 + 1, 2**63 - 1])
decimals = st.sampled_from([-2.5, -0.0, 0.5, 1.0, 2.25, 99999999999999.5, 0.00001])

_OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def rows(types: Mapping[str, type] = TYPES) -> st.SearchStrategy[dict[str, Value]]:
    """Draw a row with a value, or NULL, for every column."""
    return st.fixed_dictionaries(
        {name: st.none() | (texts if kind is str else integers) for name, kind in types.items()}
    )


def conditions(types: Mapping[str, type] = TYPES, *, max_leaves: int = 12) -> st.SearchStrategy[Condition]:
    """Draw a condition over these columns."""
    return st.recursive(_terms(types), _joined, max_leaves=max_leaves)


def _joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return parts.map(And) | parts.map(Or) | inner.map(Not)


def _terms(types: Mapping[str, type]) -> st.SearchStrategy[Condition]:
    literals = st.one_of(*(st.tuples(_literals(kind), _literals(kind)) for kind in set(types.values())))
    between_literals = st.builds(lambda op, pair: Compare(op, *pair), _OPERATORS, literals)
    return st.one_of(*(_terms_on(name, types) for name in sorted(types)), between_literals)


def _terms_on(name: str, types: Mapping[str, type]) -> st.SearchStrategy[Condition]:
    kind, column = types[name], st.just(Column(name))
    literal, negated = _literals(kind), st.booleans()
    fellow = st.sampled_from([Column(other) for other, its in sorted(types.items()) if its is kind])
    terms: list[st.SearchStrategy[Condition]] = [
        st.builds(Compare, _OPERATORS, column, literal | fellow),
        st.builds(Compare, _OPERATORS, literal, column),
        st.builds(In, column, st.lists(literal, min_size=1, max_size=4).map(tuple), negated),
        st.builds(Between, column, literal, literal, negated),
        st.builds(IsNull, column, negated),
    ]
    if kind is str:
        terms.append(st.builds(Like, column, patterns, negated))
    return st.one_of(terms)


def _literals(kind: type) -> st.SearchStrategy[Literal]:
    return (texts if kind is str else integers | decimals).map(Literal)
