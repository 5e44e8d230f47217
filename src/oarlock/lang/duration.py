"""Walltimes: hours, hours:minutes or hours:minutes:seconds ⇄ whole seconds."""

import re

from oarlock.lang.limits import short
from oarlock.model.submission_errors import BadDuration

LONGEST = 2**31 - 1
"""About 68 years: what a 32-bit column holds."""

_FORM = re.compile(r"\s*([0-9]+)(?::([0-9]+)(?::([0-9]+))?)?\s*")
_FIELD_DIGITS = 10  # more digits than LONGEST has cannot be right, and are never turned into a number
_EXPECTED = "hours, hours:minutes or hours:minutes:seconds"
_HINT = "`2` is two hours, `0:30` half an hour, `0:0:45` three quarters of a minute."


def parse(text: str) -> int:
    """Read a walltime, in seconds. Fields may run over, as OAR lets them: `0:90:90` is 1:31:30."""
    return read(text, 0, len(text))


def read(text: str, begin: int, end: int) -> int:
    """Read the walltime that stands in a part of a longer text, which is shown when it is refused."""
    match = _FORM.match(text, begin, end)
    if match is None:
        raise _refused(text, begin, end, begin + _blanks(text[begin:end]), _EXPECTED)
    if match.end() != end:
        raise _refused(text, begin, end, match.end(), _EXPECTED)
    seconds = _seconds(match)
    if seconds == 0:
        raise _refused(text, begin, end, match.start(1), "a time above zero")
    if seconds > LONGEST:
        raise _refused(text, begin, end, match.start(1), f"at most {show(LONGEST)}")
    return seconds


def show(seconds: int) -> str:
    """Write a duration as h:mm:ss; hours are not folded into days."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def show_unpadded(seconds: int) -> str:
    """Write a duration as OAR stores it: `0:10:0`."""
    return f"{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}"


def _seconds(match: re.Match[str]) -> int:
    hours, minutes, seconds = (field.lstrip("0") or "0" for field in match.groups("0"))
    if max(len(hours), len(minutes), len(seconds)) > _FIELD_DIGITS:
        return LONGEST + 1
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def _blanks(text: str) -> int:
    return len(text) - len(text.lstrip())


def _refused(text: str, begin: int, end: int, at: int, expected: str) -> BadDuration:
    what = f"`{short(text[begin:end].strip())}` is not a walltime"
    return BadDuration(what, text=text, at=at, expected=expected, hint=_HINT)
