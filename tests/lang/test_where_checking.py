"""Conditions held against the columns there are."""

import pytest
from hypothesis import given

from oarlock.lang import where
from oarlock.model.submission_errors import TypesDiffer, UnknownProperty
from tests.lang.trees import TYPES, conditions


def checked(text):
    return where.show(where.check(where.parse(text), TYPES))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("mem = '64'", "mem = 64"),
        ("'-064' < mem", "-64 < mem"),
        ("mem > 1.5", "mem > 1.5"),
        ("host = 12", "host = '12'"),
        ("12 = host", "'12' = host"),
        ("MEM in ('1', 2, 2.5)", "mem IN (1, 2, 2.5)"),
        ("Host not in (1, 'a')", "host NOT IN ('1', 'a')"),
        ("mem between '1' and 2.5", "mem BETWEEN 1 AND 2.5"),
        ("host between 1 and 'b'", "host BETWEEN '1' AND 'b'"),
        ("GPU like 'Y%'", "gpu LIKE 'Y%'"),
        ("Cores is not null", "cores IS NOT NULL"),
        ("Mem < CORES", "mem < cores"),
        ("not (HOST = GPU or 1 = 1.0 and 'a' < 'b')", "NOT (host = gpu OR 1 = 1.0 AND 'a' < 'b')"),
        ("mem = '9223372036854775807'", "mem = 9223372036854775807"),
    ],
)
def test_names_take_the_columns_spelling_and_values_its_type(text, same):
    assert checked(text) == same


@given(conditions())
def test_a_condition_that_fits_is_left_as_it_is(tree):
    assert where.check(tree, TYPES) == tree


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("memory = 1", "There is no property `memory`.\n  Did you mean `mem`?"),
        ("bogus = 1", "There is no property `bogus`.\n  Known are cores, gpu, host, mem."),
        ('gpu = "YES"', "There is no property `YES`.\n  If it is a text, write it in single quotes: 'YES'."),
        ("gpu = yes", "There is no property `yes`.\n  If it is a text, write it in single quotes: 'yes'."),
        ("not hosts in ('a')", "There is no property `hosts`.\n  Did you mean `host`?"),
    ],
)
def test_an_unknown_column_is_refused_with_what_was_probably_meant(text, told):
    with pytest.raises(UnknownProperty) as refusal:
        checked(text)
    assert refusal.value.full_text() == told


def test_of_many_columns_only_the_first_are_listed():
    with pytest.raises(UnknownProperty) as refusal:
        where.known_column("zzzz", {f"p{number:02}": int for number in range(20)})
    assert refusal.value.hint == "Known are p00, p01, p02, p03, p04, p05, p06, p07, p08, p09, p10, p11 and 8 more."


def test_a_column_that_differs_only_in_capitals_loses_to_the_exact_one():
    assert where.known_column("MEM", {"mem": int, "MEM": str}) == "MEM"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mem = 'big'", "`mem` holds integers; 'big' is none.\n  Compare it with a whole number."),
        ("mem = '1.5'", "`mem` holds integers; '1.5' is none.\n  Compare it with a whole number."),
        ("mem = '٣'", "`mem` holds integers; '٣' is none.\n  Compare it with a whole number."),
        (
            "mem = '9223372036854775808'",
            "`mem` holds integers; '9223372036854775808' is none.\n  Compare it with a whole number.",
        ),
        ("host = 1.5", "`host` holds texts; 1.5 is a number.\n  As a text it is '1.5'."),
        ("mem like '6%'", "`mem` holds integers; LIKE is for texts.\n  Use =, <, >, IN or BETWEEN."),
        (
            "mem = host",
            "`mem` holds integers; `host` holds texts.\n  Compare integers with integers, texts with texts.",
        ),
        ("1 = 'a'", "1 is a number; 'a' is a text.\n  Compare integers with integers, texts with texts."),
    ],
)
def test_values_of_another_type_are_refused(text, told):
    with pytest.raises(TypesDiffer) as refusal:
        checked(text)
    assert refusal.value.full_text() == told


def test_the_columns_of_a_condition_are_all_found():
    text = "a = 1 and (b in (1) or not c like 'x') and d between 1 and 2 and e is null and f = g and 1 = 1 and a = 2"
    assert where.columns(where.parse(text)) == frozenset("abcdefg")
    assert where.columns(where.parse("1 = 1")) == frozenset()
