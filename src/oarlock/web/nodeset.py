"""Names of nodes written short, as administrators do: node[1-4,7],login."""

import re
from collections import defaultdict
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})([^0-9]*)")


def folded(names: Iterable[str]) -> str:
    """Write names short: those that differ only in their last number become one, numbers that follow a range.

    Numbers with leading zeros are folded only with those of the same width: node[01-12].
    """
    groups: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            groups[name, "", -1] = set()
        else:
            before, digits, after = match.groups()
            groups[before, after, len(digits) if digits.startswith("0") and digits != "0" else 0].add(int(digits))
    return ",".join(_group(*key, sorted(numbers)) for key, numbers in sorted(groups.items()))


def _group(before: str, after: str, width: int, numbers: list[int]) -> str:
    if not numbers:
        return before
    parts = [
        f"{first:0{max(width, 0)}}" if first == last else f"{first:0{max(width, 0)}}-{last:0{max(width, 0)}}"
        for first, last in _ranges(numbers)
    ]
    inside = ",".join(parts)
    return f"{before}[{inside}]{after}" if len(numbers) > 1 else f"{before}{inside}{after}"


def _ranges(numbers: list[int]) -> Iterable[tuple[int, int]]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number > last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
