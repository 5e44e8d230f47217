"""Strict decoding of requests: a field that is unknown, missing or of another kind is refused by name."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from oarlock.lang.limits import closest, short
from oarlock.model.errors import BadField, BadRequest, OarlockError, UnknownField

LARGEST_BODY = 2**20
_MOST_QUERY_FIELDS = 32

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Instant = Annotated[int, Meta(ge=0, le=2**53)]
Word = Annotated[str, Meta(max_length=255)]
Text = Annotated[str, Meta(max_length=65_536)]


class VerbRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request; unknown ones are refused. No verb has a field that names the caller."""


class EmptyRequest(VerbRequest):
    """A request without fields."""


def interval(since: int | None, until: int | None, *, now: int, length: int) -> tuple[int, int]:
    """Return the two ends of an interval, by default of the last `length` seconds; refuse one that ends too early."""
    last = now if until is None else int(until)
    first = last - length if since is None else int(since)
    if last < first:
        raise BadRequest(f"The end of the interval, {last}, is before its beginning, {first}.", hint="Swap the two.")
    return first, last


def check_groups(names: Sequence[str]) -> None:
    """Refuse a grouping that names something twice."""
    if len(set(names)) < len(names):
        raise BadRequest(f"`by` names something twice: {','.join(names)}.", hint="Name each once.")


A = TypeVar("A", bound=Struct)

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`(?: - at `\$\.?(.*)`)?", re.DOTALL)


def body(content: bytes, kind: type[A]) -> A:
    """Decode a JSON body; an empty one stands for an object without fields."""
    if _NUL.search(content):
        raise BadRequest("A text in the request holds a NUL character.", hint="Leave it out: nothing can store it.")
    try:
        read: A = _decoder(kind).decode(content or b"{}")
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _refused(problem, kind, content) from None
    return read


def query(text: str, path: Mapping[str, str], kind: type[A]) -> A:
    """Decode the address: the variable parts of its path, and what follows the question mark.

    A list is written with commas between; a field that is given twice is refused.
    """
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MOST_QUERY_FIELDS
        )
    except ValueError:
        raise BadRequest("The part of the address behind `?` cannot be read.", hint="Write name=value&…") from None
    values: dict[str, Any] = {}
    for name, value in [*path.items(), *pairs]:
        if name in values:
            raise BadRequest(f"`{short(name)}` is given twice.", hint="Give it once; lists have commas.")
        if "\0" in value:
            raise BadRequest(f"`{short(name)}` holds a NUL character.", hint="Leave it out.")
        values[name] = [part for part in value.split(",") if part] if name in _lists(kind) else value
    return fields(values, kind)


def fields(values: Mapping[str, Any], kind: type[A]) -> A:
    """Make a request of fields; texts become numbers where a number is meant."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _refused(problem, kind, values) from None


@cache
def _decoder(kind: type[Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _lists(kind: type[Struct]) -> frozenset[str]:
    """Return the names of fields that are lists."""
    return frozenset(field.name for field in msgspec.structs.fields(kind) if "list[" in str(field.type))


def _refused(problem: Exception, kind: type[Struct], given: bytes | Mapping[str, Any]) -> OarlockError:
    names = {field.encode_name: None for field in msgspec.structs.fields(kind)}
    if unknown := _UNKNOWN.fullmatch(str(problem)):
        name = unknown[1]
        return UnknownField(f"There is no field `{short(name)}` in this request.", hint=closest(name[:100], names))
    if isinstance(problem, msgspec.ValidationError):
        return _misfit(_printable(str(problem)), kind, given)
    return BadRequest("The request is not the JSON that was expected.", hint=_fields(names))


_PLACE = re.compile(r" - at `(?:key in )?\$(?:\.(.*))?`$")
_MISSING = re.compile(r"Object missing required field `(.*?)`.*")
_NOT_ONE_OF = re.compile(r"Invalid enum value '?(.*?)'?(?: - at .*)?")
_MISFIT = re.compile(r"Expected `(\w+)(?: \| null)?`(?:( of length)? ([<>]=) (-?\d+))?(?:, got `\w+`)? - at `\$\.(.+)`")
_KINDS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list"}
_BOUNDS = {"<=": " of at most ", ">=": " of at least "}


def _misfit(problem: str, kind: type[Struct], given: bytes | Mapping[str, Any]) -> BadField:
    """Return a refusal that says in words what is wrong with a value; people read it at a terminal, too."""
    match = _MISFIT.fullmatch(problem)
    if match is not None and match[1] in _KINDS:
        return BadField(_bounded(*match.groups()))
    if missing := _MISSING.fullmatch(problem):
        return BadField(f"`{missing[1]}` is missing.")
    place = _PLACE.search(problem)
    name = (place[1] or "") if place else ""
    description, choices = _allowed(name.partition("[")[0], kind)
    if (wrong := _NOT_ONE_OF.fullmatch(problem)) and choices:
        return BadField(f"`{name}` cannot be `{wrong[1]}`.", hint=f"It is one of {', '.join(choices)}.")
    if "matching regex" in problem and description:
        return BadField(f"{_value(given, name)} cannot be the `{name}`.", hint=f"It must have {description}.")
    if kinds := [_KINDS[word] for word in re.findall(r"\w+", problem.partition(",")[0]) if word in _KINDS]:
        return BadField(f"`{name}` must be {' or '.join(kinds)}.")
    return BadField(f"`{name}` is not understood." if name else "The request is not understood.")


def _value(given: bytes | Mapping[str, Any], name: str) -> str:
    """Return the text of a field, as it may be shown to people."""
    values = msgspec.json.decode(given) if isinstance(given, bytes) else given  # it was read once: that cannot fail
    return f"`{short(str(values[name]))}`" if name in values else "What was given"


def _bounded(kind: str, counted: str | None, sign: str | None, number: str | None, name: str) -> str:
    if (counted, sign, number) == (" of length", ">=", "1"):
        return f"`{name}` must not be empty."
    parts = " characters" if kind == "str" else " parts"
    bound = f"{_BOUNDS[sign]}{number}{parts if counted else ''}" if sign else ""
    return f"`{name}` must be {_KINDS[kind]}{bound}."


def _allowed(name: str, kind: type[Struct]) -> tuple[str, list[str]]:
    """Return the description of a field's texts, and the words that it may be."""
    types = [field.type for field in msgspec.structs.fields(kind) if field.encode_name == name]
    descriptions: list[str] = []
    choices: list[str] = []
    while types:
        annotation = types.pop()
        descriptions += [meta.description for meta in getattr(annotation, "__metadata__", ()) if meta.description]
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            choices += [str(member.value) for member in annotation]
        parts = getattr(annotation, "__args__", ())
        choices += [part for part in parts if isinstance(part, str)]
        types += [part for part in parts if not isinstance(part, str)]
    return "".join(descriptions[:1]), choices


def _printable(text: str) -> str:
    return ascii(text[:200])[1:-1]


def _fields(names: Mapping[str, None]) -> str:
    return f"Send an object with the fields {', '.join(names)}." if names else "Send an empty object."
