"""Conditions: text → tree → text."""

import pytest
from hypothesis import given

from oarlock.lang import where
from oarlock.model.condition import And, Between, Column, Compare, In, IsNull, Like, Literal, Not, Or, both
from oarlock.model.errors import SyntaxRefused, TooLong
from tests.lang.trees import conditions

A, B, C = (Compare("=", Column(name), Literal(1)) for name in "abc")


def refused(text, **limits):
    with pytest.raises(SyntaxRefused) as refusal:
        where.parse(text, **limits)
    return refusal.value


@pytest.mark.manual(37)
@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", A),
        ("a=1", A),
        (" a\n=\t1 ", A),
        ("a != 1", Compare("!=", Column("a"), Literal(1))),
        ("a <> 1", Compare("!=", Column("a"), Literal(1))),
        ("a <= -1", Compare("<=", Column("a"), Literal(-1))),
        ("1.5 >= a", Compare(">=", Literal(1.5), Column("a"))),
        ("a < b", Compare("<", Column("a"), Column("b"))),
        ("host > 'it''s'", Compare(">", Column("host"), Literal("it's"))),
        ("host = ''", Compare("=", Column("host"), Literal(""))),
        ('"in" = 1', Compare("=", Column("in"), Literal(1))),
        ('"a ""b"" c" = 1', Compare("=", Column('a "b" c'), Literal(1))),
        ("a in (1,'x', 2.5)", In(Column("a"), (Literal(1), Literal("x"), Literal(2.5)))),
        ("a Not In (1)", In(Column("a"), (Literal(1),), negated=True)),
        ("a like 'x%'", Like(Column("a"), "x%")),
        ("a NOT LIKE '_\\%'", Like(Column("a"), "_\\%", negated=True)),
        ("a between 1 and 2 and b = 1", And((Between(Column("a"), Literal(1), Literal(2)), B))),
        ("a not between 1 and 2", Between(Column("a"), Literal(1), Literal(2), negated=True)),
        ("a is null", IsNull(Column("a"))),
        ("a IS NOT NULL", IsNull(Column("a"), negated=True)),
        ("not a = 1", Not(A)),
        ("not not a = 1", Not(Not(A))),
        ("a = 1 or b = 1 and c = 1", Or((A, And((B, C))))),
        ("(a = 1 or b = 1) and c = 1", And((Or((A, B)), C))),
        ("not a = 1 and b = 1", And((Not(A), B))),
        ("not (a = 1 and b = 1)", Not(And((A, B)))),
        ("a = 1 and b = 1 and c = 1", And((A, B, C))),
        ("a = 1 and (b = 1 and c = 1)", And((A, And((B, C))))),
        ("((a = 1))", A),
        ("a = 9223372036854775807", Compare("=", Column("a"), Literal(2**63 - 1))),
        ("a = -9223372036854775808", Compare("=", Column("a"), Literal(-(2**63)))),
        ("a = 0", Compare("=", Column("a"), Literal(0))),
        ("a = 0.00001", Compare("=", Column("a"), Literal(0.00001))),
    ],
)
def test_a_condition_is_read_as_sql_reads_it(text, tree):
    assert where.parse(text) == tree
    assert where.parse(where.show(tree)) == tree


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(gpu='YES'or Mem<>64)and not(host  in('a','b'))", "(gpu = 'YES' OR Mem != 64) AND NOT host IN ('a', 'b')"),
        ("((a=1) or (b=2 and c=3))", "a = 1 OR b = 2 AND c = 3"),
        ('"mem" >= 64 and "Order by" is not null', 'mem >= 64 AND "Order by" IS NOT NULL'),
        ("x not like 'it''s%' or y not between 0.00001 and 2", "x NOT LIKE 'it''s%' OR y NOT BETWEEN 0.00001 AND 2"),
        ("a=1 or (b=2 or c=3)", "a = 1 OR (b = 2 OR c = 3)"),
    ],
)
def test_the_shown_text_stays_recognisable(text, shown):
    assert where.show(where.parse(text)) == shown


@given(conditions())
def test_a_tree_that_was_written_is_read_as_itself(tree):
    assert where.parse(where.show(tree), limits=where.STORED) == tree


