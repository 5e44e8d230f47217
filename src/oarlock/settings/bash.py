"""Read the assignments of a settings file the way bash would, without ever running anything.

Understood: `NAME=value`, several on a line, `export`, comments, both kinds of quotes, backslashes, line continuations,
`$NAME` and `${NAME}` of names assigned above. Everything else that means something to bash would run or expand
something; it is refused, with the line and the reason.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NoReturn

from oarlock.model.errors import ConfigRefused

LONGEST_FILE = 256 * 1024
LONGEST_VALUES = 1024 * 1024
"""All values together; references to references could otherwise grow without end."""


@dataclass(frozen=True, slots=True)
class BashAssignment:
    """`name=value`, expanded, and the line where it begins."""

    name: str
    value: str
    line: int


def assignments(text: str, *, file: str) -> list[BashAssignment]:
    """Read all assignments in their order; a name may come twice. `file` is only for what a refusal says."""
    if len(text) > LONGEST_FILE:
        raise ConfigRefused(f"{file} is longer than {LONGEST_FILE // 1024} KiB; settings are not.")
    return _Reader(text, file).read()


_NAME_START = re.compile(r"[A-Za-z_]")
_NAME_PART = re.compile(r"[A-Za-z0-9_]")
_BLANKS = " \t"
_WORD_ENDS = ("", " ", "\t", "\n")
_EXPORT = re.compile(r"export[ \t]+(?![ \t\n#]|\Z)")
_PLAIN = re.compile(r"[^ \t\n\\'\"$`;&|<>(){~]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"\\`$]+')
_ESCAPED_IN_QUOTES = '$`"\\'
_SPECIAL_VARIABLES = "0123456789*@#?-$!"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_RUNS = {
    ";": "separates commands",
    "&": "runs commands",
    "|": "runs commands",
    "<": "reads a file",
    ">": "writes a file",
    "(": "makes an array or runs commands",
    ")": "makes an array or runs commands",
    "`": "runs a command",
}
_QUOTE_IT = (
    "A settings file holds only NAME=value lines; put the value in single quotes if that character belongs to it."
)


@dataclass(slots=True)
class _Reader:
    """The text, and how far it has been read."""

    text: str
    file: str
    at: int = 0
    size: int = 0
    values: dict[str, str] = field(default_factory=dict)
    assigned: list[BashAssignment] = field(default_factory=list)
    newlines: list[int] = field(default_factory=list)

    def read(self) -> list[BashAssignment]:
        self.newlines = [match.start() for match in re.finditer("\n", self.text)]
        if match := _CONTROL.search(self.text):
            self._refuse_control(match)
        while self._peek():
            self._line()
        return self.assigned

    def _line(self) -> None:
        """Read one line of assignments. `export` expands all its words before it assigns any, as bash does."""
        self._skip_blanks()
        exporting = self._skip_export()
        exported: list[BashAssignment] = []
        while not self._line_is_over():
            assignment = self._assignment(exporting=exporting)
            if assignment and exporting:
                exported.append(assignment)
            elif assignment:
                self._keep(assignment)
            self._skip_blanks()
        for assignment in exported:
            self._keep(assignment)

    def _keep(self, assignment: BashAssignment) -> None:
        self.assigned.append(assignment)
        self.values[assignment.name] = assignment.value
        self._grow(assignment.value)

    def _line_is_over(self) -> bool:
        """Whether nothing but a comment is left; what ends the line is skipped."""
        here = self._peek()
        if here == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            here = self._peek_raw()
        if here == "\n":
            self.at += 1
        return here in ("", "\n")

    def _skip_export(self) -> bool:
        word = _EXPORT.match(self.text, self.at)
        if word:
            self.at = word.end()
        return word is not None

    def _assignment(self, *, exporting: bool) -> BashAssignment | None:
        """Read one `NAME=word`; `None` for a bare name after `export`, which changes nothing here."""
        begin = self.at
        name = self._name()
        here = self._peek()
        if not name or (here != "=" and not (exporting and here in _WORD_ENDS)):
            self._refuse_command(begin, name, here)
        if here != "=":
            return None
        self.at += 1
        return BashAssignment(name, self._word(exporting=exporting), self._line_of(begin))

    def _name(self) -> str:
        letters: list[str] = []
        pattern = _NAME_START
        while pattern.match(here := self._peek()):
            letters.append(here)
            self.at += 1
            pattern = _NAME_PART
        return "".join(letters)

    def _word(self, *, exporting: bool) -> str:
        """Read a value: quoted and unquoted pieces that touch each other."""
        parts: list[str] = []
        while (here := self._peek()) not in _WORD_ENDS:
            if here == "'":
                parts.append(self._single_quoted())
            elif here == '"':
                parts.append(self._double_quoted())
            elif here == "\\":
                parts.append(self._escaped())
            elif here == "$":
                parts.append(self._dollar(quoted=False))
            else:
                parts.append(self._unquoted(here, exporting=exporting))
        return "".join(parts)

    def _unquoted(self, here: str, *, exporting: bool) -> str:
        if here in _RUNS:
            self._refuse(self.at, f"`{here}` {_RUNS[here]}, which a settings file must not.", _QUOTE_IT)
        if here == "~" and self._behind() in "=:":
            self._refuse(self.at, "`~` here is a home directory to bash.", "Write the path in full.")
        if here == "{" and exporting:
            self._refuse(self.at, "`{` after `export` is expanded by bash.", "Put the value in single quotes.")
        if here in "~{":
            self.at += 1
            return here
        return self._run_of(_PLAIN)

    def _single_quoted(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self._refuse(self.at, "A quote ' is opened and never closed.", "Close it, or escape it as \\'.")
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _double_quoted(self) -> str:
        opened = self.at
        self.at += 1
        parts: list[str] = []
        while (here := self._peek()) != '"':
            if here == "":
                self._refuse(opened, 'A quote " is opened and never closed.', 'Close it, or escape it as \\".')
            parts.append(self._piece_in_quotes(here))
        self.at += 1
        return "".join(parts)

    def _piece_in_quotes(self, here: str) -> str:
        if here == "$":
            return self._dollar(quoted=True)
        if here == "`":
            self._refuse(self.at, "` runs a command even in double quotes.", "Use single quotes, or escape it as \\`.")
        if here == "\\":
            escaped = self._escaped()
            return escaped if escaped in _ESCAPED_IN_QUOTES else f"\\{escaped}"
        return self._run_of(_PLAIN_IN_QUOTES)

    def _escaped(self) -> str:
        escaped = self.text[self.at + 1 : self.at + 2]
        if not escaped:
            self._refuse(self.at, "The file ends in a backslash, in the middle of a line.", "Remove the backslash.")
        self.at += 2
        return escaped

    def _dollar(self, *, quoted: bool) -> str:
        """Read what follows a `$`: a name assigned above, or nothing special, and then it stands for itself."""
        begin = self.at
        self.at += 1
        here = self._peek()
        if _NAME_START.match(here):
            return self._value_of(self._name(), begin)
        if here == "{":
            self.at += 1
            name = self._name()
            if not name or self._peek() != "}":
                self._refuse(begin, "Only ${NAME} is understood between braces.", "Write the value itself.")
            self.at += 1
            return self._value_of(name, begin)
        if here and (here in _SPECIAL_VARIABLES or here in "(["):
            self._refuse(
                begin,
                f"`${here}` would be computed by bash; a settings file is only read.",
                "Put the value itself there, or single quotes around it.",
            )
        if not quoted and here and here in "'\"":
            self._refuse(begin, f"The quotes ${here} are not understood.", "Use plain quotes.")
        return "$"

    def _value_of(self, name: str, at: int) -> str:
        if name not in self.values:
            self._refuse(at, f"${name} is not assigned above.", "Only settings of this file can be referred to.")
        self._grow(self.values[name])
        return self.values[name]

    def _grow(self, value: str) -> None:
        self.size += len(value)
        if self.size > LONGEST_VALUES:
            self._refuse(self.at, "The values grow too long by referring to each other.", "Write them out.")

    def _peek(self) -> str:
        """Return the next character behind line continuations, or nothing at the end."""
        while self.text.startswith("\\\n", self.at):
            self.at += 2
        return self._peek_raw()

    def _peek_raw(self) -> str:
        return self.text[self.at : self.at + 1]

    def _behind(self) -> str:
        """Return the character before the present one, line continuations left out."""
        at = self.at
        while self.text.endswith("\\\n", 0, at):
            at -= 2
        return self.text[at - 1 : at]

    def _run_of(self, plain: re.Pattern[str]) -> str:
        """Read the plain characters from here on; the caller has checked that there is one."""
        begin = self.at
        if run := plain.match(self.text, begin):
            self.at = run.end()
        return self.text[begin : self.at]

    def _skip_blanks(self) -> None:
        while (here := self._peek()) and here in _BLANKS:
            self.at += 1

    def _line_of(self, at: int) -> int:
        return bisect_left(self.newlines, at) + 1

    def _refuse(self, at: int, sentence: str, hint: str) -> NoReturn:
        raise ConfigRefused(f"{self.file}, line {self._line_of(at)}: {sentence}", hint=hint)

    def _refuse_control(self, match: re.Match[str]) -> NoReturn:
        if match.group() == "\r":
            self._refuse(match.start(), "The line ends the way Windows ends lines.", "Convert the file (dos2unix).")
        self._refuse(match.start(), f"There is a control character ({match.group()!r}).", "Remove it.")

    def _refuse_command(self, begin: int, name: str, here: str) -> NoReturn:
        if name and here == "+":
            self._refuse(begin, f"{name}+= adds to a value.", "Write the whole value with =.")
        if name and here == "[":
            self._refuse(begin, f"{name}[…] is an array.", "Write a list as one text with blanks between.")
        if name and here and here in _BLANKS and self.text[self.at :].lstrip(_BLANKS).startswith("="):
            self._refuse(begin, f"There are blanks around the = of {name}.", "Write NAME=value without blanks.")
        word = re.compile(r"[^\s]{1,40}").match(self.text, begin)
        shown = word.group() if word else name
        self._refuse(
            begin,
            f"`{shown}` is not NAME=value; bash would run it.",
            "Quote a value that holds blanks: NAME='one two'.",
        )
