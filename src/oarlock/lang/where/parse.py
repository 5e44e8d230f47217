"""Text ⇄ condition: tokens, then precedence (OR, AND, NOT, one comparison or test); and back in one form."""

import re
from dataclasses import dataclass
from decimal import Decimal
from types import UnionType
from typing import NamedTuple

from oarlock.lang.limits import TYPED_BYTES, fits, short
from oarlock.model.condition import (
    And,
    Between,
    Column,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
)
from oarlock.model.errors import SyntaxRefused, TooLong

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


@dataclass(frozen=True, slots=True)
class ConditionLimits:
    """How large a condition may be; terms are its comparisons and tests. `files`: it may say `IN FILE '…'`."""

    bytes: int
    depth: int
    terms: int
    items: int
    files: bool = False


TYPED = ConditionLimits(bytes=TYPED_BYTES, depth=32, terms=256, items=1000)
"""For what a person sends."""

STORED = ConditionLimits(bytes=16 * TYPED_BYTES, depth=96, terms=4096, items=1000)
"""For what we wrote ourselves with `show`: a typed condition joined with those of the site's rules."""

RULE = ConditionLimits(bytes=4 * TYPED_BYTES, depth=32, terms=256, items=1000, files=True)
"""For what an administrator writes in an admission rule."""

_LITERAL = "a text in single quotes or a number"
_OPERAND = f"a property, {_LITERAL}"
_COMPARISON = "a comparison (= != < <= > >=)"
_TEST = "a comparison (= != < <= > >=), IN, LIKE, BETWEEN or IS"
_DECIMAL_DIGITS = 15  # a double holds as many exactly, so that Python and both databases compare alike
# Databases store neither NUL nor half a character.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def parse(text: str, *, limits: ConditionLimits = TYPED) -> Condition:
    """Read a condition. Names and types of columns are not looked at: that is `check`."""
    fits(text, what="condition", most=limits.bytes)
    return _Parser(text, 0, limits).whole("end")


def parse_braced(text: str, begin: int) -> tuple[Condition, int]:
    """Read a condition that a brace opened just before `begin`; give also the place behind the closing brace.

    Mistakes are shown in the whole text. Its length is for the caller to bound.
    """
    parser = _Parser(text, begin, TYPED)
    return parser.whole("}"), parser.token.at + 1