@given(conditions())
def test_what_was_shown_once_is_shown_the_same_again(tree):
    text = where.show(tree)
    assert where.show(where.parse(text, limits=where.STORED)) == text


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("", 0, "a property, a text in single quotes or a number"),
        ("not", 3, "a property, a text in single quotes or a number"),
        ("a = 1 and", 9, "a property, a text in single quotes or a number"),
        ("a", 1, "a comparison (= != < <= > >=), IN, LIKE, BETWEEN or IS"),
        ("1", 1, "a comparison (= != < <= > >=)"),
        ("1 in (2)", 2, "a comparison (= != < <= > >=)"),
        ("a = 1 b", 6, "AND, OR or the end"),
        ("a = 1)", 5, "AND, OR or the end"),
        ("a = 1}", 5, "AND, OR or the end"),
        ("(a = 1", 6, "AND, OR or `)`"),
        ("a not = 1", 6, "IN, LIKE or BETWEEN"),
        ("a is 3", 5, "NULL or NOT NULL"),
        ("a is not 3", 9, "NULL"),
        ("a in 3", 5, "`(` and a list"),
        ("a in ()", 6, "a text in single quotes or a number"),
        ("a in (1", 7, "`,` or `)`"),
        ("a like 3", 7, "a pattern in single quotes"),
        ("a between 1 or 2", 12, "AND and the upper bound"),
        ("a between b and 2", 10, "a text in single quotes or a number"),
        ("a = 007", 4, "a number without leading zeros"),
        ("a = 00.5", 4, "a number without leading zeros"),
        ("a = 9223372036854775808", 4, "an integer from -9223372036854775808 to 9223372036854775807"),
        ("a = 99999999999999999999", 4, "an integer from -9223372036854775808 to 9223372036854775807"),
        ("a = 1.234567890123456", 4, "a decimal of at most 15 digits"),
        ("a = 'x\0'", 6, "a character that a database can hold"),
        ("a = '\udc80'", 5, "a character that a database can hold"),
        ('"x\0" = 1', 2, "a character that a database can hold"),
        ("mem > 64GB", 8, "AND, OR or the end"),
    ],
)
def test_a_mistake_is_shown_at_its_place(text, at, expected):
    refusal = refused(text)
    assert (refusal.text, refusal.at, refusal.expected) == (text, at, expected)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a == 1", "One `=` compares."),
        ("a = 1 && b = 1", "Write AND."),
        ("a = 1 || b = 1", "Write OR."),
        ("! a = 1", "Write NOT, or != for `differs from`."),
        ("mem=16; drop table jobs", "A condition is not a statement: it has no semicolon."),
        ("a = 1 -- b", "A condition has no comments."),
        ("a = 1 /* b */", "A condition has no comments."),
        ("lower(a) = 'x'", "A condition has no functions."),
        ("a in (x)", "A text takes single quotes: 'x'."),
        ('a in ("x")', "A text takes single quotes: 'x'."),
        ("a = “x”", "A text takes single quotes: 'like this'."),
        ("a = 'x", "This quote is never closed; a quote inside a text is written twice: 'it''s'."),
        ('a = ""', "This quote is never closed, or holds no name; an empty text is ''."),
        ("a = null", "Nothing is equal to NULL: write IS NULL or IS NOT NULL."),
        ("a = 007", "As a text it would be '007'."),
        ("a in (select b from c)", "A text takes single quotes: 'select'."),
        ("a = 1 ~ 2", ""),
    ],
)
def test_a_habit_from_elsewhere_is_answered_with_what_is_written_here(text, hint):
    assert refused(text).hint == hint


def test_the_picture_has_the_caret_under_the_mistake():
    assert refused("gpu = 'YES' AND mem == 64").full_text() == (
        "Cannot read the condition at `==`: expected a comparison (= != < <= > >=).\n"
        "  gpu = 'YES' AND mem == 64\n"
        "                      ^\n"
        "  One `=` compares."
    )


def test_blank_text_and_text_that_stops_are_told_apart():
    assert str(refused("  ")).startswith("There is no condition: ")
    assert str(refused(" a")).startswith("The condition ends too early: ")


def test_what_is_named_in_a_sentence_is_short_and_printable():
    assert "at `\\x1b`" in str(refused("a = \x1b[31m"))
    assert f"at `'{'x' * 38}…`" in str(refused(f"a = 1 '{'x' * 99}'"))


def test_limits_are_reached_and_not_passed():
    deep = "(" * 32 + "a = 1" + ")" * 32
    assert where.parse(deep) == A
    with pytest.raises(TooLong, match="more than 32 deep"):
        where.parse(f"({deep})")
    with pytest.raises(TooLong, match="more than 32 deep"):
        where.parse("not " * 33 + "a = 1")
    assert where.parse("or".join(["(a=1)"] * 256)) == Or((A,) * 256)
    with pytest.raises(TooLong, match="more than 256 comparisons"):
        where.parse("or".join(["(a=1)"] * 257))
    assert where.parse(f"a in ({','.join('1' * 1000)})") == In(Column("a"), (Literal(1),) * 1000)
    with pytest.raises(TooLong, match="has 1001 values; at most 1000"):
        where.parse(f"a in ({','.join('1' * 1001)})")


def test_depth_is_counted_along_one_branch_only():
    assert where.parse(" or ".join(["not a=1"] * 100)) == Or((Not(A),) * 100)


def test_length_is_counted_in_bytes():
    text = f"a = '{'é' * 2045}'"
    assert where.parse(text) == Compare("=", Column("a"), Literal("é" * 2045))
    with pytest.raises(TooLong, match="is 4097 bytes long; at most 4096"):
        where.parse(text + " ")
    with pytest.raises(TooLong, match="is 4097 bytes long; at most 4096"):
        where.parse(f"a = '{'x' * 4091}'")


def test_conditions_that_were_joined_can_be_stored_and_read_again():
    typed = where.parse("not(" * 15 + "(a=1)or" * 255 + "(a=1)" + ")" * 15)
    joined = typed
    for _ in range(8):
        joined = both(joined, Not(typed)) or joined
    assert where.parse(where.show(joined), limits=where.STORED) == joined
