"""A condition cut into tokens, and what to say of a token that has no place in one."""

import re
from typing import NamedTuple

KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL"})

INTEGERS = range(-(2**63), 2**63)
"""What a column of either database can hold."""

INTEGER_DIGITS = 19
"""More are never turned into a number: that takes time."""

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<text>'(?:[^']++|'')*+')
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?)
    | (?P<op>==|<=|>=|<>|!=|=|<|>)
    | (?P<mark>[(),}])
    | (?P<quoted>"(?:[^"]++|"")++")
    | (?P<stray>&&|\|\||--|/\*|.)
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)

_LAST = frozenset({"}", "stray"})

_SINGLE = "A text takes single quotes: 'like this'."
_NO_COMMENT = "A condition has no comments."

HINTS = {
    "==": "One `=` compares.",
    "&&": "Write AND.",
    "||": "Write OR.",
    "!": "Write NOT, or != for `differs from`.",
    ";": "A condition is not a statement: it has no semicolon.",
    "--": _NO_COMMENT,
    "/*": _NO_COMMENT,
    "#": _NO_COMMENT,
    "'": "This quote is never closed; a quote inside a text is written twice: 'it''s'.",
    '"': "This quote is never closed, or holds no name; an empty text is ''.",
    "‘": _SINGLE,
    "’": _SINGLE,
    "“": _SINGLE,
    "”": _SINGLE,
    "`": "A name needs no quotes, or double ones.",
    "NULL": "Nothing is equal to NULL: write IS NULL or IS NOT NULL.",
}
"""What a person who wrote this probably meant, by the token as written (keywords in capitals)."""


class ConditionToken(NamedTuple):
    """A piece of a condition.

    The kind is `name`, `quoted`, `text`, `number`, `op`, `stray`, `end`, or the keyword (in capitals) or mark itself.
    """

    kind: str
    written: str
    at: int


def cut(text: str, begin: int) -> list[ConditionToken]:
    """Cut a text from `begin` on; the last token is always the end, a closing brace, or something strange."""
    tokens = []
    for match in _TOKEN.finditer(text, begin):
        kind = match.lastgroup or "end"
        written = match[kind]
        if kind == "name" and (upper := written.upper()) in KEYWORDS:
            kind = upper
        elif kind == "mark":
            kind = written
        tokens.append(ConditionToken(kind, written, match.end() - len(written)))
        if kind in _LAST:
            break
    return tokens
