"""How every command runs: options, one call, one print; a refusal is a sentence, a way out and an exit code.

Nothing else prints: commands hand over lines, tables and plain data.
"""

from __future__ import annotations

import os
import sys

from oarlock.client import Client, RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from oarlock.cli.options import CommandOptions, ParsedOptions

    Run = Callable[[Client, ParsedOptions, "CommandOutput"], None]


LONGEST_NOTE = 600
"""Letters of a line on standard error."""


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
        from oarlock.cli.layout.formats import written

        self._kept.append(written(value, self.form).removesuffix("\n"))

    def text(self, text: str) -> None:
        """Print a text of our own as it stands."""
        self._kept.append(text.removesuffix("\n"))

    def note(self, sentence: str, hint: str = "") -> None:
        """Print a note for people on standard error; it is not part of the result."""
        self.flush()
        lines = [f"{self.command}: {sentence}"] + [f"  {line}" for line in hint.splitlines()]
        short = [_shortened(line) for line in _lines(lines)]
        _write(sys.stderr, "".join(f"{line if line.isprintable() else _shown(line)}\n" for line in short))

    def refuse(self, refused: RequestRefused) -> None:
        """Print a refusal and its way out; the first refusal decides the exit code."""
        self.note(str(refused), refused.hint)
        self.fail(refused.kind)

    def refuse_job(self, job: Any) -> None:
        """Print why nothing was done to a job."""
        self.refuse(RequestRefused(job["says"], kind=job.get("kind") or "RequestRefused", hint=job.get("hint") or ""))

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


def _shortened(line: str) -> str:
    """Cut the middle out of a line that nobody would read to its end: a refusal names the value, however long."""
    return line if len(line) <= LONGEST_NOTE else f"{line[: LONGEST_NOTE // 2]} … {line[-LONGEST_NOTE // 2 :]}"


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def main(options: CommandOptions, run: Run) -> int:
    """Run a command on the words it was called with; gives its exit code."""
    out = CommandOutput(options.command)
    try:
        _ran(options, run, out)
    except RequestRefused as refused:
        out.refuse(refused)
    except KeyboardInterrupt:
        out.fail("Interrupted")
    out.flush()
    return out.code


def _ran(options: CommandOptions, run: Run, out: CommandOutput) -> None:
    arguments = options.parse(sys.argv[1:])
    if arguments.given("help"):
        from oarlock.cli.options import help_text

        out.text(help_text(options))
    elif arguments.given("version"):
        from oarlock import __version__

        out.line(f"Oarlock version : {__version__}")
    else:
        out.form = arguments.format
        run(Client(arguments.text("server")), arguments, out)
