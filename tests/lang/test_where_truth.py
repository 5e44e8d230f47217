"""What a condition says of one row."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.lang import where
from oarlock.model.condition import And, Not, Or
from tests.lang.trees import conditions, patterns, rows, texts

ROW = {"mem": 64, "cores": None, "host": "node10", "gpu": None}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("mem = 64", True),
        ("mem != 64", False),
        ("mem < 64.5", True),
        ("65 <= mem", False),
        ("mem > 63", True),
        ("mem >= 65", False),
        ("cores = 1", None),
        ("mem = cores", None),
        ("host = gpu", None),
        ("mem in (1, 64)", True),
        ("mem in (1, 64.0)", True),
        ("mem not in (1, 64)", False),
        ("cores in (1)", None),
        ("cores not in (1)", None),
        ("mem between 64 and 64", True),
        ("mem not between 1 and 2", True),
        ("mem between 65 and 63", False),
        ("cores between 1 and 2", None),
        ("host like 'node%'", True),
        ("host like 'NODE%'", False),
        ("host not like 'node_'", True),
        ("gpu not like '%'", None),
        ("gpu is null", True),
        ("gpu is not null", False),
        ("host is null", False),
        ("host is not null", True),
        ("host < 'node9'", True),
        ("host > 'Z'", True),
        ("'a' = 'a'", True),
        # A NULL decides only where the other side does not.
        ("cores = 1 and mem = 64", None),
        ("cores = 1 and mem = 65", False),
        ("mem = 65 and cores = 1", False),
        ("mem = 64 and host = 'node10'", True),
        ("cores = 1 or mem = 64", True),
        ("cores = 1 or mem = 65", None),
        ("mem = 65 or mem = 66", False),
        ("not cores = 1", None),
        ("not mem = 64", False),
        ("not mem = 65", True),
    ],
)
def test_a_row_fulfils_a_condition_as_sql_says(text, answer):
    assert where.truth(where.parse(text), ROW) is answer


@given(conditions(), conditions(), rows())
def test_not_turns_and_into_or(one, other, row):
    assert where.truth(Not(And((one, other))), row) is where.truth(Or((Not(one), Not(other))), row)


@given(conditions(), rows())
def test_only_what_is_compared_with_nothing_is_unknown(condition, row):
    read = {row[name] for name in where.columns(condition)}
    assert where.truth(condition, row) is not None or None in read


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%", "a\nb", True),
        ("_", "\n", True),
        ("_", "", False),
        ("a%a", "a", False),
        ("a%b%c", "aXbXbXc", True),
        ("%ab%b", "aab", False),
        ("%a_c%", "xxabcxx", True),
        ("a\\%", "a\\bc", True),
        ("a\\%", "a%", False),
        ("a.c", "abc", False),
        ("é_", "éé", True),
        ("_", "🜁", True),
    ],
)
def test_like_knows_two_signs_and_no_escape(pattern, text, fits):
    assert (where.like(pattern).fullmatch(text) is not None) is fits


def plain_like(pattern: str, text: str) -> bool:
    """Say the same in the slowest and simplest way."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(plain_like(pattern[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and plain_like(pattern[1:], text[1:])


@given(patterns, texts | st.text("abA%_\\é\n", max_size=8))
def test_like_agrees_with_its_definition(pattern, text):
    assert (where.like(pattern).fullmatch(text) is not None) is plain_like(pattern, text)


def test_a_nasty_pattern_takes_no_longer_than_others():
    before = time.process_time()
    assert where.like("%a" * 1000 + "%b").fullmatch("a" * 4000) is None
    assert time.process_time() - before < 1
