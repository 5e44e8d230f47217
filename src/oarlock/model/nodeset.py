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
    for number, following in zip(ordered, [*ordered[1:], None], strict=True):
        if following != number + 1:
            span = f"{first:0{width}d}" if first == number else f"{first:0{width}d}-{number:0{width}d}"
            pieces.append(span)
            first = following if following is not None else first
    if len(ordered) == 1:
        return f"{before}{pieces[0]}{after}"
    return f"{before}[{','.join(pieces)}]{after}"
