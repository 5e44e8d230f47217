"""What the parsers share: how long a text may be, and how a value is named in a refusal."""

from collections.abc import Iterable
from difflib import get_close_matches

from oarlock.model.errors import TooLong

TYPED_BYTES = 4096
"""How long a text that a person typed may be."""

_NAMED_CHARACTERS = 40
_LISTED_NAMES = 12


def fits(text: str, *, what: str, most: int = TYPED_BYTES) -> None:
    """Refuse a text over `most` bytes; done before anything looks at what it says."""
    # Lone surrogates come from arguments that are no UTF-8; they are counted here and refused with a caret later.
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if length > most:
        raise TooLong(
            f"The {what} is {length} bytes long; at most {most} are read.", hint="Say it shorter, or in several."
        )


def short(text: str) -> str:
    """Return a value as a sentence can hold it: one line, no control characters, not too long."""
    if len(text) > _NAMED_CHARACTERS:
        text = text[: _NAMED_CHARACTERS - 1] + "…"
    return text if text.isprintable() else ascii(text)[1:-1]


def closest(name: str, names: Iterable[str], *, others: Iterable[str] = ()) -> str:
    """Return a hint: the name that looks most like this one, or the names there are. `others` are only guessed at."""
    folded = {other.lower(): other for other in names}
    meant = folded | {other: other for other in others}
    if alike := get_close_matches(name.lower(), meant, n=1):
        return f"Did you mean `{meant[alike[0]]}`?"
    names = sorted(folded.values())
    more = len(names) - _LISTED_NAMES
    return f"Known are {', '.join(names[:_LISTED_NAMES])}{f' and {more} more' if more > 0 else ''}."
