"""`#OAR` lines: options of `oarsub` that a script carries itself."""

import re
import shlex
from typing import NamedTuple

from oarlock.lang.limits import TYPED_BYTES, fits
from oarlock.model.errors import TooLong
from oarlock.model.submission_errors import BadScript

MOST = 256
"""How many `#OAR` lines one script may have."""

_LINE = re.compile(r"^#OAR[ \t]+(.*)$", re.MULTILINE)
# A piece of a line in which every quote is closed. No possessive quantifiers: Python 3.11.2 misreads nested ones.
_CLOSED = re.compile(r"""[^'"\\]+|\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


class Directive(NamedTuple):
    """One `#OAR` line: where it stands (from 1) and its words."""

    line: int
    words: list[str]


def scan(script: str) -> list[Directive]:
    """Find the `#OAR` lines of a whole script, in order, split into words as a shell would.

    A line counts wherever it stands, also behind the first command, as in OAR. The first line must begin with `#`,
    so that a program is not searched by mistake. What the words mean is the caller's to say.
    """
    if not script.startswith("#"):
        raise BadScript(
            "This is not a script to look for `#OAR` lines in",
            text=script.partition("\n")[0],
            at=0,
            expected="a first line that begins with `#`, such as `#!/bin/sh`",
            hint="Without -S (--scanscript) any program can be submitted.",
        )
    matches = list(_LINE.finditer(script))
    _bounded(matches)
    line, seen, directives = 1, 0, []
    for match in matches:
        line += script.count("\n", seen, match.start())
        seen = match.start()
        directives.append(Directive(line, _words(match[0].rstrip("\r"), match.start(1) - match.start(), line)))
    return directives


def _bounded(matches: list[re.Match[str]]) -> None:
    if len(matches) > MOST:
        raise TooLong(f"The script has {len(matches)} #OAR lines; at most {MOST} are read.", hint="Join some of them.")
    # All of them together, so that a long script cannot keep the server busy.
    fits("\n".join(match[1] for match in matches), what="text of all #OAR lines", most=4 * TYPED_BYTES)


def _words(text: str, begin: int, line: int) -> list[str]:
    try:
        return shlex.split(text[begin:])
    except ValueError:
        at = _open(text, begin)
        raise BadScript(
            f"Line {line} of the script cannot be split into words",
            text=text,
            at=at,
            expected="a character behind the backslash" if text[at] == "\\" else f"a second {text[at]} to close this",
        ) from None


def _open(text: str, at: int) -> int:
    """Find the quote that is never closed, or the backslash with nothing behind it."""
    while piece := _CLOSED.match(text, at):
        at = piece.end()
    return at