class _Parser:
    """One pass over the tokens of one condition; `token` is the next one to be read."""

    __slots__ = ("depth", "index", "limits", "terms", "text", "token", "tokens")

    def __init__(self, text: str, begin: int, limits: ConditionLimits) -> None:
        self.text, self.limits = text, limits
        self.tokens = cut(text, begin)
        self.token = self.tokens[0]
        self.index = self.depth = self.terms = 0

    def whole(self, end: str) -> Condition:
        condition = self.any_of()
        if self.token.kind != end:
            raise self.refused("AND, OR or the end" if end == "end" else f"AND, OR or `{end}`")
        return condition

    def any_of(self) -> Condition:
        parts = [self.all_of()]
        while self.took("OR"):
            parts.append(self.all_of())
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def all_of(self) -> Condition:
        parts = [self.factor()]
        while self.took("AND"):
            parts.append(self.factor())
        return And(tuple(parts)) if len(parts) > 1 else parts[0]

    def factor(self) -> Condition:
        kind = self.token.kind
        if kind == "NOT":
            self.deeper()
            condition: Condition = Not(self.factor())
        elif kind == "(":
            self.deeper()
            condition = self.any_of()
            self.take(")", "AND, OR or `)`")
        else:
            return self.term()
        self.depth -= 1
        return condition

    def deeper(self) -> None:
        self.advance()
        self.depth += 1
        if self.depth > self.limits.depth:
            raise TooLong(
                f"The condition nests parentheses and NOTs more than {self.limits.depth} deep.",
                hint="Drop the parentheses that change nothing: AND binds tighter than OR.",
            )

    def term(self) -> Condition:
        self.terms += 1
        if self.terms > self.limits.terms:
            raise TooLong(
                f"The condition makes more than {self.limits.terms} comparisons.",
                hint="`property IN (…)` holds many values in one.",
            )
        left = self.operand()
        if self.token.kind == "op":
            return self.comparison(left)
        if isinstance(left, Column):
            return self.test(left)
        raise self.refused(_COMPARISON)

    def comparison(self, left: Operand) -> Condition:
        operator = self.token.written
        if operator == "==":
            raise self.refused(_COMPARISON)
        self.advance()
        return Compare("!=" if operator == "<>" else operator, left, self.operand())

    def test(self, column: Column) -> Condition:
        if self.took("IS"):
            negated = self.took("NOT")
            self.take("NULL", "NULL" if negated else "NULL or NOT NULL")
            return IsNull(column, negated)
        negated = self.took("NOT")
        if self.took("IN"):
            file = self.file()
            return In(column, () if file else self.items(), negated, file)
        if self.took("LIKE"):
            return Like(column, self.pattern(), negated)
        if self.took("BETWEEN"):
            low = self.literal()
            self.take("AND", "AND and the upper bound")
            return Between(column, low, self.literal(), negated)
        raise self.refused("IN, LIKE or BETWEEN" if negated else _TEST)

    def items(self) -> tuple[Literal, ...]:
        self.take("(", "`(` and a list")
        items = [self.literal()]
        while self.took(","):
            items.append(self.literal())
        self.take(")", "`,` or `)`")
        if len(items) > self.limits.items:
            raise TooLong(
                f"A list of the condition has {len(items)} values; at most {self.limits.items} are read.",
                hint="LIKE and BETWEEN name many values at once.",
            )
        return tuple(items)

    def file(self) -> str | None:
        """Read `FILE '…'` where a rule may say it; nothing if a list follows instead."""
        if not self.limits.files or (self.token.kind, self.token.written.upper()) != ("name", "FILE"):
            return None
        self.advance()
        if self.token.kind != "text" or not self.token.written.startswith("'/"):
            raise self.refused("an absolute path in single quotes")
        return self.unquoted()

    def pattern(self) -> str:
        if self.token.kind != "text":
            raise self.refused("a pattern in single quotes")
        return self.unquoted()

    def operand(self) -> Operand:
        kind = self.token.kind
        if kind == "name":
            return Column(self.advance().written)
        if kind == "quoted":
            return Column(self.unquoted())
        return self.literal(_OPERAND)

    def literal(self, expected: str = _LITERAL) -> Literal:
        kind = self.token.kind
        if kind == "text":
            return Literal(self.unquoted())
        if kind == "number":
            return Literal(self.number())
        raise self.refused(expected)

    def unquoted(self) -> str:
        written, at = self.token.written, self.token.at
        if unstorable := _UNSTORABLE.search(written):
            raise self.refused("a character that a database can hold", at=at + unstorable.start())
        self.advance()
        return written[1:-1].replace(written[0] * 2, written[0])

    def number(self) -> int | float:
        written = self.token.written
        digits = written.lstrip("-")
        if digits[0] == "0" and digits[1:2].isdigit():
            raise self.refused("a number without leading zeros", hint=f"As a text it would be '{short(written)}'.")
        if "." in digits:
            if len(digits.lstrip("0")) - 1 > _DECIMAL_DIGITS:
                raise self.refused(f"a decimal of at most {_DECIMAL_DIGITS} digits")
            self.advance()
            return float(written)
        if len(digits) > INTEGER_DIGITS or int(written) not in INTEGERS:
            raise self.refused(f"an integer from {INTEGERS[0]} to {INTEGERS[-1]}")
        self.advance()
        return int(written)

    def advance(self) -> ConditionToken:
        token = self.token
        self.index += 1
        self.token = self.tokens[self.index]
        return token

    def took(self, kind: str) -> bool:
        """Step over the next token if it is of this kind."""
        if self.token.kind != kind:
            return False
        self.advance()
        return True

    def take(self, kind: str, expected: str) -> None:
        if not self.took(kind):
            raise self.refused(expected)

    def refused(self, expected: str, *, at: int | None = None, hint: str = "") -> SyntaxRefused:
        token = self.token
        at = token.at if at is None else at
        what = f"Cannot read the condition at `{short(token.written)}`"
        if token.kind == "end":
            what = "The condition ends too early" if self.text.strip() else "There is no condition"
        return SyntaxRefused(what, text=self.text, at=at, expected=expected, hint=hint or self.hint(expected))

    def hint(self, expected: str) -> str:
        """Guess what was meant, from the token that does not fit and what should have stood there."""
        kind, written, _ = self.token
        if kind in {"name", "quoted"} and expected == _LITERAL:
            return f"A text takes single quotes: '{short(written.strip(chr(34)))}'."
        if kind == "(" and expected == _TEST:
            return "A condition has no functions."
        return HINTS.get(written.upper(), "")


def show(condition: Condition) -> str:
    """Write a condition so that parsing it again gives the same tree."""
    match condition:
        case Compare(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case In(column, _, negated, str(file)):
            return f"{_operand(column)}{_not(negated)} IN FILE {_text(file)}"
        case In(column, items, negated):
            return f"{_operand(column)}{_not(negated)} IN ({', '.join(map(_operand, items))})"
        case Like(column, pattern, negated):
            return f"{_operand(column)}{_not(negated)} LIKE {_text(pattern)}"
        case Between(column, low, high, negated):
            return f"{_operand(column)}{_not(negated)} BETWEEN {_operand(low)} AND {_operand(high)}"
        case IsNull(column, negated):
            return f"{_operand(column)} IS{_not(negated)} NULL"
        case Not(inner):
            return f"NOT {_within(inner, And | Or)}"
        # A chain inside a chain of the same kind keeps its parentheses: the tree has them apart.
        case And(parts):
            return " AND ".join(_within(part, And | Or) for part in parts)
        case _:
            return " OR ".join(_within(part, Or) for part in condition.parts)


def _within(condition: Condition, bracketed: type | UnionType) -> str:
    return f"({show(condition)})" if isinstance(condition, bracketed) else show(condition)


def _not(negated: bool) -> str:
    return " NOT" if negated else ""


def _operand(operand: Operand) -> str:
    if isinstance(operand, Column):
        return _name(operand.name)
    if isinstance(operand.value, str):
        return _text(operand.value)
    return _number(operand.value)


def _name(name: str) -> str:
    if PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(value: float) -> str:
    """Write all digits: the language has no exponents."""
    return str(value) if isinstance(value, int) else format(Decimal(repr(value)), "f")
