"""Sets as integers: bit i stands for member i."""

import re

_NOT_EMPTY = re.compile(rb"[^\x00]+")
_MEMBERS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


def positions(bits: int) -> list[int]:
    """Return the members of a set, lowest first.

    Runs of nonzero bytes are found by a regular expression, at the speed of C: long gaps cost next to nothing.
    """
    members: list[int] = []
    for run in _NOT_EMPTY.finditer(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        at = run.start() * 8
        for byte in run.group():
            members += [at + bit for bit in _MEMBERS[byte]]
            at += 8
    return members
