"""Names of nodes written short, as administrators do: node[1-4,7],login."""

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Write node names short: `node[1-4,7]`, keeping zeros in front (`n[08-11]`) and what follows the number."""
    numbered: dict[tuple[str, str, int], set[int]] = {}
    plain: dict[str, None] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain[name] = None
            continue
        before, digits, after = match.groups()
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        numbered.setdefault((before, after, width), set()).add(int(digits))
    folded = [_folded(before, after, width, numbers) for (before, after, width), numbers in _joined(numbered).items()]
    return ",".join(folded + list(plain))


def _joined(numbered: dict[tuple[str, str, int], set[int]]) -> dict[tuple[str, str, int], set[int]]:
    """Join `n10` with `n08, n09`: an unpadded number belongs to the padded numbers of the same width."""
    for before, after, width in [key for key in numbered if key[2]]:
        unpadded = numbered.get((before, after, 0), set())
        same_width = {number for number in unpadded if len(str(number)) == width}
        numbered[before, after, width] |= same_width
        unpadded -= same_width
    return {key: numbers for key, numbers in numbered.items() if numbers}


def _folded(before: str, after: str, width: int, numbers: set[int]) -> str:
    pieces: list[str] = []
    ordered = sorted(numbers)
    first = ordered[0]
    for place, number in enumerate(ordered, 1):
        following = ordered[place] if place < len(ordered) else None
        if following != number + 1:
            span = f"{first:0{width}d}" if first == number else f"{first:0{width}d}-{number:0{width}d}"
            pieces.append(span)
            first = following if following is not None else first
    if len(ordered) == 1:
        return f"{before}{pieces[0]}{after}"
    return f"{before}[{','.join(pieces)}]{after}"


MOST_NAMES = 10_000
"""How many names a folded text may stand for."""

_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def unfold(text: str) -> list[str]:
    """Return the names that a folded text stands for, each once: `node[1-3,7],login`, also `r[1-2]n[01-16]`.

    Raise ValueError with a sentence if it cannot be read, or stands for too many.
    """
    names: dict[str, None] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[,\s](?![^\[\]]*\])", text))):
        names |= dict.fromkeys(_unfold_part(part))
        _refuse_many(len(names), text)
    return list(names)


def _unfold_part(part: str) -> list[str]:
    names = [""]
    for piece in re.split(r"(\[[^\[\]]*\])", part):
        if not piece.startswith("["):
            if "[" in piece or "]" in piece:
                raise ValueError(f"`{part}` has a bracket without the other.")
            names = [name + piece for name in names]
            continue
        numbers = [number for span in piece[1:-1].split(",") for number in _numbers(span.strip(), part)]
        _refuse_many(len(names) * len(numbers), part)
        names = [name + number for name in names for number in numbers]
    return names


def _numbers(span: str, part: str) -> list[str]:
    match = _SPAN.fullmatch(span)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ValueError(f"`{span}` in `{part}` is not a range of numbers such as 1-64.")
    first, last = int(match[1]), int(match[2] or match[1])
    _refuse_many(last - first + 1, part)
    width = len(match[1]) if match[1].startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)]


def _refuse_many(count: int, text: str) -> None:
    if count > MOST_NAMES:
        raise ValueError(f"`{text[:40]}` stands for more than {MOST_NAMES} names.")
