"""The condition language of `-p`, `{…}`, `--sql` and admission rules: text ⇄ tree, and what a tree says of one row.

A small part of SQL's WHERE: `= != <> < <= > >= AND OR NOT IN LIKE BETWEEN IS [NOT] NULL`, parentheses, texts and
numbers.
"""

from oarlock.lang.where.check import OPERATORS, Types, check, columns, known_column, like, truth
from oarlock.lang.where.parse import RULE, STORED, TYPED, ConditionLimits, parse, parse_braced, show

__all__ = [
    "OPERATORS",
    "RULE",
    "STORED",
    "TYPED",
    "ConditionLimits",
    "Types",
    "check",
    "columns",
    "known_column",
    "like",
    "parse",
    "parse_braced",
    "show",
    "truth",
]
