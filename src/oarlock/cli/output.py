"""What a command prints. Nothing else prints: commands hand over lines, tables and plain data."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TextIO

    from oarlock.client import RequestRefused

    Column = tuple[str, int, str]


class CommandOutput:
    """Standard output, standard error and the exit code of one command.

    Lines are kept and written together, since a write a line is what makes long lists slow.
    """

    def __init__(self, command: str, form: str = "") -> None:
        self.command, self.form = command, form
        self.code = 0
        self._kept: list[str] = []

    def line(self, text: str = "") -> None:
        """Print one line. What a terminal would obey is shown, not sent: names and commands are other people's."""
        self._kept.append(text if text.isprintable() else _shown(text))

    def data(self, value: Any) -> None:
        """Print plain data in the format that was asked for."""
        from oarlock.cli.formats import written

        self._kept.append(written(value, self.form).removesuffix("\n"))

    def text(self, text: str) -> None:
        """Print a text of our own as it stands."""
        self._kept.append(text.removesuffix("\n"))

    def note(self, sentence: str, hint: str = "") -> None:
        """Print a note for people on standard error; it is not part of the result."""
        self.flush()
        lines = [f"{self.command}: {sentence}"] + [f"  {line}" for line in hint.splitlines()]
        _write(sys.stderr, "".join(f"{line if line.isprintable() else _shown(line)}\n" for line in _lines(lines)))

    def refuse(self, refused: RequestRefused) -> None:
        """Print a refusal and its way out; the first refusal decides the exit code."""
        self.note(str(refused), refused.hint)
        self.fail(refused.kind)

    def fail(self, kind: str) -> None:
        """End with the code of this kind, unless something failed before."""
        from oarlock.cli.exit_codes import exit_code

        self.code = self.code or exit_code(self.command, kind)

    def flush(self) -> None:
        """Write what is kept. A reader that has left (`| head`) is no error to tell of."""
        kept, self._kept = self._kept, []
        if not kept:
            return
        try:
            _write(sys.stdout, "\n".join(kept) + "\n")
        except BrokenPipeError:
            self.fail("NobodyReads")


def table(columns: tuple[Column, ...], rows: Sequence[tuple[object, ...]], *, indent: str = "") -> list[str]:
    """Lay out rows below heads and a rule; `indent` moves only those two. A column is its head, width and format."""
    heads = " ".join(f"{head:<{width}}" for head, width, _ in columns)
    rule = " ".join("-" * width for _, width, _ in columns)
    form = " ".join(form for _, _, form in columns)
    return [indent + heads.rstrip(), indent + rule, *(form % row for row in rows)]


def _write(stream: TextIO, text: str) -> None:
    """Write all of it. With PYTHONUNBUFFERED set, Python's own streams drop what a full pipe does not take at once."""
    left = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while left:
        try:
            left = left[os.write(stream.fileno(), left) :]
        except BlockingIOError:  # somebody else made the terminal non-blocking
            from select import select

            select([], [stream], [])


def show_text(text: str, file: TextIO | None = None) -> None:
    """Print lines at once, for commands that have no `Output`. What a terminal would obey is shown, not sent."""
    print("\n".join(line if line.isprintable() else _shown(line) for line in text.split("\n")), file=file)


def _lines(lines: list[str]) -> list[str]:
    return [line for text in lines for line in text.split("\n")]


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in text)
